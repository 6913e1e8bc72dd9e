"""Bits that say on which side of a hyperplane a row, or its direction, lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.unit_rows import unit_products

__all__ = ["UNIT", "Linear"]

UNIT = np.array(1, np.uint8)  # the value of `Linear.unit` for rows that are scaled to length 1


@dataclass(frozen=True, eq=False)
class Linear(Encoder):
    """One hyperplane per bit: scores X W' + b in the type of W, or X W' / ||X|| + b in float32.

    Parameters
    ----------
    weights : float64 or float32 array of shape (n_bits, n_features)
    bias : float64 or float32 array of shape (n_bits,)
    unit : uint8 array of shape (), default=0
        1: rows are scaled to length 1 first and must be dense; 0: rows are taken as they are and may be sparse.

    Examples
    --------
    >>> encoder = Linear(weights=np.array([[1.0, -1.0]]), bias=np.array([0.5]))
    >>> encoder.scores([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.5], [-0.5]]
    >>> encoder = Linear(weights=np.array([[1.0, 0.0]], np.float32), bias=np.array([-0.5], np.float32), unit=UNIT)
    >>> encoder.scores([[3.0, 4.0], [300.0, 400.0]]).round(3).tolist()
    [[0.10000000149011612], [0.10000000149011612]]
    """

    weights: Annotated[NDArray[np.float64 | np.float32], ("bits", "features")]
    bias: Annotated[NDArray[np.float64 | np.float32], ("bits",)]
    unit: Annotated[NDArray[np.uint8], ()] = field(default_factory=lambda: np.array(0, np.uint8))

    @property
    def accepts_sparse(self) -> bool:
        """Whether rows may be sparse: only if they are not scaled."""
        return not self.unit

    @cached_property
    def _weights_by_feature(self) -> NDArray[Any]:
        """W' in contiguous memory: scipy would otherwise copy it for every chunk of sparse rows."""
        return np.ascontiguousarray(self.weights.T)

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.unit:
            return unit_products(X, self.weights.astype(np.float32, copy=False)) + self.bias
        weights = self._weights_by_feature if issparse(X) else self.weights.T
        return X.astype(self.weights.dtype, copy=False) @ weights + self.bias

    def scaled(self, factor: float) -> Linear:
        """The encoder whose scores are ``factor`` times these."""
        exact = self.weights.dtype.type(factor)
        return replace(self, weights=self.weights * exact, bias=self.bias * exact)

    @classmethod
    def constant(cls, sign: float, *, n_features: int) -> Linear:
        """One bit that is the same for every row: 1 if ``sign`` is positive, otherwise 0.

        >>> Linear.constant(-1, n_features=2).encode([[3.0, 4.0]]).tolist()
        [[0]]
        """
        return cls(weights=np.zeros((1, n_features)), bias=np.array([1.0 if sign > 0 else -1.0]))

    def _check_values(self) -> None:
        if self.unit > 1:
            raise ValueError(f"the array 'unit' must be 0 or 1. Got {self.unit}.")
