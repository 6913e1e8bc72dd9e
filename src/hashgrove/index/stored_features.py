"""`StoredFeatures`: the features that an index keeps of its items, in one byte each, to re-rank by.

A table of features has one row per row of the index: a scale, float32, and the features as whole numbers from -127 to
127, int8. A scale that is NaN says that there are no features of the item.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.ids import check_ids
from hashgrove.index.items import Items
from hashgrove.index.rerank import Int8Rows
from hashgrove.runtime.parameters import ParameterError

__all__ = [
    "MAX_FEATURES",
    "StoredFeatures",
    "as_table",
    "empty_table",
    "new_rows",
    "stored_features",
    "table_or_empty",
    "table_type",
]

MAX_FEATURES = 2**24


def table_type(n_features: int) -> np.dtype[Any]:
    """The type of a row of a table.

    >>> table_type(3).itemsize
    7
    """
    return np.dtype([("scale", "<f4"), ("values", "i1", (n_features,))])


def as_table(rows: Int8Rows) -> NDArray[Any]:
    """Features as a table."""
    table = np.empty(len(rows), table_type(rows.shape[1]))
    table["scale"], table["values"] = rows.scales, rows.values
    return table


def empty_table(n_rows: int, n_features: int) -> NDArray[Any]:
    """A table for items that have no features."""
    table = np.zeros(n_rows, table_type(n_features))
    table["scale"] = np.nan
    return table


def table_or_empty(items: Items, n_features: int, *, name: str) -> NDArray[Any]:
    """The table of items, which must have ``n_features`` features, or one without features."""
    if items.features is None:
        return empty_table(items.n_rows, n_features)
    width = items.features.dtype["values"].shape[0]
    if width != n_features:
        raise ParameterError(
            name, f"must have {width} columns, as the features that the index keeps. Got {n_features} instead."
        )
    return items.features


def new_rows(items: Items, features: Int8Rows | None, n_rows: int) -> NDArray[Any] | None:
    """The rows that a change adds to the table of items; None if there is none."""
    if features is None:
        return None if items.features is None else empty_table(n_rows, items.features.dtype["values"].shape[0])
    table_or_empty(items, features.shape[1], name="features")
    return as_table(features)


def stored_features(items: Items) -> StoredFeatures | None:
    """The features of items, which have been verified; None if there are none."""
    if items.features is None:
        return None
    if items.verify_features is not None:
        items.verify_features()
    return StoredFeatures(items)


class StoredFeatures:
    """The features that an index keeps of its items at one moment.

    Attributes
    ----------
    n_features : int

    Examples
    --------
    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex()
    >>> index.add(np.array([[7], [8]], np.uint8), ids=["b", "a"], features=[[127.0, 0.0], [0.0, 127.0]])
    >>> index.features.ids, index.features.of(["b"])
    (array(['b', 'a'], dtype='<U1'), array([[127.,   0.]], dtype=float32))
    """

    def __init__(self, items: Items) -> None:
        assert items.features is not None
        self._items, self._table = items, items.features
        self.n_features = int(self._table.dtype["values"].shape[0])

    def __len__(self) -> int:
        """Number of items that have features."""
        return len(self.ids)

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of the items that have features, in the order in which they were added."""
        items = self._items
        order = np.arange(items.size) if items.order is None else items.order
        return items.ids[order[~np.isnan(self._table["scale"][items.rows_of(order)])]]

    def find(self, ids: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The features of some items, and which of these items have some; the others have arbitrary ones."""
        positions, known = self._items.find(ids)
        found = (
            self._table[self._items.rows_of(positions)] if len(self._items) else empty_table(len(ids), self.n_features)
        )
        return Int8Rows(found["values"], found["scale"])[:], known & ~np.isnan(found["scale"])

    def of(self, ids: ArrayLike) -> NDArray[np.float32]:
        """The features of some items: float32, shape (n, n_features). Items without features are refused."""
        wanted = check_ids(ids)
        rows, known = self.find(wanted)
        if not known.all():
            raise ParameterError("ids", f"must be items that have features. Got {wanted[~known][0]!r}, which has none.")
        return rows
