"""`Store`: an index in a folder. Changes are appended, durable when they return, and seen by readers all at once.

The folder holds rows of codes, ids and features, and the numbers of rows that have been removed or replaced, each in a
file that only grows, and the manifest (`hashgrove.index.manifest`), which says how much of them counts. A change
appends to the files, syncs them, and then replaces the manifest. So a process that is killed at any moment leaves the
index as it was before the change or after it, and a reader that has mapped the files sees the index of one moment. Rows
are in the order in which the items were given; a row that replaces another takes its place. `Store.rewrite` puts all
items into new files, without rows that have been removed or replaced.
"""

from __future__ import annotations

import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.folder import LOCK, check_files, data_file, remove_old_files
from hashgrove.index.ids import are_ascending
from hashgrove.index.items import Items
from hashgrove.index.locking import lock_file
from hashgrove.index.manifest import Manifest, is_index_folder
from hashgrove.index.prepared import ready_tables
from hashgrove.index.reader import CHUNK, Reader, content_of, generations, id_type
from hashgrove.index.stored_features import empty_table
from hashgrove.index.tables import Tables
from hashgrove.storage.atomic import remove_stale, sync_folder
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["Store"]

WIDTH_STEP = 16  # the room for text ids grows by this many bytes, so that it rarely has to
PAIR = 16  # bytes of the numbers of a removed row and of the one that replaces it
ATTEMPTS = 20  # to read a folder whose files are being replaced


class Store:
    """An index in a folder, as of one manifest.

    Parameters
    ----------
    folder : path
    manifest : Manifest
    lock : file, optional
        Held by the one process that may write; see `locked`.
    """

    def __init__(self, folder: PathLike, manifest: Manifest, *, lock: BinaryIO | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = manifest
        self.lock = lock
        self.reader = Reader(self.folder)

    @classmethod
    def create(cls, path: PathLike, manifest: Manifest, items: Items) -> None:
        """Write a new index, or replace the content of one, atomically.

        Parameters
        ----------
        path : path
            A folder that does not exist yet, or the folder of an index.
        manifest : Manifest
            Its ``index`` and ``model`` are used.
        items : Items
        """
        if is_index_folder(path):
            with cls.locked(path) as store:
                store.manifest = replace(store.manifest, index=manifest.index, model=manifest.model)
                store.rewrite(items)
            return
        target = Path(os.path.realpath(path))
        if target.exists():
            raise FileError(f"{os.fspath(path)}: must be an index, or not exist. Got something else.")
        temporary = target.with_name(f".hashgrove-{secrets.token_hex(8)}.tmp")
        try:
            remove_stale(target.parent)
            temporary.mkdir()
            cls(temporary, manifest).rewrite(items)
            os.rename(temporary, target)
            sync_folder(target.parent)
        except FileError as error:  # it names a temporary file, which is gone
            reason = getattr(error.__cause__, "strerror", None) or one_line(error)
            raise FileError(f"{os.fspath(path)}: cannot be written: {reason}") from error
        except OSError as error:
            raise FileError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @classmethod
    def read(cls, folder: PathLike) -> Store:
        """The index in a folder, for reading."""
        if not is_index_folder(folder):
            if not os.path.exists(folder):
                raise MissingFileError(f"{os.fspath(folder)}: no such file or folder")
            raise ModelFileError(f"{os.fspath(folder)}: must be the folder of an index. Got something else.")
        return cls(folder, Manifest.read(folder))

    @classmethod
    def locked(cls, folder: PathLike) -> Store:
        """The index in a folder, for writing; there can be one writer at a time. What a killed one left is removed."""
        cls.read(folder)  # raises if there is no index
        check_files(folder)
        lock = lock_file(Path(folder) / LOCK, f"{os.fspath(folder)}: another process is writing to the index")
        store = cls(folder, Manifest.read(folder), lock=lock)
        store._remove_old_files()
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def items(self) -> Items:
        """Map the files. If another process replaces them meanwhile, its manifest is read again."""
        for _ in range(ATTEMPTS):
            try:
                return self.reader.items(self.manifest)
            except FileNotFoundError:
                self.manifest = Manifest.read(self.folder)
        raise ModelFileError(f"{self.folder}: damaged: the files that its manifest names are missing")

    def features(self) -> tuple[NDArray[Any] | None, Callable[[], None] | None]:
        """Map the table of features, and make a function that verifies it; None if there are no features."""
        return self.reader.features(self.manifest)

    def append(
        self,
        codes: NDArray[np.uint8],
        ids: NDArray[Any],
        features: NDArray[Any] | None,
        removed: NDArray[np.int64],
        *,
        ordered: bool,
        model: str | None,
    ) -> None:
        """Append rows, and remove or replace others, in one durable step.

        Parameters
        ----------
        codes, ids, features
            The new rows; ``features`` is a table, or None if the index keeps none.
        removed : int64 array of shape (n, 2)
            Rows that are removed, each with the new row that takes its place; -1 if none does.
        ordered : bool
            Whether the ids still ascend from row to row.
        model : str or None
        """
        now = replace(self.manifest, model=model)
        if features is not None and now.n_features == 0:
            now = self._new_features(now, empty_table(now.n_rows, features.dtype["values"].shape[0]))
        if len(codes):
            now = self._fit_ids(replace(now, n_bytes=codes.shape[1], ordered=ordered), ids)
            keys = ids.astype(id_type(now))
            if features is not None:
                size = now.n_rows * features.itemsize
                crc = self._append("features", now.features_generation, size, [features], now.features_crc)
                now = replace(now, features_crc=crc)
            now = replace(
                now,
                codes_crc=self._append("codes", now.generation, now.n_rows * now.n_bytes, [codes], now.codes_crc),
                ids_crc=self._append("ids", now.ids_generation, now.n_rows * keys.itemsize, [keys], now.ids_crc),
                n_rows=now.n_rows + len(codes),
            )
        elif not now.n_bytes and codes.shape[1]:
            now = replace(now, n_bytes=codes.shape[1])
        if len(removed):
            pairs = removed.astype("<i8")
            crc = self._append("removed", now.generation, PAIR * now.n_removed, [pairs], now.removed_crc)
            now = replace(now, removed_crc=crc, n_removed=now.n_removed + len(removed))
        self._put_in_place(now)

    def rewrite(self, items: Items) -> None:
        """Replace all rows by the items, in the order in which they were given, in new files.

        Their tables are written, too, unless items have been removed, which changes the positions of others.
        """
        generation = self._next_generation(self.manifest)
        ids, codes = items.in_order()
        width = -(-ids.dtype.itemsize // WIDTH_STEP) * WIDTH_STEP if ids.dtype.kind == "S" and len(ids) else 0
        now = replace(
            self.manifest.without_tables(), n_bytes=codes.shape[1], n_rows=len(codes), n_removed=0, text_width=width,
            n_features=0, ordered=are_ascending(ids), generation=generation, ids_generation=generation,
            features_generation=generation, removed_crc=0, features_crc=0,
        )  # fmt: skip
        now = replace(
            now,
            codes_crc=self._append("codes", generation, 0, [codes], 0),
            ids_crc=self._append("ids", generation, 0, [ids.astype(id_type(now))], 0),
        )
        self._append("removed", generation, 0, [], 0)
        if items.features is not None:
            n_features = items.features.dtype["values"].shape[0]
            crc = self._append("features", generation, 0, items.feature_parts(CHUNK), 0)
            now = replace(now, n_features=n_features, features_crc=crc)
        if items.alive is None and (tables := ready_tables(items)) is not None:
            now = self._new_tables(now, tables)
        self._put_in_place(now)

    def replace_tables(self, tables: Tables) -> None:
        """Write tables that hold the first items, in one durable step."""
        self._put_in_place(self._new_tables(self.manifest, tables))

    def _new_tables(self, now: Manifest, tables: Tables) -> Manifest:
        """Write tables in a new file. They are left out if they would not hold the first items of the folder."""
        n_tables, _, n_distinct = tables.words.shape
        now = replace(now, n_tables=n_tables, n_tabled=len(tables.order), n_distinct=n_distinct)
        if not now.tables_fit():
            return now.without_tables()
        generation = self._next_generation(now)
        layout = Tables.layout(8 * now.n_bytes, n_tables, n_distinct, now.n_tabled)
        arrays = (getattr(tables, name).astype(type_, copy=False) for name, (type_, _) in layout.items())
        return replace(now, tables_generation=generation, tables_crc=self._append("tables", generation, 0, arrays, 0))

    def replace_features(self, table: NDArray[Any]) -> None:
        """Replace the features of all rows, in one durable step."""
        self._put_in_place(self._new_features(self.manifest, table))

    def _new_features(self, now: Manifest, table: NDArray[Any]) -> Manifest:
        generation = self._next_generation(now)
        crc = self._append("features", generation, 0, [table], 0)
        n_features = table.dtype["values"].shape[0]
        return replace(now, features_generation=generation, n_features=n_features, features_crc=crc)

    def _put_in_place(self, now: Manifest) -> None:
        if not now.tables_fit():
            now = now.without_tables()
        now.write(self.folder)
        before, self.manifest = self.manifest, now
        if generations(before) != generations(now):
            self._remove_old_files()

    def _next_generation(self, now: Manifest) -> int:
        return max(generations(now).values()) + 1

    def _append(self, name: str, generation: int, size: int, parts: Iterable[NDArray[Any]], crc: int) -> int:
        """Append arrays to the first ``size`` bytes of a file, durably; return the new checksum."""
        path = data_file(self.folder, name, generation)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            with open(handle, "r+b") as file:
                file.truncate(size)  # what a killed writer appended does not count
                file.seek(size)
                for part in parts:
                    content = content_of(np.ascontiguousarray(part))
                    file.write(content)
                    crc = zlib.crc32(content, crc)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from error
        sync_folder(self.folder)
        return crc

    def _fit_ids(self, now: Manifest, ids: NDArray[Any]) -> Manifest:
        """Make the rows of ids wide enough for new texts; they are rewritten if they are not."""
        if ids.dtype.kind != "S" or 0 < ids.dtype.itemsize <= now.text_width:
            return now
        width = -(-ids.dtype.itemsize // WIDTH_STEP) * WIDTH_STEP
        wider = replace(now, text_width=width, ids_generation=self._next_generation(now))
        old = np.empty(0, id_type(wider)) if not now.n_rows else self.reader.map_file("ids", now).astype(id_type(wider))
        return replace(wider, ids_crc=self._append("ids", wider.ids_generation, 0, [old], 0))

    def _remove_old_files(self) -> None:
        """Remove files that the manifest does not name, and what killed writers left."""
        now = self.manifest
        remove_old_files(self.folder, generations(now), temporary=self.lock is not None)
