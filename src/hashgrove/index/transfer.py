"""Items on their way to another index: those that it lacks, or has with another code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.base import Index
from hashgrove.index.ids import encode, find

__all__ = ["rows_to_send"]


def rows_to_send(index: Index, codes: NDArray[np.uint8], *, ids: NDArray[Any]) -> NDArray[np.int64]:
    """The rows of ``codes`` whose id the index does not have, or has with another code.

    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[5], [7]], np.uint8))
    >>> rows_to_send(index, np.array([[5], [6], [9]], np.uint8), ids=np.array([0, 1, 2])).tolist()
    [1, 2]
    """
    stored_ids, stored = index.items()
    keys = encode(stored_ids)
    order = np.argsort(keys, kind="stable")
    positions, known = find(keys[order], encode(ids))
    same = known.copy()
    same[known] = (stored[order[positions[known]]] == codes[known]).all(axis=1)
    return np.flatnonzero(~same)
