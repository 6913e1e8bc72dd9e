"""Gaussian bumps around anchors, for rows scaled to length 1: features for other encoders rather than bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.unit_rows import unit_products

__all__ = ["UnitKernel"]


@dataclass(frozen=True, eq=False)
class UnitKernel(Encoder):
    """Scores exp(-gamma ||x - a||^2) of rows x scaled to length 1, for each anchor a of length 1; in float32.

    All scores are positive. The encoder serves as the first part of an `Augmented` one, not for codes.

    Parameters
    ----------
    anchors : float32 array of shape (n_bits, n_features)
        Rows of length 1; a row of zeros stays one.
    gamma : float32 array of shape ()

    Examples
    --------
    >>> encoder = UnitKernel(anchors=np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), gamma=np.array(0.5, np.float32))
    >>> encoder.scores([[5.0, 0.0]]).round(3).tolist()
    [[1.0, 0.36800000071525574]]
    """

    anchors: Annotated[NDArray[np.float32], ("bits", "features")]
    gamma: Annotated[NDArray[np.float32], ()]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float32]:
        # ||x - a||^2 = 2 - 2 x.a for rows of length 1
        products = unit_products(X, self.anchors)
        products -= np.float32(1)
        products *= np.float32(2) * self.gamma
        return np.exp(products, out=products)

    def _check_values(self) -> None:
        if self.gamma <= 0:
            raise ValueError(f"the array 'gamma' must be positive. Got {self.gamma}.")
        lengths = np.einsum("ij,ij->i", self.anchors, self.anchors, dtype=np.float64)  # without a copy in float64
        wrong = lengths[(np.abs(lengths - 1) > 1e-3) & (lengths > 0)]
        if len(wrong):
            raise ValueError(f"the array 'anchors' must have rows of length 1. Got {np.sqrt(wrong[0]):.3g}.")
