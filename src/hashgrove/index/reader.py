"""`Reader`: maps the files of an index, and compares them with their checksums when they are first used."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.folder import Folder, data_file
from hashgrove.index.items import Items, read_only, without
from hashgrove.index.keys import Consecutive, Integers, Keys, Texts
from hashgrove.index.manifest import Manifest
from hashgrove.index.stored_features import table_type
from hashgrove.index.tables import Tables
from hashgrove.storage.formats import one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["CHUNK", "Reader", "content_of", "generations"]

CHUNK = 2**24  # bytes that are read or written at a time


class Reader:
    """Maps the files in the folder of an index, which are treated as untrusted.

    Parameters
    ----------
    folder : Folder
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.verified: Manifest | None = None  # up to where codes and ids are known to be right
        self.verified_features = -1, 0, 0  # generation, rows and checksum of features that are known to be right

    def map_file(self, name: str, now: Manifest) -> NDArray[Any]:
        """Map the part of a file that counts."""
        if generations(now)[name] < 0:
            return np.empty(0, np.uint8)
        type_, shape = {
            "codes": (np.dtype(np.uint8), (now.n_rows, now.n_bytes)),
            "ids": (np.dtype(f"S{now.text_width}" if now.text_width else "<i8"), (now.n_rows,)),
            "texts": (np.dtype(np.uint8), (now.n_text_bytes,)),
            "removed": (np.dtype("<i8"), (now.n_removed, 2)),
            "features": (table_type(now.n_features), (now.n_rows,)),
        }[name]
        content = self.folder.map(data_file(name, generations(now)[name]), math.prod(shape) * type_.itemsize)
        return content.view(type_).reshape(shape) if content.size else np.empty(shape, type_)

    def map_ids(self, now: Manifest) -> dict[str, NDArray[Any]]:
        """Map the files of the ids."""
        return {name: self.map_file(name, now) for name in ("ids", "texts")}

    def keys(self, now: Manifest, files: dict[str, NDArray[Any]]) -> Keys:
        """The ids in the order of the rows. They are read only if an earlier version wrote texts."""
        numbers, texts = read_only(files["ids"]), read_only(files["texts"])
        if now.first_id is not None:
            return Consecutive(now.first_id, now.n_rows)
        if now.text_width:
            return Texts.of(numbers.tolist())
        return Texts(texts, numbers) if now.n_text_bytes else Integers(numbers)

    def items(self, now: Manifest) -> Items:
        """Map the files; FileNotFoundError if one of them is not there."""
        codes, removed, files = self.map_file("codes", now), self.map_file("removed", now), self.map_ids(now)
        features, verify_features = self.features(now)
        self._check_removed(now, removed)
        ids = self.keys(now, files)
        verify = self._verifier(now, {"codes": codes, **files}, ids)
        items = Items(
            read_only(codes), ids, n_alive=now.n_rows, n_rows=now.n_rows, features=features, verify=verify,
            verify_features=verify_features, tables=(lambda: self.tables(now)) if now.n_tables else None,
        )  # fmt: skip
        gone = np.unique(removed[:, 0])
        if now.ordered:
            return without(items, gone)
        verify()  # the ids are read here, so they have to be right
        rows = ids.order()
        positions = np.empty_like(rows)
        positions[rows] = np.arange(len(rows))
        ranks = _ranks(now.n_rows, removed)
        items = replace(
            items, codes=read_only(codes[rows]), ids=ids.select(rows), rows=rows, verify=None,
            ranks=None if ranks is None else ranks[rows],
        )  # fmt: skip
        items = without(items, positions[gone])
        if (items.mask()[:-1] & items.ids.repeated()).any():
            raise self._damaged(data_file("ids", now.ids_generation), "an id must not occur twice")
        return items

    def features(self, now: Manifest) -> tuple[NDArray[Any] | None, Callable[[], None] | None]:
        """Map the table of features, and make a function that verifies it; None if there are no features."""
        if not now.n_features:
            return None, None
        table = self.map_file("features", now)
        return table, self._features_verifier(now, table)

    def tables(self, now: Manifest) -> Tables:
        """Map the tables and verify them; FileNotFoundError if they have been replaced."""
        tables, name = self.map_tables(now), data_file("tables", now.tables_generation)
        crc = 0
        for array in tables.arrays():
            crc = _crc(array, crc)
        if crc != now.tables_crc:
            raise self._damaged(name, "it does not match its checksum")
        if fault := tables.fault():
            raise self._damaged(name, fault)
        return tables

    def map_tables(self, now: Manifest) -> Tables:
        """Map the tables, which may be anything."""
        n_bits = 8 * now.n_bytes
        layout = Tables.layout(n_bits, now.n_tables, now.n_distinct, now.n_tabled)
        sizes = [math.prod(shape) * np.dtype(type_).itemsize for type_, shape in layout.values()]
        content = self.folder.map(data_file("tables", now.tables_generation), sum(sizes), whole=True)
        parts = np.split(content, np.cumsum(sizes)[:-1])
        arrays = (part.view(type_).reshape(shape) for part, (type_, shape) in zip(parts, layout.values(), strict=True))
        return Tables.from_arrays(n_bits, *arrays)

    def _damaged(self, name: str, why: str) -> ModelFileError:
        return ModelFileError(f"{self.folder.path / name}: damaged: {why}")

    def _check_removed(self, now: Manifest, removed: NDArray[np.int64]) -> None:
        """Refuse numbers of rows that no index writes."""
        name = data_file("removed", now.generation)
        if zlib.crc32(content_of(np.ascontiguousarray(removed))) != now.removed_crc:
            raise self._damaged(name, "it does not match its checksum")
        old, new = removed[:, 0], removed[:, 1]
        replaced = new >= 0
        if len(old) and not (old.min() >= 0 and max(old.max(), new.max()) < now.n_rows and new.min() >= -1):
            raise self._damaged(name, "it must name rows of the index")
        if (new[replaced] <= old[replaced]).any() or (replaced.any() and now.ordered):
            raise self._damaged(name, "a row must be replaced by a later one")

    def _features_verifier(self, now: Manifest, table: NDArray[Any]) -> Callable[[], None]:
        """Make a function that compares the features with their checksum; known rows are not read again."""

        def verify() -> None:
            generation, n_rows, crc = self.verified_features
            if generation != now.features_generation or n_rows > now.n_rows:
                n_rows, crc = 0, 0
            name, new = data_file("features", now.features_generation), table[n_rows:]
            if _crc(new, crc) != now.features_crc:
                raise self._damaged(name, "it does not match its checksum")
            scales = new["scale"][~np.isnan(new["scale"])]
            if not (np.isfinite(scales) & (scales >= 0)).all():
                raise self._damaged(name, "a scale must be a finite number and not negative")
            self.verified_features = now.features_generation, now.n_rows, now.features_crc

        return verify

    def _verifier(self, now: Manifest, files: dict[str, NDArray[Any]], ids: Keys) -> Callable[[], None]:
        """Make a function that compares the files with their checksums; known rows are not read again."""

        def verify() -> None:
            known = self.verified
            if known == now:
                return
            current = generations(now)
            same = known is not None and all(generations(known)[name] == current[name] for name in files)
            if known is None or not same or known.n_rows > now.n_rows:
                known = Manifest(now.index)  # of no rows
            for name, array in files.items():
                start = known.n_text_bytes if name == "texts" else known.n_rows
                if _crc(array[start:], getattr(known, f"{name}_crc")) != getattr(now, f"{name}_crc"):
                    raise self._damaged(data_file(name, current[name]), "it does not match its checksum")
            self._check_ids(now, ids, known.n_rows)
            self.verified = now

        return verify

    def _check_ids(self, now: Manifest, ids: Keys, start: int) -> None:
        """Refuse ids from row ``start`` on that no index has; a stranger's checksum says nothing about them."""
        name = data_file("ids", now.ids_generation)
        try:
            ids.check(start)
        except ValueError as error:
            raise self._damaged(name, f"its ids must be texts: {one_line(error)}") from error
        if now.ordered and not ids.is_ascending(start):
            raise self._damaged(name, "its ids must ascend, as its manifest says")


def generations(now: Manifest) -> dict[str, int]:
    """The generation of each file that a manifest names; -1 if there is no such file."""
    features = now.features_generation if now.n_features else -1
    tables = now.tables_generation if now.n_tables else -1
    ids = now.ids_generation if now.first_id is None else -1
    texts = now.ids_generation if now.n_text_bytes else -1
    rows = {"codes": now.generation, "ids": ids, "texts": texts, "removed": now.generation}
    return {**rows, "features": features, "tables": tables}


def _ranks(n_rows: int, removed: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The row that the item of each row got first; None if no row has been replaced.

    >>> _ranks(5, np.array([[1, 3], [0, -1], [3, 4]])).tolist()
    [0, 1, 2, 1, 1]
    """
    replaced = removed[removed[:, 1] >= 0]
    if len(replaced) == 0:
        return None
    ranks = np.arange(n_rows)
    ranks[replaced[:, 1]] = replaced[:, 0]
    while (further := ranks[ranks])[replaced[:, 1]].tolist() != ranks[replaced[:, 1]].tolist():
        ranks = further  # each round doubles the number of replacements that are followed
    return ranks


def content_of(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    content: Any = array.reshape(-1).view(np.uint8) if array.size else b""
    return memoryview(content)


def _crc(array: NDArray[Any], crc: int) -> int:
    """CRC-32 of a contiguous array, continued from the CRC-32 of what comes before it."""
    content = content_of(array)
    for start in range(0, len(content), CHUNK):
        crc = zlib.crc32(content[start : start + CHUNK], crc)
    return crc
