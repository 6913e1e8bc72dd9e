"""Step 2 with support vector machines (section 4 of the paper): `LinearSVM`, and `KernelSVM` with the RBF kernel.

Both scale each feature to [0, 1], as the authors' release does for every SVM. Both ignore the weights of the examples,
as its linear SVM does. A learner that is stopped by
``max_iter`` gives no warning: a hash function need not be optimal, and the next bits are fitted to the codes that it
really gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from hashgrove.encoders import Encoder, Kernel, Linear
from hashgrove.functions.base import bit_of, is_constant
from hashgrove.numerics.eigen import whitening
from hashgrove.numerics.sampling import sample_rows
from hashgrove.numerics.squared_hinge import SquaredHinge
from hashgrove.runtime.parameters import Constraint, Integer, Number, ParameterError, check_parameters
from hashgrove.supervision import Supervision

__all__ = ["KernelSVM", "LinearSVM"]

GAMMA_NEIGHBOURS = 50
GAMMA_ROWS = 1000  # number of rows whose neighbours, among all rows, determine gamma
EIGENVALUE_FLOOR = 1e-8  # share of the largest eigenvalue; directions below it are rounding error


@dataclass(frozen=True, eq=False)
class _LinearData:
    """The training rows, and the solver, which has them scaled to [0, 1]."""

    X: Any
    solver: SquaredHinge
    n_jobs: int | None


class LinearSVM(BaseEstimator):  # type: ignore[misc]
    """Hyperplanes with the squared hinge loss on features scaled to [0, 1]: LIBLINEAR's problem, by exact Newton steps.

    The scaling becomes part of the hyperplane, so the encoder takes unscaled features. Weights of examples are ignored,
    as in the authors' release. `hashgrove.numerics.squared_hinge` describes the method and its cost.

    Parameters
    ----------
    C : float, optional
        Penalty of an error; ``None`` means 1e6 / n, the authors' choice.
    max_iter : int
        Largest number of Newton steps per bit. A bit that reaches it is used as it is.
    tol : float
        A bit is finished when the gradient has fallen to this share of its first value.

    Examples
    --------
    >>> X, rng = np.array([[0.0], [1.0], [4.0], [5.0]]), np.random.default_rng(0)
    >>> learner = LinearSVM()
    >>> encoder, bit = learner.learn(learner.prepare(X, rng), np.array([-1, -1, 1, 1], np.int8), None, rng)
    >>> bit.tolist()
    [-1, -1, 1, 1]
    """

    accepts_sparse: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "C": Number(above=0, or_none=True),
        "max_iter": Integer(1),
        "tol": Number(above=0),
    }

    def __init__(self, *, C: float | None = None, max_iter: int = 1000, tol: float = 1e-4) -> None:
        self.C = C
        self.max_iter = max_iter
        self.tol = tol

    def prepare(
        self,
        X: NDArray[Any],
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _LinearData:
        """Check the parameters and scale the features, once for all bits."""
        check_parameters(self)
        return _LinearData(X, SquaredHinge(X, scale=True, n_jobs=n_jobs), n_jobs)

    def learn(
        self,
        data: _LinearData,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Linear, NDArray[np.int8]]:
        """Learn one bit; returns the hyperplane, and the values that it gives for the training rows."""
        if is_constant(z):
            encoder = Linear.constant(z[0], n_features=data.X.shape[1])
        else:
            C = 1e6 / len(z) if self.C is None else self.C
            weight, intercept = data.solver.solve(z, C=C, max_iter=self.max_iter, tol=self.tol)
            encoder = Linear(weights=weight[None], bias=np.array([intercept]))
        return encoder, bit_of(encoder, data.X, data.n_jobs)


@dataclass(frozen=True, eq=False)
class _KernelData:
    """The training rows as given and scaled, and the candidates for support vectors, scaled.

    ``shared`` are the arrays that the encoders of all bits have in common. With a budget of support vectors there are
    also the Nystroem map, and the solver, which has the mapped rows.
    """

    X: NDArray[Any]
    scaled: NDArray[np.float64]
    shared: Mapping[str, NDArray[np.float64]]
    nystroem: NDArray[np.float64] | None
    solver: SquaredHinge | None
    n_jobs: int | None

    @property
    def gamma(self) -> float:
        return float(self.shared["gamma"])

    @property
    def support(self) -> NDArray[np.float64]:
        return self.shared["support"]


class KernelSVM(BaseEstimator):  # type: ignore[misc]
    """Kernel machines with the Gaussian (RBF) kernel: exact, by LIBSVM, or with a budget of support vectors.

    Features are scaled to [0, 1] first; the scaling is part of the encoder, which takes unscaled features. Weights of
    examples are ignored, as in `LinearSVM`.

    Parameters
    ----------
    C : float, optional
        Penalty of an error; ``None`` means 1e5 / n, the authors' choice.
    gamma : float, optional
        The kernel of scaled rows is exp(-gamma ||x - s||^2); ``None`` means 1 / (mean squared distance to the 50
        nearest neighbours), over at most 1000 random rows. A row is its own first neighbour, as in the release.
    n_support : int, optional
        ``None``: LIBSVM finds the support vectors. Its time and their number grow with n; beyond about 10,000 rows
        learning and encoding are slow. A number is a budget: this many random training rows serve as support vectors of
        all bits, and each bit is a linear SVM with squared hinge loss in their Nystroem feature space.
    max_iter : int
        Largest number of iterations per bit (with a budget: of Newton steps), or -1 for no limit. A bit that reaches it
        is used as it is.
    tol : float, optional
        Tolerance of the stopping criterion; ``None`` means 1e-3 for LIBSVM, and 1e-4, as in `LinearSVM`, with a budget.

    Examples
    --------
    >>> X, rng = np.array([[0.0], [1.0], [4.0], [5.0]]), np.random.default_rng(0)
    >>> learner = KernelSVM(gamma=1.0)
    >>> encoder, bit = learner.learn(learner.prepare(X, rng), np.array([-1, 1, 1, -1], np.int8), None, rng)
    >>> bit.tolist()
    [-1, 1, 1, -1]
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "C": Number(above=0, or_none=True),
        "gamma": Number(above=0, or_none=True),
        "n_support": Integer(1, or_none=True),
        "max_iter": Integer(-1),
        "tol": Number(above=0, or_none=True),
    }

    def __init__(
        self,
        *,
        C: float | None = None,
        gamma: float | None = None,
        n_support: int | None = None,
        max_iter: int = -1,
        tol: float | None = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.n_support = n_support
        self.max_iter = max_iter
        self.tol = tol

    def prepare(
        self,
        X: NDArray[Any],
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _KernelData:
        """Choose gamma and, with a budget, draw the support vectors and map all rows, once for all bits."""
        check_parameters(self)
        if self.max_iter == 0:
            Integer(1).check("max_iter", self.max_iter)
        before = None if earlier is None else earlier.part(Kernel)
        low, scale = _scaling(X) if before is None else (before.low, before.scale)
        scaled = (X - low) * scale
        gamma = np.array(self._gamma(scaled, rng, before, n_jobs), np.float64)
        shared = {"support": scaled, "gamma": gamma, "low": low, "scale": scale}
        if self.n_support is None:
            return _KernelData(X, scaled, shared, None, None, n_jobs)
        rows = sample_rows(len(X), self.n_support, rng)
        shared["support"] = scaled[rows]
        features = Kernel(**shared, weights=np.eye(len(rows)), bias=np.zeros(len(rows)))
        nystroem = whitening(features.scores(X[rows], n_jobs=n_jobs), floor=EIGENVALUE_FLOOR)
        mapping = Kernel(**shared, weights=nystroem.T, bias=np.zeros(nystroem.shape[1]))
        return _KernelData(X, scaled, shared, nystroem, SquaredHinge(mapping.scores(X, n_jobs=n_jobs)), n_jobs)

    def _gamma(
        self, scaled: NDArray[np.float64], rng: np.random.Generator, earlier: Kernel | None, n_jobs: int | None
    ) -> float:
        """The kernel's width; a warm start must keep that of the earlier bits."""
        gamma = _neighbour_gamma(scaled, rng, n_jobs) if self.gamma is None else float(self.gamma)
        if earlier is None:
            return gamma
        if self.gamma not in (None, float(earlier.gamma)):
            raise ParameterError(
                "gamma",
                f"must stay {float(earlier.gamma)!r}, as for the earlier bits, or None, with "
                f"warm_start=True. Got {self.gamma!r} instead.",
            )
        return float(earlier.gamma)

    def learn(
        self,
        data: _KernelData,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Kernel, NDArray[np.int8]]:
        """Learn one bit; returns the kernel machine, and the values that it gives for the training rows."""
        C = 1e5 / len(z) if self.C is None else self.C
        weight, intercept = np.zeros(len(data.support)), float(z[0])
        if is_constant(z):
            pass
        elif data.nystroem is None or data.solver is None:
            from sklearn.svm import SVC  # takes a fifth of the import of hashgrove.FastHash, which rarely needs it

            svm = SVC(C=C, gamma=data.gamma, max_iter=self.max_iter, tol=self.tol or 1e-3, cache_size=500)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                svm.fit(data.scaled, z)
            weight[svm.support_] = svm.dual_coef_[0]
            intercept = svm.intercept_[0]
        else:
            limit = 1000 if self.max_iter == -1 else self.max_iter
            coefficients, intercept = data.solver.solve(z, C=C, max_iter=limit, tol=self.tol or 1e-4)
            weight = data.nystroem @ coefficients
        encoder = Kernel(**data.shared, weights=weight[None], bias=np.array([intercept]))
        return encoder, bit_of(encoder, data.X, data.n_jobs)


def _scaling(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least value of each feature, and 1 / its range (0 if it is constant)."""
    low = X.min(axis=0).astype(np.float64)
    span = X.max(axis=0) - low
    return low, np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)


def _neighbour_gamma(X: NDArray[np.float64], rng: np.random.Generator, n_jobs: int | None) -> float:
    """1 / (mean squared distance to the nearest neighbours), over a sample of the rows."""
    from sklearn.neighbors import NearestNeighbors  # takes long, as above

    rows = sample_rows(len(X), GAMMA_ROWS, rng)
    n_neighbors = min(GAMMA_NEIGHBOURS, len(X))
    neighbours = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute", n_jobs=n_jobs).fit(X)
    distances = neighbours.kneighbors(X[rows])[0]
    distances[:, 0] = 0.0  # the nearest neighbour is the row itself
    mean = float(np.mean(distances**2))
    return 1.0 / mean if mean > 0 else 1.0
