"""Evaluating a whole retrieval run (MAP, precision@100, precision-recall curve), against numpy's argsort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import OURS, Contender, Contest, Setting, faster_than, main, on_one_thread, race, with_held
from hashgrove import FlatIndex, evaluate, pack
from hashgrove.codes import as_words

K = 100
N_CLASSES = 10
DEFAULT = "hashgrove, default ties"


def class_codes(n: int, n_bits: int, *, flip: float) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Make codes of ten classes: one centre per class, and each bit is wrong with probability ``flip``."""
    rng = np.random.default_rng(0)
    centres = rng.random((N_CLASSES, n_bits)) < 0.5
    y = rng.integers(N_CLASSES, size=n)
    return pack(centres[y] ^ (rng.random((n, n_bits)) < flip)), y


def by_argsort(
    codes: NDArray[np.uint8], y: NDArray[np.int64], queries: NDArray[np.uint8], y_query: NDArray[np.int64]
) -> tuple[float, float, NDArray[np.float64], NDArray[np.float64]]:
    """Compute the measures with one stable argsort per query: MAP and precision@k with ties by id, and the curve."""
    words, ranks = as_words(codes), np.arange(1, len(codes) + 1)
    n_distances = 64 * words.shape[1] + 1
    found, relevant = np.zeros(n_distances, np.int64), np.zeros(n_distances, np.int64)
    average, precision = np.empty(len(queries)), np.empty(len(queries))
    for q, query in enumerate(as_words(queries)):
        distance = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)
        same = y == y_query[q]
        hits = same[np.argsort(distance, kind="stable")]
        average[q] = (hits.cumsum()[hits] / ranks[hits]).mean()
        precision[q] = hits[:K].mean()
        found += np.bincount(distance, minlength=n_distances)
        relevant += np.bincount(distance[same], minlength=n_distances)
    hits = relevant.cumsum()
    with np.errstate(invalid="ignore"):
        return average.mean(), precision.mean(), hits / hits[-1], hits / found.cumsum()


def evaluation(n_queries: int, n: int, n_bits: int, *, peer_share: float) -> Contest:
    """Compare times; the peer evaluates a share of the queries, on which all values must be equal."""
    codes, y = class_codes(n + n_queries, n_bits, flip=0.3)
    part = slice(n, n + int(n_queries * peer_share))
    index = FlatIndex(codes[:n])
    _ = index.columns

    def ours(rows: slice, ties: str, threads: int, _: None = None) -> Any:
        return evaluate(
            index, codes[rows], y_queries=y[rows], y_database=y[:n], k=K, ties=ties, knn=None, n_jobs=threads
        )

    everything = slice(n, None)
    entries = race(
        [
            *(
                Contender(name=OURS, run=partial(ours, everything, "id", t), threads=t, note="ties by id")
                for t in (1, 2)
            ),
            *(
                Contender(name=DEFAULT, run=partial(ours, everything, "expected", t), threads=t, note="expectation")
                for t in (1, 2)
            ),
            Contender(
                name="numpy argsort",
                run=lambda _: by_argsort(codes[:n], y[:n], codes[part], y[part]),
                share=peer_share,
                note=f"ties by id; timed on {peer_share:.0%} of the queries",
            ),
        ],
        rounds=3,
    )
    report = ours(part, "id", 2)
    mean, precision, recall, radius_precision = entries[-1].answer
    np.testing.assert_allclose([report.map, report.precision_at_k], [mean, precision], rtol=1e-12)
    np.testing.assert_allclose(report.recall, recall[report.radii], rtol=1e-12)
    np.testing.assert_allclose(report.precision, radius_precision[report.radii], rtol=1e-12)
    entries[-1].agreement = "equal to 12 digits"
    targets = [
        faster_than(on_one_thread(entries), entries[-1].name, factor, ours=name, how=f", {rule}, one thread")
        for name, rule, factor in ((OURS, "ties by id", 20), (DEFAULT, "expectation over ties", 60))
    ]
    return Contest(entries, targets, {"MAP": round(entries[0].answer.map, 4)})


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return the one contest of this bench, also with kernels held to AVX2."""
    n_queries, n, share = (40, 500, 0.5) if setting.tiny else (10_000, 60_000, 0.1)
    found = {f"{n_queries:,} queries x {n:,} codes x 64 bits": partial(evaluation, n_queries, n, 64, peer_share=share)}
    return with_held(found, () if setting.tiny else found, __file__, setting)


if __name__ == "__main__":
    main("evaluation", contests)
