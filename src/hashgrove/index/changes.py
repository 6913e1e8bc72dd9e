"""`Change`: new and removed items that an index writes in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.items import Items
from hashgrove.index.rerank import Int8Rows

__all__ = ["Change"]


@dataclass(frozen=True, eq=False)
class Change:
    """New items and removed ones, checked, which an index writes in one step.

    Attributes
    ----------
    codes : uint8 array of shape (n, n_bytes)
    ids : int64 or str array of shape (n,)
        The ids of the codes, without duplicates, in the order in which the user gave them.
    replaces : bool array of shape (n,)
        Whether the item is in the index already and gets a new code; otherwise it is new.
    removed : int64 or str array
        The ids of items that are removed: ascending, in the index, and none of ``ids``.
    features : Int8Rows or None
        The features of the items, one row per code.
    model : str or None
        The model of the index after the change.
    """

    codes: NDArray[np.uint8]
    ids: NDArray[Any]
    replaces: NDArray[np.bool_]
    removed: NDArray[Any]
    features: Int8Rows | None
    model: str | None

    def removed_rows(self, items: Items) -> NDArray[np.int64]:
        """The rows of items that the change removes, each with the new row that takes its place; -1 if none does."""
        removed = items.find(np.concatenate([self.removed, self.ids[self.replaces]]))[0]
        followers = np.full(len(removed), -1)
        followers[len(self.removed) :] = items.n_rows + np.flatnonzero(self.replaces)
        return np.stack([items.rows_of(removed), followers], axis=1)
