"""Bits that say whether a row lies inside a sphere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.distances import DistancesTo

__all__ = ["Spheres"]


@dataclass(frozen=True, eq=False)
class Spheres(Encoder):
    """Scores radius^2 - ||x - centre||^2: a bit is 1 inside its sphere.

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

    centres: Annotated[NDArray[np.float64], ("bits", "features")]
    radii: Annotated[NDArray[np.float64], ("bits",)]

    @cached_property
    def _distances(self) -> DistancesTo:
        return DistancesTo(self.centres)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.square(self.radii) - self._distances.squared(X)

    def _check_values(self) -> None:
        if (self.radii < 0).any():
            raise ValueError(f"the array 'radii' must not be negative. Got {self.radii.min()}.")
