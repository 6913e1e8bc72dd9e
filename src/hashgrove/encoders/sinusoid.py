"""Bits that are signs of a wave along a direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Sinusoid"]


@dataclass(frozen=True, eq=False)
class Sinusoid(Encoder):
    """Scores cos(X W' + phase): a bit changes with every half wave along its direction.

    Parameters
    ----------
    weights : float64 array of shape (n_bits, n_features)
        Directions, in radians per unit of a feature.
    phase : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Sinusoid(weights=np.array([[np.pi]]), phase=np.zeros(1))
    >>> encoder.encode([[0.0], [1.0], [2.0]]).tolist()
    [[1], [0], [1]]
    """

    weights: Annotated[NDArray[np.float64], ("bits", "features")]
    phase: Annotated[NDArray[np.float64], ("bits",)]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.cos(X.astype(np.float64, copy=False) @ self.weights.T + self.phase)
