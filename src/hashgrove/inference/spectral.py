"""Spectral inference (section 3.1 of the paper): signs of the eigenvector of the smallest eigenvalue, then improved."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator

from hashgrove.inference.quadratic import BinaryQuadratic
from hashgrove.runtime.parameters import Constraint, Integer, Number, check_parameters
from hashgrove.supervision import Affinity

__all__ = ["Spectral"]


class Spectral(BaseEstimator):  # type: ignore[misc]
    """Spectral relaxation, which the paper compares with. On large data it is slower and worse than Block GraphCut.

    As in the authors' code, L-BFGS-B with the bounds [-1, 1] starts from the signs of the eigenvector, and the better
    one of the two solutions is kept.

    Parameters
    ----------
    max_iter : int, default=30
        Largest number of iterations of L-BFGS-B.
    tol : float, default=1e-3
        Relative accuracy of the eigenvalue.
    """

    constraints: ClassVar[dict[str, Constraint]] = {"max_iter": Integer(1), "tol": Number(low=0)}

    def __init__(self, *, max_iter: int = 30, tol: float = 1e-3) -> None:
        self.max_iter = max_iter
        self.tol = tol

    def prepare(self, affinity: Affinity, rng: np.random.Generator) -> None:
        """Check the parameters; nothing is shared between bits."""
        check_parameters(self)

    def solve(self, state: None, problem: BinaryQuadratic, rng: np.random.Generator) -> NDArray[np.int8]:
        """Find the values of one bit, -1 or +1 for each point."""
        A = problem.matrix()
        n = A.shape[0]
        A = A / max(1.0, abs(A).max())
        start = rng.standard_normal(n)
        if n > 2:
            eigenvector = eigsh(A, k=1, which="SA", v0=start, tol=self.tol)[1][:, 0]
        else:
            eigenvector = np.linalg.eigh(A.toarray())[1][:, 0]
        codes = [_signs(eigenvector)]

        def value_and_gradient(z: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            product = A @ z
            return float(z @ product), 2.0 * product

        relaxed = minimize(
            value_and_gradient,
            codes[0].astype(np.float64),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-1.0, 1.0)] * n,
            options={"maxiter": self.max_iter},
        ).x
        codes.append(_signs(relaxed))
        return min(codes, key=problem.objective)


def _signs(z: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.where(z > 0, 1, -1).astype(np.int8)
