"""`MemoryIndex`: what the indexes of this library share. Items are arrays in memory, or mapped from a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.base import Index
from hashgrove.index.changes import Change
from hashgrove.index.ids import encode
from hashgrove.index.items import Items, as_bitmap, in_memory, merged, without
from hashgrove.index.kept import Kept
from hashgrove.index.manifest import Manifest
from hashgrove.index.rerank import Int8Rows
from hashgrove.index.store import Store
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["MemoryIndex"]

COMPACT = 4  # removed items make room when they are one of this many


class MemoryIndex(Index):
    """An index whose items are arrays: in memory, or mapped from the folder that `save` wrote.

    `load` maps the files of a folder and reads none of them, so it takes milliseconds at any size; the first use
    compares them with their checksums. Loaded with ``writable=True``, an index writes every change to its folder before
    the call returns, and a change that has returned survives a crash. Otherwise changes stay in memory.

    A subclass implements `_search` and `_search_radius`. Each call reads ``self._now()`` once. What is derived from the
    items is kept together with the `Items` that it belongs to.

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
        self._items = in_memory(np.empty((0, 0), np.uint8), np.empty(0, np.int64))
        # Arrays with spare rows behind those of the items, which nobody reads; None if there are no spare rows.
        self._room: tuple[NDArray[np.uint8], NDArray[Any]] | None = None
        self._store: Store | None = None  # the folder that the items are mapped from
        self._writable = False
        self._kept: Kept | None = None
        if codes is not None:
            self.add(codes, ids=ids, model=model)
        elif ids is not None:
            raise ParameterError("ids", "must be given together with 'codes'. Got ids alone instead.")

    def __len__(self) -> int:
        return len(self._items)

    def __getstate__(self) -> dict[str, Any]:
        items = replace(self._now(), verify=None)
        return super().__getstate__() | {"_items": items, "_room": None, "_store": None, "_writable": False}

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
        return self._now().find(encode(ids))[1]

    def _has_texts(self) -> bool | None:
        items = self._items
        return items.ids.dtype.kind == "S" if len(items) else None

    def _largest_id(self) -> int:
        items = self._now()
        last = np.flatnonzero(items.mask())[-1:] if items.alive is not None else np.arange(items.size)[-1:]
        return int(items.ids[last[0]]) if len(last) else -1

    def _allowed_bitmap(self, items: Items, allowed: NDArray[Any] | None) -> tuple[NDArray[np.uint64] | None, int]:
        """The positions that a search may find, one bit each (None for all), and their number."""
        if allowed is None:
            return items.alive, len(items)
        if allowed.dtype == np.bool_:
            if len(allowed) != len(items):
                raise ParameterError(
                    "allowed",
                    f"must have {len(items)} entries, one per item, if it is a mask. Got {len(allowed)} instead.",
                )
            mask = allowed
            if items.alive is not None:
                mask = items.mask()
                mask[mask] = allowed
        else:
            positions, known = items.find(encode(allowed))
            mask = np.zeros(items.size, np.bool_)
            mask[positions[known]] = True
        return as_bitmap(mask), int(mask.sum())

    def _change(self, change: Change) -> None:
        order = np.argsort(change.ids, kind="stable")
        removed = np.union1d(change.removed, change.ids[change.replaces])
        self._write(change.codes[order], change.ids[order], removed, change.model)
        self._model = change.model
        if change.features is not None:
            self._keep(change.features, change.ids)

    def _write(self, codes: NDArray[np.uint8], ids: NDArray[Any], removed: NDArray[Any], model: str | None) -> None:
        items, keys = self._now(), encode(ids)
        gone = items.find(encode(removed))[0]
        last = items.ids[-1:]
        ascending = len(keys) == 0 or len(last) == 0 or bool(last[0] < keys[0])
        if self._writable:
            if self._store is None:
                raise ValueError("The index must not be closed when it is changed. Load it again.")
            rows = gone if items.rows is None else items.rows[gone]
            new_rows = self._store.manifest.n_rows + np.arange(len(keys))
            self._store.append(codes, keys, rows, ordered=items.rows is None and ascending, model=model)
            if self._store.manifest.ordered:
                self._items = replace(self._store.items(), lineage=items.lineage)
            else:
                self._items = merged(without(items, gone), codes, keys, new_rows)
            return
        self._store = None  # from now on the items are not those of the folder
        items = without(items, gone)
        if items.alive is not None and COMPACT * (items.size - len(items)) > items.size:
            items, self._room = items.compacted(), None
        self._items = self._appended(items, codes, keys) if ascending else merged(items, codes, keys)
        self._room = self._room if ascending else None

    def _appended(self, items: Items, codes: NDArray[np.uint8], keys: NDArray[Any]) -> Items:
        """Items and new ones behind them, with spare room for more, so that many small additions stay cheap."""
        old, size, n_bytes = items.size, items.size + len(keys), codes.shape[1] or items.codes.shape[1]
        kind = keys.dtype if old == 0 and len(keys) else np.promote_types(items.ids.dtype, keys.dtype)
        if len(keys) == 0:
            kind = items.ids.dtype
        room = self._room
        if room is None or len(room[1]) < size or room[0].shape[1] != n_bytes or room[1].dtype != kind:
            length = max(size, old * 3 // 2)
            room = np.empty((length, n_bytes), np.uint8), np.empty(length, kind)
            if old:
                room[0][:old], room[1][:old] = items.codes, items.ids
        room[0][old:size], room[1][old:size] = codes if len(codes) else 0, keys
        self._room = room
        joined = replace(in_memory(room[0][:size], room[1][:size]), lineage=items.lineage)
        if items.alive is None:
            return joined
        alive = np.concatenate([items.mask(), np.ones(len(keys), np.bool_)])
        return replace(joined, alive=as_bitmap(alive), n_alive=len(items) + len(keys))

    @property
    def features(self) -> Kept | None:
        """The features that the index keeps for `Rerank`, in one byte each; None if it keeps none."""
        if self._kept is None and self._store is not None:
            self._kept = Kept.read(self._store.folder)
        return self._kept

    def keep_features(self, X: ArrayLike, *, ids: ArrayLike | None = None) -> None:
        """Keep a copy of the features of items, in one byte each, for `Rerank`; it is saved with the index.

        Parameters
        ----------
        X : array of shape (n, n_features)
        ids : array-like of int or str, shape (n,), optional
            The items that the rows belong to; without them, those of `ids`. Features that are kept already stay,
            unless there are new ones for the same id. If the index is writable, all are written to its folder.
        """
        self._keep(Int8Rows.of(X), self.ids if ids is None else ids)

    def _keep(self, rows: Int8Rows, ids: ArrayLike) -> None:
        kept = Kept.of(rows, ids, self.features)
        if self._writable and self._store is not None:
            kept.write(self._store.folder)
        self._kept = kept

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder, atomically; `load` and `hashgrove.load_index` read it.

        Parameters
        ----------
        path : path
            A folder that does not exist yet, or one of an index, whose content is replaced.
        """
        items = self._now()
        items = items if items.alive is None else items.compacted()
        kept = self.features
        Store.create(path, Manifest(type(self).__name__, model=self._model), items.codes, items.ids)
        if kept is not None:
            kept.write(path)

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
            _refuse_type(path, store.manifest.index, cls)
            index._items, index._model = store.items(), store.manifest.model
        except BaseException:
            store.close()
            raise
        index._store, index._writable = store, writable
        return index

    def refresh(self) -> bool:
        """Take in what another process has written to the folder since; return whether there was anything.

        An index that was changed in memory, or that does not come from a folder, is refused.
        """
        if self._store is None:
            raise ValueError("The index must come from a folder and be unchanged to be refreshed. It is not.")
        if self._writable:
            return False  # nobody else writes
        with self._changing:
            manifest = Manifest.read(self._store.folder)
            if manifest == self._store.manifest:
                return False
            self._store.manifest = manifest
            self._items = self._store.items()
        return True

    def compact(self) -> None:
        """Free the room of removed items and put the others in the order of their ids, in memory and in the folder.

        Readers of the folder keep what they have mapped until they `refresh`.
        """
        with self._changing:
            items = self._now().compacted()
            if self._writable and self._store is not None:
                self._store.rewrite(items.codes, items.ids)
                items = self._store.items()
            elif self._writable:
                raise ValueError("The index must not be closed when it is compacted. Load it again.")
            self._items, self._room = replace(items, rows=None), None

    def close(self) -> None:
        """Let another process write to the folder. The index can still be searched, but no longer be changed."""
        with self._changing:
            if self._store is not None:
                self._store.close()
                self._store = None


def _refuse_type(path: str | os.PathLike[str], found: object, wanted: type) -> None:
    if found != wanted.__name__:
        raise ModelFileError(
            f"{os.fspath(path)}: must hold an index of type {wanted.__name__!r}. Got {found!r} instead."
        )
