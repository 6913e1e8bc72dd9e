"""Bits that are products of functions of one direction each, the functions given by their values on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Tabulated"]


@dataclass(frozen=True, eq=False)
class Tabulated(Encoder):
    """Scores prod_f g_fb(w_fb x): for each bit b, ``n_factors`` piecewise linear functions, multiplied.

    A function has its knots at equal steps from ``low`` to ``high`` and is constant outside. A bit with fewer
    factors than another one has functions that are 1 everywhere in their place.

    Parameters
    ----------
    directions : float64 array of shape (n_factors, n_bits, n_features)
    low, high : float64 array of shape (n_factors, n_bits)
    values : float64 array of shape (n_factors, n_bits, n_knots)
        Of each function at its knots, 2 at least.

    Examples
    --------
    >>> encoder = Tabulated(
    ...     directions=np.ones((1, 1, 1)), low=np.zeros((1, 1)), high=np.ones((1, 1)), values=np.array([[[-1.0, 3.0]]])
    ... )
    >>> encoder.scores([[0.0], [0.5], [7.0]]).tolist()
    [[-1.0], [1.0], [3.0]]
    """

    directions: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: NDArray[np.float64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.directions.shape[1]

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.directions.shape[2]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        X = X.astype(np.float64, copy=False)
        scores = np.ones((len(X), self.n_bits))
        bits, last = np.arange(self.n_bits), self.values.shape[2] - 1
        for directions, low, high, values in zip(self.directions, self.low, self.high, self.values, strict=True):
            position = (np.clip(X @ directions.T, low, high) - low) / (high - low) * last
            knot = np.minimum(position.astype(np.intp), last - 1)
            left = values[bits, knot]
            scores *= left + (position - knot) * (values[bits, knot + 1] - left)
        return scores

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits; the functions must have the same number of knots."""
        knots = sorted({encoder.values.shape[2] for encoder in encoders})
        if len(knots) > 1:
            raise ValueError(f"Tabulated encoders must have the same number of knots. Got {knots}.")
        n_factors = max(len(encoder.low) for encoder in encoders)

        def joined(name: str, fill: float) -> NDArray[np.float64]:
            padded = []
            for encoder in encoders:
                array = getattr(encoder, name)
                more = np.full((n_factors - len(array), *array.shape[1:]), fill)
                padded.append(np.concatenate([array, more]))
            return np.concatenate(padded, axis=1)

        return cls(
            directions=joined("directions", 0.0),
            low=joined("low", 0.0),
            high=joined("high", 1.0),
            values=joined("values", 1.0),
        )

    def _check(self) -> None:
        n_factors, n_bits, n_features = self.directions.shape if self.directions.ndim == 3 else (0, 0, 0)
        n_knots = self.values.shape[2] if self.values.ndim == 3 else 0
        self._check_floats(
            {
                "directions": (n_factors, n_bits, n_features),
                "low": (n_factors, n_bits),
                "high": (n_factors, n_bits),
                "values": (n_factors, n_bits, n_knots),
            }
        )
        if n_knots < 2:
            raise ValueError(f"the array 'values' must have 2 knots at least. Got {n_knots}.")
        if (self.low >= self.high).any():
            raise ValueError("the array 'low' must be below the array 'high' everywhere.")
