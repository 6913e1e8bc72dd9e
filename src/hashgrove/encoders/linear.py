"""Bits that are sides of hyperplanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Linear"]


@dataclass(frozen=True, eq=False)
class Linear(Encoder):
    """One hyperplane a bit: scores = X W' + b, in float64.

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

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.weights.shape[1]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return X.astype(np.float64, copy=False) @ self.weights.T + self.bias

    @classmethod
    def constant(cls, sign: float, *, n_features: int) -> Linear:
        """One bit that is the same for every row: 1 where ``sign`` is positive.

        >>> Linear.constant(-1, n_features=2).encode([[3.0, 4.0]]).tolist()
        [[0]]
        """
        return cls(weights=np.zeros((1, n_features)), bias=np.array([1.0 if sign > 0 else -1.0]))

    @classmethod
    def concatenate(cls, encoders: Sequence[Any]) -> Any:
        """One encoder of all bits; where some are of another class, that class joins them."""
        for encoder in encoders:
            if not isinstance(encoder, cls):
                return type(encoder).concatenate(encoders)
        return cls(
            weights=np.concatenate([encoder.weights for encoder in encoders]),
            bias=np.concatenate([encoder.bias for encoder in encoders]),
        )

    def _check(self) -> None:
        if self.weights.dtype != np.float64 or self.weights.ndim != 2 or 0 in self.weights.shape:
            raise ValueError(
                "the array 'weights' must be float64 of shape (n_bits, n_features). "
                f"Got {self.weights.dtype} of shape {self.weights.shape}."
            )
        if self.bias.dtype != np.float64 or self.bias.shape != self.weights.shape[:1]:
            raise ValueError(
                f"the array 'bias' must be float64 of shape {self.weights.shape[:1]}. "
                f"Got {self.bias.dtype} of shape {self.bias.shape}."
            )
        if not (np.isfinite(self.weights).all() and np.isfinite(self.bias).all()):
            raise ValueError("the arrays of a Linear encoder must be finite. Got NaN or infinity.")
