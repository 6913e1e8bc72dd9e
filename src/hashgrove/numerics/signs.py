"""Signs of real numbers: -1 or +1, never 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["nonzero_signs", "signs"]


def signs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """+1.0 where a value is above zero, and -1.0 elsewhere.

    >>> signs(np.array([0.5, 0.0, -2.0])).tolist()
    [1.0, -1.0, -1.0]
    """
    return np.where(values > 0, 1.0, -1.0)


def nonzero_signs(values: NDArray[np.float64], current: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sign of each value, and the ``current`` sign where a value is exactly zero.

    >>> nonzero_signs(np.array([0.5, 0.0, -2.0]), np.array([-1.0, 1.0, 1.0])).tolist()
    [1.0, 1.0, -1.0]
    """
    return np.where(values > 0, 1.0, np.where(values < 0, -1.0, current))
