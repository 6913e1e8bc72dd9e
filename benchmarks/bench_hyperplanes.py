"""A linear SVM for one bit on thousands of features, with the authors' C: LIBLINEAR, and our own exact Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bench_training import noisy_labels
from contest import OURS, Contender, Contest, Setting, faster_than, main, race, with_held
from hashgrove.numerics import squared_hinge
from hashgrove.numerics.squared_hinge import SquaredHinge

LIBLINEAR = "LIBLINEAR"
TOLERANCE = 1e-4  # of our gradient
# LIBLINEAR measures its own tolerance; where it ends is in the column "agreement"
CLOSE, OF_THE_RELEASE = 1e-3, 1e-2  # the latter is its default, which the authors' release uses


def ours(X: NDArray[np.uint8], z: Any, C: float, *, name: str, largest_matrix: int) -> Contender:
    """Return our solver; `prepare` computes what all bits share."""

    def solve(rows: SquaredHinge, max_iter: int = 1000) -> Any:
        before, squared_hinge.MAX_MATRIX = squared_hinge.MAX_MATRIX, largest_matrix
        try:
            return rows.solve(z, C=C, tol=TOLERANCE, max_iter=max_iter)
        finally:
            squared_hinge.MAX_MATRIX = before

    def prepare() -> SquaredHinge:
        rows = SquaredHinge(X, n_jobs=1)
        solve(rows, max_iter=1)
        return rows

    return Contender(name=name, prepare=prepare, run=solve)


def liblinear(X: NDArray[np.uint8], z: Any, C: float, *, name: str, tolerance: float) -> Contender:
    """Return the primal solver of LIBLINEAR, for the same objective."""
    from sklearn.svm import LinearSVC

    def run(rows: Any) -> Any:
        with threadpool_limits(1):
            svm = LinearSVC(C=C, dual=False, tol=tolerance, max_iter=1000).fit(rows, z)
        return svm.coef_[0], svm.intercept_[0]

    return Contender(name=name, prepare=lambda: X.astype(np.float64), run=run)


def one_bit(n: int, n_features: int, factor: float | None) -> Contest:
    """Learn one bit; "agreement" is the objective that was reached, times ours."""
    X, z = (array[:n] for array in noisy_labels(n, n_features))
    X = X.astype(np.uint8)
    C = 1e6 / n / 255**2  # as for features in [0, 1]
    contenders = [
        ours(X, z, C, name=OURS, largest_matrix=0),
        ours(X, z, C, name="exact Newton steps", largest_matrix=n_features),
        liblinear(X, z, C, name=LIBLINEAR, tolerance=CLOSE),
        liblinear(X, z, C, name=f"{LIBLINEAR}, tolerance of the release", tolerance=OF_THE_RELEASE),
    ]
    entries = race(contenders)
    reached = [objective(X, z, C, *entry.answer) for entry in entries]
    for entry, value in zip(entries, reached, strict=True):
        entry.agreement = f"objective {value / reached[0]:.5f}"
    return Contest(entries, targets=[] if factor is None else [faster_than(entries, LIBLINEAR, factor)])


def objective(X: NDArray[np.uint8], z: Any, C: float, weights: Any, intercept: float) -> float:
    """Return what all of them minimise."""
    slack = np.maximum(1 - z * (X @ weights + intercept), 0)
    return float((weights @ weights + intercept**2) / 2 + C * slack @ slack)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return one contest per size."""
    sizes = [(200, 20, None)] if setting.tiny else [(20_000, 6_000, 5.0)]
    found = {f"1 bit, {n:,} x {d:,} uint8 features": partial(one_bit, n, d, factor) for n, d, factor in sizes}
    return with_held(found, () if setting.tiny else found, __file__, setting)


if __name__ == "__main__":
    main("hyperplanes", contests)
