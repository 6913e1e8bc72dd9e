"""Exact search among a million codes, against faiss at each of its levels, usearch and the limits of the machine.

Every problem has a second contest in which both are held to AVX2: where our kernels are, faiss is limited to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import OURS, Contender, Contest, Entry, Setting, Target, faster_than, main, race, timed, with_held
from environment import installed, instruction_set, is_held
from hashgrove import FlatIndex
from hashgrove.codes import as_words
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import popcount

BATCH = 64
TILE_WORDS = 5 * 2**10  # what `count_ones` compares with all queries, from the nearest cache
NEEDED = {  # factor over faiss: (bits, held to AVX2, one query or a batch) -> at least
    (64, False, True): 4, (64, False, False): 10, (64, True, True): 4, (64, True, False): 3,
    (128, False, True): 4, (128, False, False): 10, (128, True, True): 4, (128, True, False): 3,
    (1024, False, True): 2.5, (1024, False, False): 2.5, (1024, True, True): 2.5, (1024, True, False): 2.5,
}  # fmt: skip


@lru_cache(maxsize=1)
def random_codes(n: int, n_bits: int, n_queries: int = BATCH) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make uniform codes, which have no structure that a search could use, and queries."""
    rng = np.random.default_rng(0)
    codes = rng.integers(256, size=(n + n_queries, n_bits // 8), dtype=np.uint8)
    return codes[:n], codes[n:]


def faiss_levels() -> dict[str, int]:
    """Return the levels of faiss that this processor and this build of it have; where we are held, up to AVX2."""
    if not installed("faiss"):
        return {}
    import faiss

    names = ["AVX2"] if is_held() else ["AVX2", "AVX512", "AVX512_VPOPCNT"]
    levels = {name: getattr(faiss, f"SIMDLevel_{name}") for name in names}
    return {name: level for name, level in levels.items() if faiss.SIMDConfig.is_simd_level_available(level)}


def race_all(n: int, n_bits: int, n_queries: int, k: int) -> list[Entry]:
    """Search on one thread; all contenders must find the same distances, but may choose any ids at equal distances."""
    codes, queries = random_codes(n, n_bits)
    queries = queries[:n_queries]
    few = queries[: max(1, n_queries // 20)]

    def with_faiss(level: int, index: Any) -> Any:
        import faiss

        faiss.SIMDConfig.set_level(level)
        faiss.omp_set_num_threads(1)
        return index.search(queries, k)[0]

    def faiss_index() -> Any:
        import faiss

        index = faiss.IndexBinaryFlat(n_bits)
        index.add(codes)
        return index

    def with_usearch(_: None) -> Any:
        from usearch.index import MetricKind
        from usearch.index import search as exact_search

        return exact_search(codes, few, k, MetricKind.Hamming, exact=True, threads=1).distances

    def our_index() -> FlatIndex:
        index = FlatIndex(codes)
        _ = index.columns
        return index

    usearch = Contender(
        name="usearch",
        run=with_usearch,
        share=len(few) / n_queries,
        needs="usearch",
        note=f"exact, timed on {len(few)} of the queries" if len(few) < n_queries else "exact",
    )
    entries = race(
        [
            Contender(name=OURS, run=lambda index: index.search(queries, k, n_jobs=1).distances, prepare=our_index),
            *(
                Contender(name="faiss", run=partial(with_faiss, level), prepare=faiss_index, note=name)
                for name, level in faiss_levels().items()
            ),
            *([] if is_held() else [usearch]),
        ],
        rounds=5,
        patience=10,
    )
    expected = entries[0].answer
    for entry in entries[1:]:
        found = np.asarray(entry.answer).reshape(-1, min(k, n)).astype(np.int64)
        np.testing.assert_array_equal(found, expected[: len(found)], err_msg=entry.name)
        entry.agreement = "equal distances"
    return entries


def search(n: int, n_bits: int, n_queries: int, k: int) -> Contest:
    """Race, and measure what bounds the search."""
    entries = race_all(n, n_bits, n_queries, k)
    codes, queries = random_codes(n, n_bits)
    columns = FlatIndex(codes).columns
    counting = min(timed(lambda: count_ones(columns, as_words(queries[:n_queries])))[1] for _ in range(5))
    reading = seconds_to_read(columns)
    ours = entries[0].seconds
    words = columns.size * n_queries
    facts = {
        "instruction set": f"{instruction_set()}; faiss: {', '.join(faiss_levels()) or 'none'}",
        "per query, ours": f"{ours / n_queries * 1e3:.3f} ms, {words / ours / 1e9:.1f} G words/s",
        "a plain loop: xor, popcount and sum": f"{counting * 1e3:.2f} ms, {words / counting / 1e9:.1f} G words/s",
        "the codes read once": f"{reading * 1e3:.2f} ms, {columns.nbytes / reading / 1e9:.1f} GB/s",
    }
    return Contest(entries, targets_of(entries, n_bits, n_queries, reading), facts)


def targets_of(entries: list[Entry], n_bits: int, n_queries: int, reading: float) -> list[Target]:
    """Return the factor over faiss at its best level; for one query, the speed of reading memory is as good."""
    factor = NEEDED[n_bits, is_held(), n_queries == 1]
    found = [faster_than(entries, "faiss", factor, how=" at its best level, one thread each")]
    if n_queries == 1 and not found[0].met:
        name = f"or at most 1.5x the time of reading the codes once (instead of {factor:g}x faiss)"
        found.append(Target(name, 1.5, entries[0].seconds / reading, at_most=True))
    return found


def seconds_to_read(columns: NDArray[np.uint64]) -> float:
    """Time to read all codes once."""
    return min(timed(lambda: read(columns.reshape(-1)))[1] for _ in range(5))


@kernel
def count_ones(columns, queries):
    """Add up all distances, tile by tile: what a plain loop takes. O(words x queries)."""
    n_words, n = columns.shape
    tile = max(TILE_WORDS // n_words, 1)
    total = np.uint64(0)
    for start in range(0, n, tile):
        stop = min(start + tile, n)
        for q in range(len(queries)):
            for w in range(n_words):
                word = queries[q, w]
                for i in range(np.uint64(start), np.uint64(stop)):
                    total += popcount(columns[w, i] ^ word)
    return total


@kernel
def read(words):
    """Compute the exclusive or of all words: the cost of reading them from memory. O(words)."""
    total = np.uint64(0)
    for i in range(np.uint64(0), np.uint64(len(words))):
        total ^= words[i]
    return total


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests for codes of one, two and sixteen words, with a batch of queries and with one."""
    n, depths = (3000, (10,)) if setting.tiny else (1_000_000, (10, 100))
    found = {
        f"{n:,} x {n_bits:,} bits, {'one query' if q == 1 else f'{q} queries'}, top {k}": partial(
            search, n, n_bits, q, k
        )
        for n_bits in (64, 128, 1024)
        for q in (BATCH, 1)
        for k in depths
    }
    held = [name for name in found if "128 bits, one" in name] if setting.tiny else found  # each starts a process
    return with_held(found, held, __file__, setting)


if __name__ == "__main__":
    main("search", contests)
