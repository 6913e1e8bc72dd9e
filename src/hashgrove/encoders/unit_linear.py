"""Bits that say on which side of a hyperplane the direction of a row lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.unit_rows import unit_products

__all__ = ["UnitLinear"]


@dataclass(frozen=True, eq=False)
class UnitLinear(Encoder):
    """One hyperplane per bit for rows of length 1: scores = X W' / ||X|| + b, in float32.

    Parameters
    ----------
    weights : float32 array of shape (n_bits, n_features)
    bias : float32 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = UnitLinear(weights=np.array([[1.0, 0.0]], np.float32), bias=np.array([-0.5], np.float32))
    >>> encoder.scores([[3.0, 4.0], [300.0, 400.0]]).round(3).tolist()
    [[0.10000000149011612], [0.10000000149011612]]
    """

    weights: Annotated[NDArray[np.float32], ("bits", "features")]
    bias: Annotated[NDArray[np.float32], ("bits",)]

    def scaled(self, factor: float) -> UnitLinear:
        """The encoder whose scores are ``factor`` times these."""
        return replace(self, weights=self.weights * np.float32(factor), bias=self.bias * np.float32(factor))

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float32]:
        return unit_products(X, self.weights) + self.bias
