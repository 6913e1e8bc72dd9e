"""`Writing`: one change of an index in a folder, from its first byte to the manifest that makes it count.

Rows are in the order in which the items were given; a row that replaces another takes its place. `Writing.rewrite` puts
all items into new files, without rows that have been removed or replaced.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.folder import MANIFEST, data_file
from hashgrove.index.items import Items
from hashgrove.index.keys import Consecutive, Keys, Texts
from hashgrove.index.manifest import Manifest
from hashgrove.index.plan import Plan
from hashgrove.index.prepared import ready_tables
from hashgrove.index.reader import CHUNK, Reader, content_of, generations
from hashgrove.index.stored_features import empty_table
from hashgrove.index.tables import Tables
from hashgrove.storage.formats import FileError

__all__ = ["Writing"]

NUMBER = 8  # bytes of an id that is an integer, or of the place where a text ends
PAIR = 16  # bytes of the numbers of a removed row and of the one that replaces it


class Writing:
    """A change that is being written. It counts as soon as `commit` has put its manifest in place.

    Attributes
    ----------
    now : Manifest
        The manifest after the change.
    """

    def __init__(self, reader: Reader, now: Manifest) -> None:
        self.now = now
        self._before, self._reader, self._folder = now, reader, reader.folder
        self._sizes: dict[str, int] = {}  # of files that have been written to: the bytes that counted before
        self._is_committing = False

    def items(self) -> Items:
        """Map the items after the change."""
        return self._reader.items(self.now)

    def features(self) -> tuple[NDArray[Any] | None, Callable[[], None] | None]:
        """Map the table of features after the change, and make a function that verifies it; None if there are none."""
        return self._reader.features(self.now)

    def tables(self) -> Tables:
        """Map the tables after the change, which have just been written."""
        return self._reader.map_tables(self.now)

    def commit(self) -> None:
        """Put the manifest in place, durably. All that can fail should have been done before."""
        if self._sizes.keys() - _files(self._before):
            self._folder.sync()  # a manifest must not name files whose names might be lost
        temporary = self._folder.write_temporary(self.now.content(), to_replace=MANIFEST)
        self._is_committing = True
        self._folder.rename(temporary, MANIFEST)
        self._folder.sync()
        self._folder.check_in_place()

    def may_be_committed(self) -> bool:
        """Whether the folder may hold the change already; to be asked when something has failed."""
        try:
            return self._is_committing and Manifest.read(self._folder) != self._before
        except FileError:
            return True

    def undo(self) -> None:
        """Free the room of what has been written, as far as that is possible."""
        files = _files(self._before)
        self._folder.remove(name for name in self._sizes if name not in files)
        for name in self._sizes.keys() & files:
            self._folder.cut(name, self._sizes[name])

    def append(
        self,
        codes: NDArray[np.uint8],
        ids: Keys,
        features: NDArray[Any] | None,
        removed: NDArray[np.int64],
        *,
        ordered: bool,
        model: str | None,
    ) -> None:
        """Append rows, and remove or replace others.

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
        now = replace(self.now, model=model)
        if features is not None and now.n_features == 0:
            now = self._new_features(now, empty_table(now.n_rows, features.dtype["values"].shape[0]))
        if len(codes):
            now = self._append_ids(replace(now, n_bytes=codes.shape[1], ordered=ordered), ids)
            if features is not None:
                size = now.n_rows * features.itemsize
                crc = self._append("features", now.features_generation, size, [features], now.features_crc)
                now = replace(now, features_crc=crc)
            now = replace(
                now,
                codes_crc=self._append("codes", now.generation, now.n_rows * now.n_bytes, [codes], now.codes_crc),
                n_rows=now.n_rows + len(codes),
            )
        elif not now.n_bytes and codes.shape[1]:
            now = replace(now, n_bytes=codes.shape[1])
        if len(removed):
            pairs = removed.astype("<i8")
            crc = self._append("removed", now.generation, PAIR * now.n_removed, [pairs], now.removed_crc)
            now = replace(now, removed_crc=crc, n_removed=now.n_removed + len(removed))
        self.now = now if now.tables_fit() else now.without_tables()

    def rewrite(self, items: Items) -> None:
        """Replace all rows by the items, in the order in which they were given, in new files.

        Their tables are written, too, unless items have been removed, which changes the positions of others.
        """
        generation = self._next_generation(self.now)
        ids, codes = items.in_order()
        now = replace(
            self.now.without_tables(), n_bytes=codes.shape[1], n_rows=len(codes), n_removed=0, n_features=0,
            ordered=ids.is_ascending(), generation=generation, features_generation=generation, removed_crc=0,
            features_crc=0, codes_crc=self._append("codes", generation, 0, [codes], 0),
        )  # fmt: skip
        now = self._write_ids(now, ids, generation)
        self._append("removed", generation, 0, [], 0)
        if items.features is not None:
            n_features = items.features.dtype["values"].shape[0]
            crc = self._append("features", generation, 0, items.feature_parts(CHUNK), 0)
            now = replace(now, n_features=n_features, features_crc=crc)
        if items.alive is None and (tables := ready_tables(items)) is not None:
            now = self._new_tables(now, tables)
        self.now = now

    def replace_tables(self, tables: Tables | Plan) -> None:
        """Write tables that hold the first items, as they are or as they are made."""
        self.now = self._new_tables(self.now, tables)

    def _new_tables(self, now: Manifest, tables: Tables | Plan) -> Manifest:
        """Write tables in a new file. They are left out if they would not hold the first items of the folder."""
        now = replace(now, n_tables=tables.n_tables, n_tabled=tables.n, n_distinct=tables.n_distinct)
        if not now.tables_fit():
            return now.without_tables()
        generation = self._next_generation(now)
        return replace(
            now, tables_generation=generation, tables_crc=self._append("tables", generation, 0, tables.arrays(), 0)
        )

    def replace_features(self, table: NDArray[Any]) -> None:
        """Replace the features of all rows."""
        self.now = self._new_features(self.now, table)

    def _new_features(self, now: Manifest, table: NDArray[Any]) -> Manifest:
        generation = self._next_generation(now)
        crc = self._append("features", generation, 0, [table], 0)
        n_features = table.dtype["values"].shape[0]
        return replace(now, features_generation=generation, n_features=n_features, features_crc=crc)

    def _append_ids(self, now: Manifest, ids: Keys) -> Manifest:
        """Append ids; all are written anew where those of the folder are stored in another way."""
        if now.n_rows == 0 or now.text_width or now.first_id is not None:
            ids = self._reader.keys(now, self._reader.map_ids(now)).joined(ids)
            is_stated = isinstance(ids, Consecutive) and ids.first == now.first_id
            return now if is_stated else self._write_ids(now, ids, self._next_generation(now))
        return self._append_keys(now, now.n_rows, ids)

    def _write_ids(self, now: Manifest, ids: Keys, generation: int) -> Manifest:
        """Write the ids of all rows in new files, unless they are consecutive, which the manifest states."""
        now = replace(
            now, ids_generation=generation, first_id=None, text_width=0, n_text_bytes=0, ids_crc=0, texts_crc=0
        )
        return replace(now, first_id=ids.first) if isinstance(ids, Consecutive) else self._append_keys(now, 0, ids)

    def _append_keys(self, now: Manifest, n_rows: int, ids: Keys) -> Manifest:
        """Append ids to the files, which hold ``n_rows`` ids of the same type."""
        generation, before = now.ids_generation, now.n_text_bytes
        if isinstance(ids, Texts):
            numbers = ids.ends + before
            crc = self._append("texts", generation, before, [ids.data], now.texts_crc)
            now = replace(now, n_text_bytes=before + len(ids.data), texts_crc=crc)
        else:
            numbers = ids.values()
        crc = self._append("ids", generation, NUMBER * n_rows, [numbers.astype("<i8", copy=False)], now.ids_crc)
        return replace(now, ids_crc=crc)

    def _next_generation(self, now: Manifest) -> int:
        return max(generations(now).values()) + 1

    def _append(self, name: str, generation: int, size: int, parts: Iterable[NDArray[Any]], crc: int) -> int:
        """Append arrays to the first ``size`` bytes of a file, durably; return the new checksum."""
        file = data_file(name, generation)

        def contents() -> Iterator[memoryview]:
            nonlocal crc
            for part in parts:
                content = content_of(np.ascontiguousarray(part))
                crc = zlib.crc32(content, crc)
                yield content

        self._sizes.setdefault(file, size)
        self._folder.append(file, size, contents())
        return crc


def _files(now: Manifest) -> set[str]:
    """The names of the files that a manifest names."""
    return {data_file(name, number) for name, number in generations(now).items() if number >= 0}
