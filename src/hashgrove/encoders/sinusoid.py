"""Bits that are signs of waves along a direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

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
        Directions, in radians for each unit of a feature.
    phase : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Sinusoid(weights=np.array([[np.pi]]), phase=np.zeros(1))
    >>> encoder.encode([[0.0], [1.0], [2.0]]).tolist()
    [[1], [0], [1]]
    """

    weights: NDArray[np.float64]
    phase: NDArray[np.float64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.weights.shape[1]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.cos(X.astype(np.float64, copy=False) @ self.weights.T + self.phase)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits."""
        return cls(
            weights=np.concatenate([encoder.weights for encoder in encoders]),
            phase=np.concatenate([encoder.phase for encoder in encoders]),
        )

    def _check(self) -> None:
        n_bits, n_features = self.weights.shape if self.weights.ndim == 2 else (0, 0)
        self._check_floats({"weights": (n_bits, n_features), "phase": (n_bits,)})
