"""`Store`: an index in a folder. Changes are appended, durable when they return, and seen by readers all at once.

The folder holds rows of codes, ids and features, and the numbers of rows that have been removed or replaced, each in a
file that only grows, and the manifest (`hashgrove.index.manifest`), which says how much of them counts. A `Writing`
(`hashgrove.index.writing`) is one change: it appends to the files, syncs them, maps them, and then replaces the
manifest. So a process that is killed at any moment leaves the index as it was before the change or after it, and a
reader that has mapped the files sees the index of one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

from hashgrove.index.folder import Folder, new_folder
from hashgrove.index.items import Items
from hashgrove.index.manifest import Manifest, is_index_folder
from hashgrove.index.reader import Reader, generations
from hashgrove.index.writing import Writing
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["Store"]

ATTEMPTS = 20  # to read a folder whose files are being replaced


class Store:
    """An index in a folder, as of one manifest.

    Parameters
    ----------
    folder : Folder
    manifest : Manifest
    lock : file, optional
        Held by the one process that may write; see `locked`.
    """

    def __init__(self, folder: Folder, manifest: Manifest, *, lock: BinaryIO | None = None) -> None:
        self.folder = folder
        self.manifest = manifest
        self.lock = lock
        self.reader = Reader(folder)
        self._failure: str | None = None  # of a change that has been written

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

        def fill(temporary: PathLike) -> None:
            writing = Writing(Reader(Folder(temporary)), manifest)
            writing.rewrite(items)
            writing.commit()

        if not is_index_folder(path):
            new_folder(path, fill)
            return
        with cls.locked(path) as store, store.change() as writing:
            writing.now = replace(writing.now, index=manifest.index, model=manifest.model)
            writing.rewrite(items)
            writing.commit()

    @classmethod
    def read(cls, path: PathLike) -> Store:
        """The index in a folder, for reading."""
        if not is_index_folder(path):
            if not os.path.exists(path):
                raise MissingFileError(f"{os.fspath(path)}: no such file or folder")
            raise ModelFileError(f"{os.fspath(path)}: must be the folder of an index. Got something else.")
        folder = Folder(path)
        return cls(folder, Manifest.read(folder))

    @classmethod
    def locked(cls, path: PathLike) -> Store:
        """The index in a folder, for writing; there can be one writer at a time. What a killed one left is removed."""
        store = cls.read(path)  # raises if there is no index
        store.folder.check_files()
        store.lock = store.folder.lock(f"{os.fspath(path)}: another process is writing to the index")
        try:
            store.manifest = Manifest.read(store.folder)
            store.folder.sync()  # a killed writer may have left a manifest that is not durable yet
        except BaseException:
            store.close()
            raise
        store.remove_old_files()
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

    def refuse_other_type(self, wanted: str) -> None:
        """Refuse an index of another class."""
        if self.manifest.index != wanted:
            raise ModelFileError(
                f"{self.folder.path}: must hold an index of type {wanted!r}. Got {self.manifest.index!r} instead."
            )

    def refreshed(self) -> Store | None:
        """The index as it is now, also if another folder has taken the name; None if it is unchanged."""
        if not self.folder.is_in_place():
            return self.read(self.folder.path)
        now = Manifest.read(self.folder)
        if now == self.manifest:
            return None
        store = Store(self.folder, now)
        store.reader = self.reader  # it knows what has been verified
        return store

    def items(self) -> Items:
        """Map the files. If another process replaces them meanwhile, its manifest is read again."""
        for _ in range(ATTEMPTS):
            try:
                return self.reader.items(self.manifest)
            except FileNotFoundError:
                self.manifest = Manifest.read(self.folder)
        raise ModelFileError(f"{self.folder.path}: damaged: the files that its manifest names are missing")

    @contextmanager
    def change(self) -> Iterator[Writing]:
        """Write a change, which is undone if an error occurs before it is committed.

        If one occurs afterwards, the folder may hold what the caller does not know of, so further changes are refused.
        """
        self._check_writable()
        known = self.reader.verified, self.reader.verified_features
        writing = Writing(self.reader, self.manifest)
        try:
            yield writing
        except BaseException as error:
            if writing.may_be_committed():
                self._failure = one_line(error)
            else:
                writing.undo()
                self.reader.verified, self.reader.verified_features = known
            raise
        before, self.manifest = self.manifest, writing.now
        if generations(before) != generations(writing.now):
            self.remove_old_files()

    def _check_writable(self) -> None:
        """Refuse changes if the folder may hold something else than the index that was loaded."""
        path = self.folder.path
        if self._failure is not None:
            raise FileError(
                f"{path}: an earlier change failed when it had been written: {self._failure}. "
                "Close the index and load it again to change it."
            )
        self.folder.check_in_place()
        if Manifest.read(self.folder) != self.manifest:
            raise FileError(f"{path}: has been changed by something else. Close the index and load it again.")

    def remove_old_files(self) -> None:
        """Remove files that the manifest does not name, and what killed writers left."""
        self.folder.remove_old_files(generations(self.manifest), temporary=self.lock is not None)
