"""Bits that say on which side of a hyperplane a row lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from hashgrove.encoders.base import Encoder

__all__ = ["Linear"]


@dataclass(frozen=True, eq=False)
class Linear(Encoder):
    """One hyperplane per bit: scores = X W' + b, in float64. Rows may be sparse.

    Parameters
    ----------
    weights : float64 array of shape (n_bits, n_features)
    bias : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Linear(weights=np.array([[1.0, -1.0]]), bias=np.array([0.5]))
    >>> encoder.scores([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.5], [-0.5]]
    """

    accepts_sparse: ClassVar[bool] = True

    weights: Annotated[NDArray[np.float64], ("bits", "features")]
    bias: Annotated[NDArray[np.float64], ("bits",)]

    @cached_property
    def _weights_by_feature(self) -> NDArray[np.float64]:
        """W' in contiguous memory: scipy would otherwise copy it for every chunk of sparse rows."""
        return np.ascontiguousarray(self.weights.T)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        weights = self._weights_by_feature if issparse(X) else self.weights.T
        return X.astype(np.float64, copy=False) @ weights + self.bias

    @classmethod
    def constant(cls, sign: float, *, n_features: int) -> Linear:
        """One bit that is the same for every row: 1 if ``sign`` is positive, otherwise 0.

        >>> Linear.constant(-1, n_features=2).encode([[3.0, 4.0]]).tolist()
        [[0]]
        """
        return cls(weights=np.zeros((1, n_features)), bias=np.array([1.0 if sign > 0 else -1.0]))
