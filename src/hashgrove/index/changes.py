"""How the items of an index change: `add`, `remove` and `update`, each all or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import check_codes
from hashgrove.index.hooks import Hooks
from hashgrove.index.ids import MAX_ID, check_ids, refuse_duplicates
from hashgrove.runtime.parameters import Flag, ParameterError

__all__ = ["Changes"]


class Changes(Hooks):
    """`add`, `remove` and `update` of an index, by its `_known` and `_change`."""

    def add(self, codes: ArrayLike, *, ids: ArrayLike | None = None, model: Any = None) -> None:
        """Add items. If anything is wrong with them, none is added.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int or str, shape (n,), optional
            The ids of these codes, in any order. An id that occurs twice or is already in the index is refused.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes. It is refused if it is not that of the index.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex()
        >>> index.add(np.array([[1], [2]], np.uint8), ids=[20, 10])
        >>> index.ids, index.codes.tolist()
        (array([10, 20]), [[2], [1]])
        """
        with self._exclusively():
            codes, ids = self._check_items(codes, ids, model)
            known = ids[self._known(ids)]
            if len(known):
                raise ParameterError(
                    "ids", f"must have ids that are new to the index. Got {known[0]} instead, which is already in it."
                )
            self._change(codes, ids, ids[:0])

    def remove(self, ids: ArrayLike, *, missing_ok: bool = False) -> int:
        """Remove items. If anything is wrong with the ids, none is removed.

        Parameters
        ----------
        ids : array-like of int or str
            In any order; an id may occur twice.
        missing_ok : bool
            Whether ids that are not in the index are ignored; otherwise they are refused.

        Returns
        -------
        n_removed : int

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[1], [2], [3]], np.uint8))
        >>> index.remove([0, 2])
        2
        >>> index.ids, 2 in index
        (array([1]), False)
        """
        Flag().check("missing_ok", missing_ok)
        wanted = np.unique(check_ids(ids))
        with self._exclusively():
            known = self._known(wanted)
            if not missing_ok:
                _refuse_missing(wanted[~known])
            self._change(np.empty((0, self.n_bytes or 0), np.uint8), wanted[:0], wanted[known])
        return int(known.sum())

    def update(self, codes: ArrayLike, *, ids: ArrayLike, insert: bool = False, model: Any = None) -> None:
        """Give items new codes, in one step. If anything is wrong, nothing is changed.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int or str, shape (n,)
            The items, in any order and without duplicates.
        insert : bool
            Whether ids that are not in the index are added; otherwise they are refused.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes. It is refused if it is not that of the index.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[1], [2]], np.uint8))
        >>> index.update(np.array([[7]], np.uint8), ids=[0])
        >>> index.codes.tolist()
        [[7], [2]]
        """
        Flag().check("insert", insert)
        with self._exclusively():
            codes, new = self._check_items(codes, ids, model)
            known = self._known(new)
            if not insert:
                _refuse_missing(new[~known])
            self._change(codes, new, new[known])

    def _check_items(
        self, codes: ArrayLike, ids: ArrayLike | None, model: Any
    ) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Codes and their ids in ascending order of the ids; without ids, the next integers."""
        self._check_model(model)
        checked = check_codes(codes, n_bytes=self.n_bytes)
        if ids is None:
            return checked, self._next_ids(len(checked))
        new = check_ids(ids, length=len(checked))
        texts = self._has_texts()
        if len(new) and texts is not None and texts != (new.dtype.kind == "U"):
            kinds = "texts", "integers"
            raise ParameterError("ids", f"must be {kinds[not texts]}, as in the index. Got {kinds[texts]} instead.")
        order = np.argsort(new, kind="stable")
        refuse_duplicates(new[order])
        return checked[order], new[order]

    def _has_texts(self) -> bool | None:
        """Whether the ids are texts; None if there are none."""
        return self.ids.dtype.kind == "U" if len(self) else None

    def _largest_id(self) -> int:
        """The largest id of an index with integers; -1 if there is none."""
        ids = self.ids
        return int(ids[-1]) if len(ids) else -1

    def _next_ids(self, count: int) -> NDArray[np.int64]:
        if count and self._has_texts():
            raise ParameterError("ids", "must be given, as the ids of the index are texts. Got None instead.")
        start = self._largest_id() + 1 if count else 0
        if start + count - 1 > MAX_ID:
            raise ParameterError("ids", f"must be given: no int64 is left above the id {start - 1}.")
        return np.arange(count, dtype=np.int64) + start


def _refuse_missing(ids: NDArray[Any]) -> None:
    if len(ids):
        raise ParameterError("ids", f"must have ids of items of the index. Got {ids[0]} instead.")
