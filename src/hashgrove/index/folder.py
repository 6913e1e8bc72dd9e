"""`Folder`: the files of an index. All system calls on them are here.

The folder is held by a descriptor, where the system has such calls, and files are opened relative to it. So a folder
that takes its name later is neither read nor written to.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.locking import lock_file
from hashgrove.storage.atomic import TEMPORARY, check_replaceable, remove_stale, sync_folder, sync_name
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["DATA_FILE", "LOCK", "MANIFEST", "MODEL", "Folder", "data_file", "new_folder"]

MANIFEST, LOCK = "manifest.json", "writer.lock"
MODEL = "model.hashgrove"
DATA_FILE = re.compile(r"(codes|ids|texts|removed|features|tables)-([0-9]+)\.bin")
BINARY, DIRECTORY, NO_LINK, NO_WAIT = (
    getattr(os, f"O_{name}", 0) for name in ("BINARY", "DIRECTORY", "NOFOLLOW", "NONBLOCK")
)
BY_HANDLE = os.open in os.supports_dir_fd  # not on Windows


def data_file(name: str, generation: int) -> str:
    """The name of a file of rows.

    >>> data_file("codes", 3)
    'codes-3.bin'
    """
    return f"{name}-{generation}.bin"


class Folder:
    """A folder that exists, and the files in it.

    A file that does not exist raises FileNotFoundError; any other error of the system becomes a `FileError`.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self._absolute = os.path.abspath(path)  # the process may change to another folder
        self._handle: int | None = None
        if BY_HANDLE:
            try:
                self._handle = os.open(self._absolute, os.O_RDONLY | DIRECTORY)
            except OSError as error:
                raise FileError(f"{self.path}: cannot be read: {error.strerror}") from error
            weakref.finalize(self, os.close, self._handle)

    def is_in_place(self) -> bool:
        """Whether the folder still has its name, and has not been removed."""
        with suppress(FileNotFoundError), _errors(self.path, "read"):
            return self._handle is None or os.path.samestat(os.fstat(self._handle), os.stat(self._absolute))
        return False

    def check_in_place(self) -> None:
        """Refuse to go on if another folder, or none, has the name."""
        if not self.is_in_place():
            raise FileError(
                f"{self.path}: has been moved, removed or replaced since the index was loaded. "
                "Close the index and load it again."
            )

    def read(self, name: str, limit: int) -> bytes:
        """The first ``limit`` bytes of a file."""
        with self._opened(name, os.O_RDONLY | NO_WAIT) as file:
            return os.read(file, limit)

    def map(self, name: str, size: int, *, whole: bool = False) -> NDArray[np.uint8]:
        """Map the first bytes of a file, which must have them; if ``whole``, it must have no others.

        A file that is made shorter while it is mapped ends the process when it is read (SIGBUS). A writer never does.
        """
        with self._opened(name, os.O_RDONLY | NO_WAIT) as file:
            found = os.fstat(file).st_size
            if found < size or (whole and found != size):
                raise ModelFileError(f"{self.path / name}: damaged: must have {size} bytes. Got {found}.")
            if size == 0:
                return np.empty(0, np.uint8)
            return np.frombuffer(mmap.mmap(file, size, access=mmap.ACCESS_READ), np.uint8)

    def append(self, name: str, size: int, parts: Iterable[memoryview]) -> None:
        """Write behind the first ``size`` bytes of a file, which may be new if that is 0, and sync it."""
        with self._opened(name, os.O_RDWR | NO_LINK | (0 if size else os.O_CREAT), writing=True) as file:
            found = os.fstat(file).st_size
            if found < size:
                raise ModelFileError(f"{self.path / name}: damaged: must have {size} bytes. Got {found}.")
            if found > size:
                os.ftruncate(file, size)  # what a killed writer appended does not count
            os.lseek(file, size, os.SEEK_SET)
            for part in parts:
                _write(file, part)
            os.fsync(file)

    def cut(self, name: str, size: int) -> None:
        """Give back the room behind the first ``size`` bytes of a file, if that is possible."""
        with suppress(OSError, FileError), self._opened(name, os.O_RDWR | NO_LINK, writing=True) as file:
            if os.fstat(file).st_size > size:
                os.ftruncate(file, size)

    def write_temporary(self, content: bytes, *, to_replace: str) -> str:
        """Write the next content of a file to a temporary file, sync it, and return its name, for `rename`."""
        mode, temporary = check_replaceable(self._path(to_replace)), f".hashgrove-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with self._opened(temporary, flags, name=to_replace, writing=True) as file:
                if mode is not None and os.chmod in os.supports_fd:
                    os.chmod(file, stat.S_IMODE(mode))
                _write(file, memoryview(content))
                os.fsync(file)
        except BaseException:
            self.remove([temporary])
            raise
        return temporary

    def rename(self, temporary: str, name: str) -> None:
        """Put a temporary file in the place of another, atomically. It is durable after `sync`."""
        try:
            with _errors(self.path / name, "written"):
                os.replace(self._at(temporary), self._at(name), src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            self.remove([temporary])
            raise

    def sync(self) -> None:
        """Make the names of files durable."""
        with _errors(self.path, "written"):
            if self._handle is None:
                sync_folder(self.path)
            else:
                os.fsync(self._handle)

    def lock(self, message: str) -> BinaryIO:
        """Lock the folder for one writer; closing the file that is returned releases it."""

        def opened(_: str, flags: int) -> int:
            return os.open(self._at(LOCK), flags | NO_LINK, 0o666, dir_fd=self._handle)

        return lock_file(self.path / LOCK, message, opener=opened)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, as far as that is possible; readers keep what they have mapped."""
        for name in names:
            with suppress(OSError):
                os.unlink(self._at(name), dir_fd=self._handle)

    def remove_old_files(self, current: Mapping[str, int], *, temporary: bool) -> None:
        """Remove files of rows whose generation is not the current one, as far as that is possible.

        Parameters
        ----------
        current : dict
            The generation of "codes", "ids", "texts", "removed", "features" and "tables".
        temporary : bool
            Whether to remove what killed writers left, too.
        """
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(self._absolute if self._handle is None else self._handle)
        matches = ((name, DATA_FILE.fullmatch(name)) for name in names)
        self.remove([name for name, match in matches if match is not None and int(match[2]) != current[match[1]]])
        if temporary:
            self.remove([name for name in names if TEMPORARY.fullmatch(name)])

    def check_files(self) -> None:
        """Refuse to write to a folder in which anything but a regular file has the name of a file of the index.

        Somebody else may have made the folder. A change would write to the file that a link leads to, wherever that
        is, and wait for ever for the reader of a pipe. To read through a link does no harm.
        """
        with _errors(self.path, "read"), os.scandir(self._absolute if self._handle is None else self._handle) as found:
            for entry in found:
                ours = entry.name in (MANIFEST, LOCK, MODEL) or DATA_FILE.fullmatch(entry.name)
                if ours and not entry.is_file(follow_symlinks=False):
                    raise FileError(
                        f"{self.path / entry.name}: must be a regular file for an index to be changed. "
                        "Got a link, a folder or a device. Copy the index, and change the copy."
                    )

    def _path(self, name: str) -> str:
        return os.path.join(self._absolute, name)

    def _at(self, name: str) -> str:
        """A file for system calls that get the descriptor of the folder, too."""
        return self._path(name) if self._handle is None else name

    @contextmanager
    def _opened(self, file: str, flags: int, *, name: str | None = None, writing: bool = False) -> Iterator[int]:
        with _errors(self.path / (name or file), "written" if writing else "read"):
            handle = os.open(self._at(file), flags | BINARY, 0o666, dir_fd=self._handle)
            try:
                yield handle
            finally:
                os.close(handle)


@contextmanager
def _errors(path: Path, verb: str) -> Iterator[None]:
    """Name the file, and what cannot be done with it, in errors of the system."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be {verb}: {error.strerror or error}") from error


def _write(file: int, content: memoryview) -> None:
    while len(content):  # a disk that is nearly full takes a part
        content = content[os.write(file, content) :]


def new_folder(path: PathLike, fill: Callable[[Path], Any]) -> None:
    """Make a folder that ``fill`` fills under a temporary name, so that it appears whole, and durably."""
    target = Path(os.path.realpath(path))
    if target.exists():
        raise FileError(f"{os.fspath(path)}: must be an index, or not exist. Got something else.")
    temporary = target.with_name(f".hashgrove-{secrets.token_hex(8)}.tmp")
    try:
        remove_stale(target.parent)
        os.mkdir(temporary)
        fill(temporary)
        os.rename(temporary, target)
    except (FileError, OSError) as error:  # it may name a temporary file, which is gone
        cause = error.__cause__ if isinstance(error, FileError) else error
        reason = cause.strerror if isinstance(cause, OSError) else error
        raise FileError(f"{os.fspath(path)}: cannot be written: {reason}") from cause
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_name(target)
