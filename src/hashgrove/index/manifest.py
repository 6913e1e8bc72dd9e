"""The manifest of an index on disk: its files, how much of them counts, and their checksums.

The manifest is one small JSON file that is replaced atomically. A change of the index has happened when its manifest is
in place; bytes in the other files that no manifest speaks of do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hashgrove.codes import MAX_BYTES
from hashgrove.index.folder import MANIFEST, Folder
from hashgrove.index.ids import MAX_ID, MAX_TEXT, MIN_ID
from hashgrove.index.stored_features import MAX_FEATURES
from hashgrove.index.tables import table_limits
from hashgrove.storage.formats import PathLike, listed, one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["FORMAT", "Manifest", "is_index_folder"]

FORMAT = 2
MAX_SIZE = 2**16
TABLES = "n_tables", "n_tabled", "n_distinct", "tables_generation", "tables_crc"
NEW_IDS = "first_id", "n_text_bytes", "texts_crc"
# The fields that a format does not have. Release 0.1.0 reads format 1, which is written where it says everything.
LATER: dict[int, tuple[str, ...]] = {1: TABLES + NEW_IDS, 2: ()}


@dataclass(frozen=True)
class Manifest:
    """The content of a folder. A generation is in the name of the file that it belongs to.

    With ``first_id``, the id of row r is ``first_id + r``, and no ids are stored. If ids are texts, these have
    ``n_text_bytes`` bytes in all; in folders of earlier versions each has ``text_width``. Otherwise ids are int64.
    ``n_features`` is 0 if there are no features. ``ordered`` says that the ids ascend from row to row. A checksum is
    the CRC-32 of the bytes of a file that count. ``n_tables`` is the number of tables of a `MultiIndex`, 0 if there are
    none; they hold the first ``n_tabled`` items by id, which have ``n_distinct`` codes.
    """

    index: str
    n_bytes: int = 0
    n_rows: int = 0
    n_removed: int = 0
    text_width: int = 0
    n_features: int = 0
    ordered: bool = True
    generation: int = 0
    ids_generation: int = 0
    features_generation: int = 0
    model: str | None = None
    codes_crc: int = 0
    ids_crc: int = 0
    features_crc: int = 0
    removed_crc: int = 0
    n_tables: int = 0
    n_tabled: int = 0
    n_distinct: int = 0
    tables_generation: int = 0
    tables_crc: int = 0
    first_id: int | None = None
    n_text_bytes: int = 0
    texts_crc: int = 0

    def without_tables(self) -> Manifest:
        """The same content, without tables."""
        return replace(self, n_tables=0, n_tabled=0, n_distinct=0, tables_generation=0, tables_crc=0)

    def tables_fit(self) -> bool:
        """Whether tables that were written for some rows still hold the first items.

        New rows are behind the others only if the ids ascend; a row that is replaced or comes in between moves others.
        """
        return self.n_tabled == self.n_rows or (self.ordered and self.n_tabled < self.n_rows)

    def content(self) -> bytes:
        """The content of the file."""
        version = 2 if self.n_tables or self.n_text_bytes or self.first_id is not None else 1
        values = {name: value for name, value in asdict(self).items() if name not in LATER[version]}
        text = json.dumps({"format": version, **values}, sort_keys=True)
        content = json.dumps({"hashgrove-index": json.loads(text), "sha256": _digest(text)}, indent=1)
        return f"{content}\n".encode()

    @classmethod
    def read(cls, folder: Folder) -> Manifest:
        """Read and check the manifest of a folder."""
        name = folder.path / MANIFEST
        try:
            content = folder.read(MANIFEST, MAX_SIZE + 1)
        except FileNotFoundError as error:
            raise ModelFileError(f"{name}: cannot be read: {error.strerror}") from error
        try:
            outer = json.loads(content)
            values = dict(outer["hashgrove-index"])
            intact = _digest(json.dumps(values, sort_keys=True)) == outer["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelFileError(f"{name}: damaged: it must be the manifest of an index: {one_line(error)}") from error
        if not intact:
            raise ModelFileError(f"{name}: damaged: its content does not match its checksum")
        version = values.pop("format", None)
        if type(version) is not int or not 1 <= version <= FORMAT:
            raise ModelFileError(
                f"{name}: format version must be 1 or {FORMAT} for this version of hashgrove. "
                f"Got {repr(version)[:100]}."
            )
        new = {field.name: field.default for field in fields(cls) if field.name in LATER[version]}
        return _checked(name, new | values)


def _checked(name: Path, values: dict[str, Any]) -> Manifest:
    if values.keys() != {field.name for field in fields(Manifest)}:
        raise ModelFileError(f"{name}: damaged: it must have the fields of an index. Got {listed(sorted(values))}.")
    numbers = [value for field, value in values.items() if field not in ("index", "ordered", "model", "first_id")]
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise ModelFileError(f"{name}: damaged: its numbers must be whole and not negative")
    manifest = Manifest(**values)
    texts = isinstance(manifest.index, str) and isinstance(manifest.model, str | None)
    if not texts or type(manifest.ordered) is not bool or type(manifest.first_id) not in (int, type(None)):
        raise ModelFileError(f"{name}: damaged: its fields must have the right types")
    large = manifest.n_bytes > MAX_BYTES or manifest.n_features > MAX_FEATURES or not _ids_are_possible(manifest)
    if manifest.n_tables:
        few, many = table_limits(8 * manifest.n_bytes)
        large |= not few <= manifest.n_tables <= many or not 0 < manifest.n_distinct <= manifest.n_tabled
        large |= not manifest.tables_fit()
    if large or (manifest.n_rows and not manifest.n_bytes):
        raise ModelFileError(f"{name}: damaged: its numbers must be possible")
    return manifest


def _ids_are_possible(now: Manifest) -> bool:
    """Whether ids are stated in one way, and within their limits."""
    first = now.first_id
    if first is not None and not (MIN_ID <= first <= first + max(now.n_rows, 1) - 1 <= MAX_ID and now.ordered):
        return False
    if now.n_text_bytes and not now.n_rows <= now.n_text_bytes <= MAX_TEXT * now.n_rows:
        return False
    return now.text_width <= MAX_TEXT and sum(map(bool, (first is not None, now.n_text_bytes, now.text_width))) <= 1


def is_index_folder(path: PathLike) -> bool:
    """Whether there is a folder with a manifest.

    >>> is_index_folder("/")
    False
    """
    return os.path.isfile(os.path.join(os.fspath(path), MANIFEST))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
