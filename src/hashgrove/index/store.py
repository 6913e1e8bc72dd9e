"""`Store`: an index in a folder. Changes are appended, durable when they return, and seen by readers all at once.

The folder holds rows of codes, rows of ids, and the numbers of rows that have been removed, each in a file that only
grows, and the manifest (`hashgrove.index.manifest`), which says how much of them counts. A change appends to the files,
syncs them, and then replaces the manifest. So a process that is killed at any moment leaves the index as it was before
the change or after it, and a reader that has mapped the files sees the index of one moment. `rewrite` puts all rows
into new files, without the removed ones and in the order of the ids.
"""

from __future__ import annotations

import os
import secrets
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.folder import LOCK, check_files, data_file, remove_old_files
from hashgrove.index.ids import are_ascending, check_keys
from hashgrove.index.items import Items, in_memory, without
from hashgrove.index.locking import lock_file
from hashgrove.index.manifest import Manifest, is_index_folder
from hashgrove.storage.atomic import remove_stale, sync_folder
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["Store"]

WIDTH_STEP = 16  # the room for text ids grows by this many bytes, so that it rarely has to
CHUNK = 2**24  # bytes that are summed at a time
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
        self._verified = replace(
            manifest, n_rows=0, codes_crc=0, ids_crc=0
        )  # up to where the files are known to be right

    @classmethod
    def create(cls, path: PathLike, manifest: Manifest, codes: NDArray[np.uint8], ids: NDArray[Any]) -> None:
        """Write a new index, or replace the content of one, atomically.

        Parameters
        ----------
        path : path
            A folder that does not exist yet, or the folder of an index.
        manifest : Manifest
            Its ``index`` and ``model`` are used.
        codes, ids
            In ascending order of the ids, which are as in `Items`.
        """
        if is_index_folder(path):
            with cls.locked(path) as store:
                store.manifest = replace(store.manifest, index=manifest.index, model=manifest.model)
                store.rewrite(codes, ids)
            return
        target = Path(os.path.realpath(path))
        if target.exists():
            raise FileError(f"{os.fspath(path)}: must be an index, or not exist. Got something else.")
        temporary = target.with_name(f".hashgrove-{secrets.token_hex(8)}.tmp")
        try:
            remove_stale(target.parent)
            temporary.mkdir()
            cls(temporary, manifest).rewrite(codes, ids)
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
            kind = ModelFileError if os.path.exists(folder) else MissingFileError
            raise kind(f"{os.fspath(folder)}: must be the folder of an index. There is none.")
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
                return self._map()
            except FileNotFoundError:
                self.manifest = Manifest.read(self.folder)
        raise ModelFileError(f"{self.folder}: damaged: the files that its manifest names are missing")

    def append(
        self,
        codes: NDArray[np.uint8],
        ids: NDArray[Any],
        removed: NDArray[np.int64],
        *,
        ordered: bool,
        model: str | None,
    ) -> None:
        """Append rows and remove others, in one durable step; ``ordered`` says whether the ids ascend still."""
        now = replace(self.manifest, model=model)
        if len(codes):
            now = replace(now, n_bytes=codes.shape[1], ordered=ordered)
            now = self._fit_ids(now, ids)
            keys = _bytes_of(ids.astype(_id_type(now)))
            now = replace(
                now,
                codes_crc=self._append(
                    "codes", now.generation, now.n_rows * now.n_bytes, codes.tobytes(), now.codes_crc
                ),
                ids_crc=self._append("ids", now.ids_generation, now.n_rows * _id_type(now).itemsize, keys, now.ids_crc),
                n_rows=now.n_rows + len(codes),
            )
        elif not now.n_bytes and codes.shape[1]:
            now = replace(now, n_bytes=codes.shape[1])
        if len(removed):
            numbers = _bytes_of(removed.astype("<i8"))
            crc = self._append("removed", now.generation, 8 * now.n_removed, numbers, now.removed_crc)
            now = replace(now, removed_crc=crc, n_removed=now.n_removed + len(removed))
        now.write(self.folder)
        widened = now.ids_generation != self.manifest.ids_generation
        self.manifest = now
        if widened:
            self._remove_old_files()

    def rewrite(self, codes: NDArray[np.uint8], ids: NDArray[Any]) -> None:
        """Replace all rows by these, in ascending order of the ids, in new files; remove the old files."""
        generation = max(self.manifest.generation, self.manifest.ids_generation) + 1
        width = -(-ids.dtype.itemsize // WIDTH_STEP) * WIDTH_STEP if ids.dtype.kind == "S" and len(ids) else 0
        now = replace(
            self.manifest, n_bytes=codes.shape[1], n_rows=len(codes), n_removed=0, text_width=width, ordered=True,
            generation=generation, ids_generation=generation, removed_crc=0,
        )  # fmt: skip
        keys = np.ascontiguousarray(ids.astype(_id_type(now)))
        crcs = []
        for name, array in (("codes", np.ascontiguousarray(codes)), ("ids", keys), ("removed", np.empty(0, np.uint8))):
            crcs.append(self._append(name, generation, 0, _content(array), 0))
        now = replace(now, codes_crc=crcs[0], ids_crc=crcs[1])
        now.write(self.folder)
        self.manifest = now
        self._remove_old_files()

    def _append(self, name: str, generation: int, size: int, content: bytes | memoryview, crc: int) -> int:
        """Append to the first ``size`` bytes of a file, durably; return the new checksum."""
        path = data_file(self.folder, name, generation)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            with open(handle, "r+b") as file:
                file.truncate(size)  # what a killed writer appended does not count
                file.seek(size)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from error
        sync_folder(self.folder)
        return zlib.crc32(content, crc)

    def _fit_ids(self, now: Manifest, ids: NDArray[Any]) -> Manifest:
        """Make the rows of ids wide enough for new texts; they are rewritten if they are not."""
        if ids.dtype.kind != "S" or 0 < ids.dtype.itemsize <= now.text_width:
            return now
        width = -(-ids.dtype.itemsize // WIDTH_STEP) * WIDTH_STEP
        wider = replace(now, text_width=width, ids_generation=max(now.generation, now.ids_generation) + 1)
        old = np.empty(0, _id_type(wider)) if not now.n_rows else self._map_file("ids", now).astype(_id_type(wider))
        return replace(wider, ids_crc=self._append("ids", wider.ids_generation, 0, _bytes_of(old), 0))

    def _map_file(self, name: str, now: Manifest) -> NDArray[Any]:
        """Map the part of a file that counts."""
        type_, n_rows, n_columns, generation = {
            "codes": (np.dtype(np.uint8), now.n_rows, now.n_bytes, now.generation),
            "ids": (_id_type(now), now.n_rows, 1, now.ids_generation),
            "removed": (np.dtype("<i8"), now.n_removed, 1, now.generation),
        }[name]
        path, size = data_file(self.folder, name, generation), n_rows * n_columns * type_.itemsize
        if os.path.getsize(path) < size:
            raise _damaged(path, f"must have {size} bytes. Got {os.path.getsize(path)}.")
        if size == 0:
            return np.empty((n_rows, n_columns) if name == "codes" else n_rows, type_)
        mapped = np.memmap(path, type_, "r", shape=(n_rows, n_columns))
        return np.asarray(mapped if name == "codes" else mapped[:, 0])

    def _map(self) -> Items:
        now = self.manifest
        codes, ids, removed = (self._map_file(name, now) for name in ("codes", "ids", "removed"))
        if zlib.crc32(_bytes_of(removed)) != now.removed_crc:
            raise _damaged(data_file(self.folder, "removed", now.generation), "it does not match its checksum")
        if len(removed) and not (removed.min() >= 0 and removed.max() < now.n_rows):
            raise _damaged(data_file(self.folder, "removed", now.generation), "it must name rows of the index")
        verify = self._verifier(now, codes, ids)
        rows = None
        if not now.ordered:
            verify()  # the ids are read here, so they have to be right
            rows = np.argsort(ids, kind="stable")
            codes, ids = codes[rows], ids[rows]
        items = replace(in_memory(codes, ids, rows), verify=None if rows is not None else verify)
        positions = np.unique(removed.astype(np.int64))
        if rows is not None:
            place = np.empty_like(rows)
            place[rows] = np.arange(len(rows))
            positions = place[positions]
        items = without(items, positions)
        if rows is not None and (items.mask()[:-1] & (ids[1:] == ids[:-1])).any():
            raise _damaged(data_file(self.folder, "ids", now.ids_generation), "an id must not occur twice")
        return items

    def _verifier(self, now: Manifest, codes: NDArray[np.uint8], ids: NDArray[Any]) -> Callable[[], None]:
        """Make a function that compares the files with their checksums; known rows are not read again."""

        def verify() -> None:
            known, n_rows = self._verified, 0
            if (known.generation, known.ids_generation) == (now.generation, now.ids_generation):
                n_rows = known.n_rows if known.n_rows <= now.n_rows else 0
            if known == now:
                return
            for name, array, start, crc, number in (
                ("codes", codes, known.codes_crc if n_rows else 0, now.codes_crc, now.generation),
                ("ids", ids, known.ids_crc if n_rows else 0, now.ids_crc, now.ids_generation),
            ):
                if _crc(array[n_rows:], start) != crc:
                    raise _damaged(data_file(self.folder, name, number), "it does not match its checksum")
            self._check_ids(now, ids, n_rows)
            self._verified = now

        return verify

    def _check_ids(self, now: Manifest, ids: NDArray[Any], start: int) -> None:
        """Refuse ids from row ``start`` on that no index has; a stranger's checksum says nothing about them."""
        path = data_file(self.folder, "ids", now.ids_generation)
        try:
            check_keys(ids[start:])
        except ValueError as error:
            raise _damaged(path, f"its ids must be texts: {one_line(error)}") from error
        if now.ordered and not are_ascending(ids[max(start - 1, 0) :]):
            raise _damaged(path, "its ids must ascend, as its manifest says")

    def _remove_old_files(self) -> None:
        """Remove files that the manifest does not name, and what killed writers left."""
        now = self.manifest
        current = {"codes": now.generation, "ids": now.ids_generation, "removed": now.generation}
        remove_old_files(self.folder, current, temporary=self.lock is not None)


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path}: damaged: {why}")


def _id_type(manifest: Manifest) -> np.dtype[Any]:
    return np.dtype(f"S{manifest.text_width}") if manifest.text_width else np.dtype("<i8")


def _bytes_of(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _content(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    content: Any = array.reshape(-1).view(np.uint8) if array.size else b""
    return memoryview(content)


def _crc(array: NDArray[Any], crc: int) -> int:
    """CRC-32 of a contiguous array, continued from the CRC-32 of what comes before it."""
    content = _content(array)
    for start in range(0, len(content), CHUNK):
        crc = zlib.crc32(content[start : start + CHUNK], crc)
    return crc
