"""Exact search by tables (`MultiIndex`) against our own scan, beside the indexes of faiss that are not exact."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import OURS, Contender, Contest, Setting, Target, main, race, timed, with_held
from hashgrove import FlatIndex, MultiIndex
from hashgrove.index import build_index
from learned_codes import FILE, learned_codes

SCAN = "our scan"
N_QUERIES = 300
FAISS = {
    "faiss Hash": lambda faiss, d: faiss.IndexBinaryHash(d, 24),
    "faiss MultiHash": lambda faiss, d: faiss.IndexBinaryMultiHash(d, 3, d // 3),  # minutes on codes with duplicates
    "faiss IVF": lambda faiss, d: faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(d), d, 1024),
    "faiss HNSW": lambda faiss, d: faiss.IndexBinaryHNSW(d, 16),
}


@lru_cache(maxsize=1)
def learned(folder: Path, n: int, n_bits: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes of a trained model and queries that it was not trained on; see `learned_codes`."""
    return learned_codes(folder, n, n_bits, n_queries=N_QUERIES)


@lru_cache(maxsize=1)
def uniform(n: int, n_bits: int) -> NDArray[np.uint8]:
    """Make uniform codes."""
    return np.random.default_rng(0).integers(256, size=(n, n_bits // 8), dtype=np.uint8)


def near_duplicates(codes: NDArray[np.uint8], n_flips: int) -> NDArray[np.uint8]:
    """Make queries from items, with ``n_flips`` random bits flipped."""
    rng = np.random.default_rng(1)
    queries = codes[rng.integers(len(codes), size=N_QUERIES)].copy()
    for query in queries:
        for bit in rng.choice(8 * codes.shape[1], n_flips, replace=False):
            query[bit // 8] ^= 1 << (bit % 8)
    return queries


def contest(
    make: Callable[[], tuple[NDArray[np.uint8], NDArray[np.uint8]]],
    *,
    k: int,
    radius: int | None = None,
    target: float | None = None,
    peers: tuple[str, ...] = (),
    at_once: int = N_QUERIES,
) -> Contest:
    """Search with one thread, ``at_once`` queries per call.

    Our two must find the same; the others' recall of the true distances is stated.
    """
    codes, queries = make()

    def ours(index: FlatIndex) -> Any:
        if radius is not None:
            return index.search_radius(queries, radius, n_jobs=1)
        parts = [index.search(queries[a : a + at_once], k, n_jobs=1) for a in range(0, len(queries), at_once)]
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def multi() -> MultiIndex:
        index = MultiIndex(codes)
        index.prepare()
        return index

    def theirs(index: Any) -> Any:
        import faiss

        faiss.omp_set_num_threads(1)
        return index.search(queries, k)

    def train(name: str) -> Any:
        import faiss

        faiss.omp_set_num_threads(2)
        index = FAISS[name](faiss, 8 * codes.shape[1])
        if name == "faiss IVF":
            index.train(codes[:: max(1, len(codes) // 100_000)])
            index.nprobe = 32
        elif name == "faiss Hash":
            index.nflip = 2
        elif name == "faiss MultiHash":
            index.nflip = 1
        index.add(codes)
        return index

    contenders = [
        Contender(name=OURS, run=ours, prepare=multi),
        Contender(name=SCAN, run=ours, prepare=lambda: FlatIndex(codes)),
        *(Contender(name=name, run=theirs, prepare=partial(train, name), needs="faiss") for name in peers),
    ]
    entries = race(contenders, rounds=5)
    truth = entries[1]
    for one, two in zip(entries[0].answer, truth.answer, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    entries[0].agreement = "equal distances and ids"
    for entry in entries[2:]:
        entry.agreement = f"recall {recall(entry.answer, truth.answer):.3f}, not exact"
    faster = truth.seconds / entries[0].seconds
    targets = [] if target is None else [Target(f"at least {target:g}x our scan", target, faster)]
    chosen = build_index(codes, k=k, radius=radius, queries=queries)
    if target is None and type(chosen) is MultiIndex:
        targets = [Target("where it is chosen, at most 1.2x the time of our scan", 1.2, 1 / faster, at_most=True)]
    index, building = timed(multi)
    tables = index._prepared
    facts: dict[str, Any] = {
        "per query, tables": f"{entries[0].seconds / len(queries) * 1e3:.4f} ms",
        "per query, scan": f"{truth.seconds / len(queries) * 1e3:.4f} ms, {faster:.1f}x",
        "`build_index` chooses": type(chosen).__name__,
    }
    if tables is not None:
        with tempfile.TemporaryDirectory() as place:
            index.save(f"{place}/index.hgi")
            _, mapping = timed(MultiIndex.load(f"{place}/index.hgi").prepare)
        scans = truth.seconds / len(queries)
        facts["to build"] = f"{building:.2f} s with the index, as long as {building / scans:,.0f} queries by a scan"
        facts["to map and verify"] = f"{mapping:.2f} s with the codes, as long as {mapping / scans:,.0f} queries"
        facts["distinct codes"] = f"{tables.tables.n_distinct:,} of {len(codes):,} items"
        facts["memory of the tables"] = f"{tables.tables.nbytes / 1e6:.0f} MB in {len(tables.tables.parts)} tables"
    return Contest(entries, targets, facts)


def recall(found: Sequence[Any], truth: Sequence[Any]) -> float:
    """The share of the true results that were found; at equal distances any item counts. Both: distances and ids."""
    (distances, ids), (expected, _) = found, truth
    last = expected[:, -1:]
    return float((np.asarray(distances) <= last)[np.asarray(ids) >= 0].sum() / expected.size)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests on codes of a trained model, on near-duplicates among uniform codes, and on far neighbours."""
    n, million = (70_000, 70_000) if setting.tiny else (10_000_000, 1_000_000)
    some = tuple(name for name in FAISS if name != "faiss HNSW")
    fast = tuple(name for name in some if name != "faiss MultiHash")  # where codes have duplicates

    def random_queries(n_bits: int) -> NDArray[np.uint8]:
        return np.random.default_rng(2).integers(256, size=(N_QUERIES, n_bits // 8), dtype=np.uint8)

    found: dict[str, Callable[[], Contest]] = {
        f"{n:,} uniform x 64 bits, k = 1, 3 bits from an item": partial(
            contest, lambda: (uniform(n, 64), near_duplicates(uniform(n, 64), 3)), k=1, target=20, peers=some
        ),
        f"{n:,} uniform x 64 bits, radius 4": partial(
            contest, lambda: (uniform(n, 64), near_duplicates(uniform(n, 64), 3)), k=1, radius=4, target=20
        ),
        f"{n:,} uniform x 64 bits, k = 10, far neighbours": partial(
            contest, lambda: (uniform(n, 64), random_queries(64)), k=10
        ),
        f"{million:,} uniform x 128 bits, k = 1, 3 bits from an item": partial(
            contest, lambda: (uniform(million, 128), near_duplicates(uniform(million, 128), 3)), k=1
        ),
        **{
            f"{million:,} uniform x {n_bits} bits, k = 1, {flips} bits from an item, {at_once} at once": partial(
                contest,
                lambda n_bits=n_bits, flips=flips: (
                    uniform(million, n_bits),
                    near_duplicates(uniform(million, n_bits), flips),
                ),
                k=1,
                at_once=at_once,
            )
            for n_bits, distances in ((64, (5, 6, 8, 9)), (128, (11, 12, 14, 18)))  # on both sides of the border
            for flips in distances
            for at_once in (1, N_QUERIES)
        },
        f"{million:,} uniform x 64 bits, k = 1, 3 bits from an item, graph": partial(
            contest,
            lambda: (uniform(million, 64), near_duplicates(uniform(million, 64), 3)),
            k=1,
            peers=("faiss HNSW",),
        ),
    }
    near = [name for name in found if "3 bits from an item" in name and "graph" not in name and not setting.tiny]
    found = with_held(found, near, __file__, setting)
    folder = setting.data.parent if setting.data else None
    if folder is None or not (folder / FILE).exists():
        return found
    for size, k in ((n, 10), (n, 100), (million, 10), (100_000, 10)):
        found[f"{size:,} learned x 64 bits, k = {k}"] = partial(
            contest,
            lambda size=size: (learned(folder, n, 64)[0][:size], learned(folder, n, 64)[1]),
            k=k,
            target=5 if (size, k) == (n, 10) else None,
            peers={million: fast, 100_000: ("faiss HNSW",)}.get(size, ()) if k == 10 else (),
        )
    return found


if __name__ == "__main__":
    main("multi_index", contests)
