"""Exact search of the 100 nearest among a million codes, against faiss, usearch and the limits of the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import OURS, Contender, Contest, Setting, Target, faster_than, main, on_one_thread, race, timed
from hashgrove import FlatIndex
from hashgrove.codes import as_words
from hashgrove.index.scan import TILE_WORDS
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import popcount

K = 100
QUERIES_PER_TILE = 32


@lru_cache(maxsize=1)
def random_codes(n: int, n_bits: int, n_queries: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make uniform codes, which have no structure that a search could use."""
    rng = np.random.default_rng(0)
    codes = rng.integers(256, size=(n + n_queries, n_bits // 8), dtype=np.uint8)
    return codes[:n], codes[n:]


def search(n: int, n_bits: int, n_queries: int, *, made_for: int) -> Contest:
    """Search; all contenders must find the same distances, but may choose any ids at equal distances."""
    codes, queries = random_codes(n, n_bits, made_for)
    queries = queries[:n_queries]
    few = queries[: max(1, n_queries // 20)]

    def with_faiss(threads: int, index: Any) -> Any:
        import faiss

        faiss.omp_set_num_threads(threads)
        return index.search(queries, K).distances

    def faiss_index() -> Any:
        import faiss

        index = faiss.IndexBinaryFlat(n_bits)
        index.add(codes)
        return index

    def with_usearch(_: None) -> Any:
        from usearch.index import MetricKind
        from usearch.index import search as exact_search

        return exact_search(codes, few, K, MetricKind.Hamming, exact=True, threads=1).distances

    def ours(threads: int, index: FlatIndex) -> Any:
        return index.search(queries, K, n_jobs=threads).distances

    def our_index() -> FlatIndex:
        index = FlatIndex(codes)
        _ = index.columns
        return index

    entries = race(
        [
            *(Contender(name=OURS, run=partial(ours, t), prepare=our_index, threads=t) for t in (1, 2)),
            *(
                Contender(name="faiss", run=partial(with_faiss, t), prepare=faiss_index, threads=t, needs="faiss")
                for t in (1, 2)
            ),
            Contender(
                name="usearch",
                run=with_usearch,
                share=len(few) / n_queries,
                needs="usearch",
                note=f"exact, timed on {len(few)} of the queries" if len(few) < n_queries else "exact",
            ),
        ],
        rounds=5,
        patience=20,
    )
    expected = entries[0].answer
    for entry in entries[1:]:
        found = np.asarray(entry.answer).reshape(-1, min(K, n)).astype(np.int64)
        np.testing.assert_array_equal(found, expected[: len(found)], err_msg=entry.name)
        entry.agreement = "equal distances"
    columns = FlatIndex(codes).columns
    counting = min(timed(lambda: count_ones(columns, as_words(queries)))[1] for _ in range(5))
    reading = min(timed(lambda: read(columns.reshape(-1)))[1] for _ in range(5))
    bound = max(counting, reading)
    one_thread = entries[0].seconds
    targets = [
        faster_than(entries, "faiss", 2, how=", each at its better thread count"),
        faster_than(on_one_thread(entries), "faiss", 2, how=", one thread each"),
        Target("one thread within 1.5x of the bound", 1.5, one_thread / bound, at_most=True),
    ]
    words = columns.size * n_queries
    facts = {
        "per query, ours, one thread": f"{one_thread / n_queries * 1e3:.3f} ms",
        "bound, xor, popcount and sum alone": f"{counting * 1e3:.2f} ms, {words / counting / 1e9:.2f} G words/s",
        "bound, the codes read once": f"{reading * 1e3:.2f} ms, {columns.nbytes / reading / 1e9:.1f} GB/s",
    }
    return Contest(entries, targets, facts)


@kernel
def count_ones(columns, queries):
    """Add up all distances, tile by tile as a search does: the cost of xor and popcount alone. O(words x queries)."""
    n_words, n = columns.shape
    tile = max(TILE_WORDS // n_words, 1)
    total = np.uint64(0)
    for first in range(0, len(queries), QUERIES_PER_TILE):
        for start in range(0, n, tile):
            stop = min(start + tile, n)
            for q in range(first, min(first + QUERIES_PER_TILE, len(queries))):
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
    """Return contests for codes of one, two and sixteen words, with many queries and with one."""
    n, many = (3000, 40) if setting.tiny else (1_000_000, 1000)
    return {
        f"{n:,} x {n_bits:,} bits, {q:,} {'query' if q == 1 else 'queries'}, top {K}": partial(
            search, n, n_bits, q, made_for=many
        )
        for n_bits in (64, 128, 1024)
        for q in (many, 1)
    }


if __name__ == "__main__":
    main("search", contests)
