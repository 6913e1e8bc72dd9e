"""Random samples of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["sample_rows"]


def sample_rows(n_rows: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``size`` distinct row numbers, or all of them if there are fewer rows; sorted.

    >>> sample_rows(3, 5, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    return np.sort(rng.choice(n_rows, size=min(size, n_rows), replace=False))
