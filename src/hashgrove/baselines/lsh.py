"""Locality-sensitive hashing by random hyperplanes (Charikar, STOC 2002)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher

__all__ = ["LSH"]


class LSH(Hasher):
    """Random Gaussian hyperplanes through the mean of the data.

    The expected distance of two codes is proportional to the angle between the two points, seen from the mean.

    Parameters
    ----------
    n_bits : int
    random_state : int, RandomState or None
        Seed of the hyperplanes.

    Attributes
    ----------
    encoder_ : Linear

    References
    ----------
    M. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> LSH(16, random_state=0).fit(X).transform(X).shape
    (4, 2)
    """

    def __init__(self, n_bits: int = 64, *, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Linear:
        """Draw the hyperplanes and move them to the mean of the rows."""
        weights = rng.standard_normal((self.n_bits, X.shape[1]))
        return Linear(weights=weights, bias=-weights @ np.asarray(X.mean(axis=0, dtype=np.float64)).ravel())

    def _accepts_sparse(self) -> bool:
        return True
