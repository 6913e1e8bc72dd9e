"""Bits that are products of functions of one direction each; a table gives the values of each function on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Tabulated"]

PADDING = {"directions": 0.0, "low": 0.0, "high": 1.0, "values": 1.0}  # a factor that is 1 everywhere


@dataclass(frozen=True, eq=False)
class Tabulated(Encoder):
    """Scores prod_f g_fb(w_fb x): for each bit b, the product of ``n_factors`` piecewise linear functions.

    A function has its knots at equal steps from ``low`` to ``high`` and is constant outside of this interval. A bit
    that needs fewer factors than another one is filled up with functions that are 1 everywhere.

    Parameters
    ----------
    directions : float64 array of shape (n_factors, n_bits, n_features)
    low, high : float64 array of shape (n_factors, n_bits)
    values : float64 array of shape (n_factors, n_bits, n_knots)
        The values of each function at its knots; there must be at least two knots.

    Examples
    --------
    >>> encoder = Tabulated(
    ...     directions=np.ones((1, 1, 1)), low=np.zeros((1, 1)), high=np.ones((1, 1)), values=np.array([[[-1.0, 3.0]]])
    ... )
    >>> encoder.scores([[0.0], [0.5], [7.0]]).tolist()
    [[-1.0], [1.0], [3.0]]
    """

    directions: Annotated[NDArray[np.float64], ("factors", "bits", "features")]
    low: Annotated[NDArray[np.float64], ("factors", "bits")]
    high: Annotated[NDArray[np.float64], ("factors", "bits")]
    values: Annotated[NDArray[np.float64], ("factors", "bits", "knots")]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        X = X.astype(np.float64, copy=False)
        scores = np.ones((len(X), self.n_bits))
        bits, last = np.arange(self.n_bits), self.values.shape[2] - 1
        for directions, low, high, values in zip(self.directions, self.low, self.high, self.values, strict=True):
            position = (np.clip(X @ directions.T, low, high) - low) / (high - low) * last
            # fmin ignores NaN, which the sums of huge products can give: no knot is outside of the table
            knot = np.fmin(position, last - 1).astype(np.intp)
            left = values[bits, knot]
            scores *= left + (position - knot) * (values[bits, knot + 1] - left)
        return scores

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits, with as many factors as the longest; all must have the same number of knots."""
        n_factors = max(len(encoder.low) for encoder in encoders)
        return super().concatenate([encoder._padded(n_factors) for encoder in encoders])

    def _padded(self, n_factors: int) -> Self:
        padded = {}
        for name, array in self.arrays().items():
            more = np.full((n_factors - len(array), *array.shape[1:]), PADDING[name])
            padded[name] = np.concatenate([array, more])
        return type(self)(**padded)

    def _check_values(self) -> None:
        if self.values.shape[2] < 2:
            raise ValueError(f"the array 'values' must have at least 2 knots. Got {self.values.shape[2]}.")
        if (self.low >= self.high).any():
            raise ValueError("the array 'low' must be below the array 'high' everywhere.")
        with np.errstate(over="ignore"):
            if not np.isfinite(self.high - self.low).all():
                raise ValueError("the arrays 'low' and 'high' must have a finite difference. Got infinity.")
