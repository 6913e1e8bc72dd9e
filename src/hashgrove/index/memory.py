"""`MemoryIndex`: what the indexes of this library share. Items are arrays in memory, or mapped from a folder."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.base import Index
from hashgrove.index.changes import Change
from hashgrove.index.ids import check_ids
from hashgrove.index.items import Items, Room, appended, as_bitmap, in_memory, merged, updated, without
from hashgrove.index.keys import Integers, Keys, keys_of
from hashgrove.index.manifest import Manifest
from hashgrove.index.rerank import Int8Rows, Order
from hashgrove.index.store import Store
from hashgrove.index.stored_features import (
    StoredFeatures,
    as_table,
    empty_table,
    new_rows,
    stored_features,
    table_or_empty,
)
from hashgrove.runtime.parameters import ParameterError

__all__ = ["MemoryIndex"]

COMPACT = 4  # removed items make room when they are one of this many


class MemoryIndex(Index):
    """An index whose items are arrays: in memory, or mapped from the folder that `save` wrote.

    `load` maps the files of a folder and reads none of them, so it takes milliseconds at any size; the first use
    compares them with their checksums. Loaded with ``writable=True``, an index writes every change to its folder before
    the call returns, and a change that has returned survives a crash. Otherwise changes stay in memory.

    A subclass implements `_search_among` and `_search_radius`, which reads ``self._now()`` once. What is derived from
    the items is kept together with the `Items` that it belongs to.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int or str, shape (n,), optional
        The ids of these codes, in any order and without duplicates; 0, 1, 2, ... if left out.
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes.
    """

    accepts_weights = accepts_features = True

    def __init__(self, codes: ArrayLike | None = None, *, ids: ArrayLike | None = None, model: Any = None) -> None:
        super().__init__(model=model)
        self._items = in_memory(np.empty((0, 0), np.uint8), Integers(np.empty(0, np.int64)))
        self._room = Room()
        self._store: Store | None = None  # the folder that the items are mapped from
        self._writable = False
        if codes is not None:
            self.add(codes, ids=ids, model=model)
        elif ids is not None:
            raise ParameterError("ids", "must be given together with 'codes'. Got ids alone instead.")

    def __len__(self) -> int:
        return len(self._items)

    def __getstate__(self) -> dict[str, Any]:
        if self._items.verify_features is not None:
            self._items.verify_features()
        items = replace(self._now(), verify=None, verify_features=None, tables=None)
        return super().__getstate__() | {"_items": items, "_room": Room(), "_store": None, "_writable": False}

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return self._items.n_bytes

    def _now(self) -> Items:
        """The items of this moment. If they come from files, these have been verified."""
        items = self._items
        if items.verify is not None:
            items.verify()
        return items

    def _contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        return self._now().contents()

    def _known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        return self._now().find(ids)[1]

    def _has_texts(self) -> bool | None:
        items = self._items
        return items.ids.is_text if len(items) else None

    def _largest_id(self) -> int:
        items = self._now()
        last = np.flatnonzero(items.mask())[-1:] if items.alive is not None else np.arange(items.size)[-1:]
        return int(items.ids.at(last[0])) if len(last) else -1

    @abstractmethod
    def _search_among(
        self, items: Items, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """Distances and ids for `search` with checked arguments; ``allowed`` is a mask, ascending ids, or None."""

    def _search(
        self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        return self._search_among(self._now(), codes, k, allowed, n_jobs)

    def _search_reranked(
        self, rerank: Order, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, **options: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        items = self._now()

        def nearest(part: NDArray[np.uint8], n: int) -> tuple[NDArray[np.uint16], NDArray[Any]]:
            return self._search_among(items, part, n, allowed, 1)

        return rerank.search(nearest, codes, k, stored=stored_features(items), codes_of=items.codes_of, **options)

    def _allowed_bitmap(self, items: Items, allowed: NDArray[Any] | None) -> tuple[NDArray[np.uint64] | None, int]:
        """The positions that a search may find, one bit each (None for all), and their number."""
        if allowed is None:
            return items.alive, len(items)
        mask = np.zeros(items.size, np.bool_)
        if allowed.dtype == np.bool_:
            if len(allowed) != len(items):
                raise ParameterError(
                    "allowed",
                    f"must have {len(items)} entries, one per item, if it is a mask. Got {len(allowed)} instead.",
                )
            mask[slice(None) if items.order is None else items.order] = allowed
        else:
            positions, known = items.find(allowed)
            mask[positions[known]] = True
        return as_bitmap(mask), int(mask.sum())

    def _change(self, change: Change) -> None:
        items = self._now()
        table = new_rows(items, change.features, len(change.ids))
        if self._writable:
            self._write(items, change, table)
            return
        self._store = None  # from now on the items are not those of the folder
        if COMPACT * (items.n_rows - len(items)) > items.n_rows:
            items, self._room = items.compacted(), Room()
        changed = self._changed(items, change)
        if table is not None:
            old = table_or_empty(items, table.dtype["values"].shape[0], name="features")
            changed = replace(changed, features=self._room.extended("features", old, table))
        self._items, self._model = changed, change.model

    def _open_store(self, done: str) -> Store:
        """The folder of a writable index."""
        if self._store is None:
            raise ValueError(f"The index must not be closed when it is {done}. Load it again.")
        return self._store

    def _write(self, items: Items, change: Change, table: NDArray[Any] | None) -> None:
        """Write a change to the folder, and use what it holds then."""
        keys = keys_of(change.ids)
        with self._open_store("changed").change() as writing:
            if items.size and not len(items):  # new ids may be of the other type
                writing.rewrite(items)
                items = writing.items()
            ordered = items.rows is None and not change.replaces.any() and items.end_before(keys)
            writing.append(change.codes, keys, table, change.removed_rows(items), ordered=ordered, model=change.model)
            if writing.now.ordered:
                changed = replace(writing.items(), lineage=items.lineage)
            else:
                table, verify = writing.features()
                changed = replace(self._changed(items, change), features=table, verify_features=verify)
            writing.commit()
            self._items, self._model = changed, change.model

    def _changed(self, items: Items, change: Change) -> Items:
        """The items after a change, without its features."""
        new = ~change.replaces if change.replaces.any() else slice(None)  # a mask copies what it selects
        rows = items.n_rows + np.arange(len(change.ids))
        items = without(items, items.find(change.removed)[0])
        positions = items.find(change.ids[change.replaces])[0]
        items = updated(items, positions, change.codes[change.replaces], rows[change.replaces])
        codes, keys, new_rows = change.codes[new], keys_of(change.ids[new]), rows[new]
        if items.end_before(keys):
            items = self._appended(items, codes, keys, new_rows)
        else:
            items, self._room = merged(items, codes, keys, new_rows), Room()
        return replace(items, n_rows=items.n_rows + len(rows))

    def _appended(self, items: Items, codes: NDArray[np.uint8], keys: Keys, rows: NDArray[np.int64]) -> Items:
        """Items and new ones behind them, with spare room for more, so that many small additions stay cheap."""
        n_bytes = codes.shape[1] or items.codes.shape[1]
        old = items.codes if items.size else np.empty((0, n_bytes), np.uint8)
        codes = codes if len(codes) else np.empty((0, n_bytes), np.uint8)
        extended = self._room.extended
        return appended(items, extended("codes", old, codes), items.ids.joined(keys, extended), rows, len(keys))

    @property
    def features(self) -> StoredFeatures | None:
        """The features that the index keeps for `Rerank`, in one byte each; None if it keeps none."""
        return stored_features(self._now())

    def keep_features(self, X: ArrayLike | Int8Rows, *, ids: ArrayLike | None = None) -> None:
        """Keep features of items that are in the index already, in one byte each, for `Rerank`.

        Parameters
        ----------
        X : array of shape (n, n_features), or Int8Rows
        ids : array-like of int or str, shape (n,), optional
            The items that the rows belong to. Without them, there is one row per item in the order of `ids`, and
            earlier features are replaced; with them, the features of other items stay.
        """
        rows = X if isinstance(X, Int8Rows) else Int8Rows.of(X)
        with self._changing:
            items = self._now()
            if ids is None:
                positions = np.arange(items.size) if items.order is None else items.order
                table = empty_table(items.n_rows, rows.shape[1])
            else:
                positions = items.positions_of(check_ids(ids, length=len(rows)))
                table = table_or_empty(items, rows.shape[1], name="X").copy()
            if len(rows) != len(positions):
                raise ParameterError("X", f"must have {len(positions)} rows, one per item. Got {len(rows)} instead.")
            table[items.rows_of(positions)] = as_table(rows)
            if not self._writable:
                self._store = None  # from now on the items are not those of the folder
                self._items, self._room = replace(items, features=table, verify_features=None), Room()
                return
            with self._open_store("changed").change() as writing:
                writing.replace_features(table)
                features, verify = writing.features()
                writing.commit()
                self._items, self._room = replace(items, features=features, verify_features=verify), Room()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder, atomically; `load` and `hashgrove.load_index` read it.

        Parameters
        ----------
        path : path
            A folder that does not exist yet, or one of an index, whose content is replaced.
        """
        items = self._now()
        if items.verify_features is not None:
            items.verify_features()
        Store.create(path, Manifest(type(self).__name__, model=self._model), items)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Map an index of this class from the folder that `save` wrote.

        Parameters
        ----------
        path : path
            It is treated as untrusted: what is damaged is refused, at the latest when it is first used.
        writable : bool
            Whether changes are written to the folder. There can be one writer at a time, beside any number of readers;
            `close` lets others write.
        """
        store = Store.locked(path) if writable else Store.read(path)
        index = cls()
        try:
            store.refuse_other_type(cls.__name__)
            index._items, index._model = store.items(), store.manifest.model
        except BaseException:
            store.close()
            raise
        index._store, index._writable = store, writable
        return index

    def refresh(self, *, same_model: bool = False) -> bool:
        """Take in what another process has written to the folder since; return whether there was anything.

        An index that was changed in memory, or that does not come from a folder, is refused. With ``same_model``, so
        are codes of another model than before.
        """
        if self._store is None:
            raise ValueError("The index must come from a folder and be unchanged to be refreshed. It is not.")
        if self._writable:
            return False  # nobody else writes
        with self._changing:
            store = self._store.refreshed()
            if store is None:
                return False
            items = store.items()
            if same_model and store.manifest.model != self._model:
                raise ParameterError("same_model", "must be left out: the index has codes of another model now.")
            self._store, self._items, self._model = store, items, store.manifest.model
        return True

    def compact(self) -> None:
        """Free the room of removed items and of old codes, in memory and in the folder.

        Readers of the folder keep what they have mapped until they `refresh`.
        """
        with self._changing:
            items = self._now()
            if items.verify_features is not None:
                items.verify_features()
            if not self._writable:
                self._items, self._room = items.compacted(), Room()
                return
            with self._open_store("compacted").change() as writing:
                writing.rewrite(items)
                compacted = writing.items()
                writing.commit()
                self._items, self._room = compacted, Room()

    def close(self) -> None:
        """Let another process write to the folder. The index can still be searched, but no longer be changed."""
        with self._changing:
            if self._store is not None:
                self._store.close()
                self._store = None
