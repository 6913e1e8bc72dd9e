"""Items on their way from one index to another: all of one moment, and those that the other one lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.base import Index
from hashgrove.index.ids import encode, find

__all__ = ["all_items", "rows_to_send"]


def all_items(index: Index) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """All ids of an index, ascending, and the codes in this order, of one moment.

    >>> from hashgrove.index import FlatIndex
    >>> ids, codes = all_items(FlatIndex(np.array([[5], [7]], np.uint8)))
    >>> ids.tolist(), codes.tolist()
    ([0, 1], [[5], [7]])
    """
    return index._contents()


def rows_to_send(index: Index, codes: NDArray[np.uint8], *, ids: NDArray[Any]) -> NDArray[np.int64]:
    """The rows of ``codes`` whose id the index does not have, or has with another code.

    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[5], [7]], np.uint8))
    >>> rows_to_send(index, np.array([[5], [6], [9]], np.uint8), ids=np.array([0, 1, 2])).tolist()
    [1, 2]
    """
    stored_ids, stored = all_items(index)
    positions, known = find(encode(stored_ids), encode(ids))
    same = known.copy()
    same[known] = (stored[positions[known]] == codes[known]).all(axis=1)
    return np.flatnonzero(~same)
