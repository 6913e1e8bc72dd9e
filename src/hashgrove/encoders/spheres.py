"""Bits that are insides of spheres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.distances import DistancesTo

__all__ = ["Spheres"]


@dataclass(frozen=True, eq=False)
class Spheres(Encoder):
    """Scores radius^2 - ||x - centre||^2: a bit is one inside its sphere.

    Parameters
    ----------
    centres : float64 array of shape (n_bits, n_features)
    radii : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Spheres(centres=np.array([[0.0, 0.0]]), radii=np.array([2.0]))
    >>> encoder.scores([[0.0, 1.0], [3.0, 0.0]]).tolist()
    [[3.0], [-5.0]]
    """

    centres: NDArray[np.float64]
    radii: NDArray[np.float64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.centres)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.centres.shape[1]

    @cached_property
    def _points(self) -> DistancesTo:
        return DistancesTo(self.centres)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.square(self.radii) - self._points.squared(X)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits."""
        return cls(
            centres=np.concatenate([encoder.centres for encoder in encoders]),
            radii=np.concatenate([encoder.radii for encoder in encoders]),
        )

    def _check(self) -> None:
        n_bits, n_features = self.centres.shape if self.centres.ndim == 2 else (0, 0)
        self._check_floats({"centres": (n_bits, n_features), "radii": (n_bits,)})
        if (self.radii < 0).any():
            raise ValueError(f"the array 'radii' must not be negative. Got {self.radii.min()}.")
