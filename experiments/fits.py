"""One fit and the runs that it serves: runs that search other rows, or that need only the first bits of its codes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from experiments.datasets import Dataset
from experiments.methods import PAPER, REAL_VALUED, build
from experiments.quick import small_params
from experiments.specs import Spec
from hashgrove.codes import pack, unpack
from hashgrove.functions import Codewords
from hashgrove.two_step import BitRecord

__all__ = ["Fit", "has_prefixes", "shared_fit"]

ROWS_PER_CHUNK = 4096  # rows encoded at a time, so that features on disk are never in memory as a whole
WARM_ROWS, WARM_COLUMNS, WARM_BITS = 300, 64, 8


def shared_fit(spec: Spec) -> Spec:
    """Return the fit that a run needs; runs for which it is the same can share it.

    >>> shared_fit(Spec("digits", "itq", n_train=9, database="seen")) == shared_fit(Spec("digits", "itq", n_train=9))
    True
    """
    if spec.method in REAL_VALUED:
        return spec
    return replace(spec, bits=0 if has_prefixes(spec) else spec.bits, database="all", classify=False)


def has_prefixes(spec: Spec) -> bool:
    """Say whether the first bits of a longer fit equal the bits of a shorter fit.

    They do for the paper's trees: a bit depends on the bits before it only, and scores are sums of integers.
    (The sums of other hash functions are rounded, and the rounding may depend on how many bits are encoded together.)
    """
    learner: Any = spec.params.get("hash_function", "trees")
    settings: Mapping[str, Any] = {"kind": learner} if isinstance(learner, str) else learner
    is_tree = settings["kind"] == "trees" and settings.get("start") is None
    others = spec.params.get("loss_length", "current") != "current" or bool(spec.params.get("generic_bits"))
    return spec.method == PAPER and is_tree and not others


class Fit:
    """A trained method. What it gives for some rows is computed once, however many runs ask for it.

    Parameters
    ----------
    spec : Spec
        Of the runs that share the fit, one with the most bits.
    data : Dataset
        With the training rows of the runs.
    seed : int
    n_jobs : int or None
    """

    def __init__(self, spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None) -> None:
        _warm_up(spec, data, n_jobs=n_jobs)
        self.bits, self._pca = spec.bits, None
        self._hasher = build(spec.method, spec.bits, spec.params, seed=seed, n_jobs=n_jobs)
        self._known: dict[tuple[str, bytes], tuple[NDArray[Any], float]] = {}
        self._ends: list[float] = []  # when each bit was learned
        if has_prefixes(spec):
            self._hasher.set_params(callbacks=(lambda _: self._ends.append(time.perf_counter()),))
        X, y = data.X_train, data.y_train
        self._started = time.perf_counter()
        if spec.pca is not None:
            self._pca = PCA(min(spec.pca, *X.shape), svd_solver="randomized", random_state=seed)
            X = self._pca.fit_transform(X.astype(np.float32))
        self._hasher.fit(X, y)
        self._ended = time.perf_counter()

    def seconds(self, bits: int) -> float:
        """Return how long it took to learn the first bits; for all bits, the whole fit."""
        return (self._ended if bits == self.bits else self._ends[bits - 1]) - self._started

    def history(self, bits: int) -> list[BitRecord]:
        """Return the record of each of the first bits; empty for methods that keep none."""
        return list(getattr(self._hasher, "history_", []))[:bits]

    def codewords(self, bits: int, y_train: NDArray[Any]) -> Codewords | None:
        """Return the first bits of the code word of each class; None for methods and supervision without code words."""
        words = getattr(self._hasher, "codewords_", None)
        book = getattr(getattr(self._hasher, "encoder_", None), "book", None)
        if words is None and book is not None:
            words = Codewords(tuple(np.unique(y_train).tolist()), pack(np.asarray(book) > 0))
        if words is None or not words.classes:
            return None
        return Codewords(words.classes, self._first(words.codes, bits))

    def codes(self, data: Dataset, rows: NDArray[Any], bits: int) -> tuple[NDArray[np.uint8], float]:
        """Return the first bits of the codes of some rows, and the seconds without the time of reading the rows.

        The seconds of fewer bits than the fit has are their share of the seconds of all bits.
        """
        codes, seconds = self._of_rows("codes", data, rows, lambda X: self._hasher.transform(X))
        return self._first(codes, bits), seconds * bits / self.bits

    def margins(self, data: Dataset, rows: NDArray[Any], bits: int) -> NDArray[Any]:
        """Return how sure the hasher is of each of the first bits of some rows."""
        return self._of_rows("margins", data, rows, lambda X: np.abs(self._hasher.decision_function(X)))[0][:, :bits]

    def _first(self, codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
        """Cut codes to the first bits; as plain arrays, since those of one fit only meet each other."""
        return np.asarray(codes) if bits == self.bits else pack(unpack(codes, n_bits=self.bits)[:, :bits])

    def _of_rows(
        self, what: str, data: Dataset, rows: NDArray[Any], function: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[NDArray[Any], float]:
        key = what, rows.tobytes()
        if key not in self._known:
            self._known[key] = self._apply(data, rows, function)
        return self._known[key]

    def _apply(
        self, data: Dataset, rows: NDArray[Any], function: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[NDArray[Any], float]:
        """Apply a function to some rows, chunk by chunk; return the results and the seconds of the function."""
        assert data.features is not None  # the experiments only name data sets with features
        parts, seconds = [], 0.0
        for start in range(0, len(rows), ROWS_PER_CHUNK):
            X = data.features[rows[start : start + ROWS_PER_CHUNK]]
            started = time.perf_counter()
            parts.append(function(X if self._pca is None else self._pca.transform(X.astype(np.float32))))
            seconds += time.perf_counter() - started
        return np.concatenate(parts), seconds


def _warm_up(spec: Spec, data: Dataset, *, n_jobs: int | None) -> None:
    """Run a small version of the method on the same types of data, so that compiling is not timed as training."""
    rows = data.train[:WARM_ROWS]
    assert data.features is not None
    X = np.ascontiguousarray(data.features[rows, :WARM_COLUMNS])
    if spec.pca is not None:
        X = X.astype(np.float32)
    number = np.arange(len(rows))
    y = (number[:, None] % np.array([2, 3, 4, 5]) == 0).astype(data.labels.dtype) if data.has_tags else number % 3
    hasher = build(spec.method, WARM_BITS, small_params(spec.method, spec.params), seed=0, n_jobs=n_jobs)
    hasher.fit(X, y)
    hasher.transform(X)
