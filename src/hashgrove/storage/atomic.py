"""Atomic writes: a file has either its old content or all of the new one, never a part."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hashgrove.storage.formats import FileError, PathLike, one_line

__all__ = ["TEMPORARY", "atomic_write", "check_replaceable", "exchange", "remove_stale", "sync_folder", "sync_name"]

TEMPORARY = re.compile(r"\.hashgrove-[0-9a-f]{16}\.tmp")
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}  # of folders that cannot be synced
EXCHANGE, AT_CWD = 2, -100  # of Linux's renameat2
STALE_SECONDS = 24 * 3600  # a temporary file that was not written to for so long belongs to a process that was killed


def check_replaceable(path: PathLike) -> int | None:
    """Refuse an output that exists but is a folder, a device or write-protected; return the mode of a file.

    Replacing a file needs no permission to write to it, so write protection has to be looked at. Even root is refused.

    >>> check_replaceable("no-such-file")
    >>> check_replaceable("/")
    Traceback (most recent call last):
        ...
    hashgrove.storage.formats.FileError: /: must be a regular file. Got a folder or a device.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise FileError(f"{os.fspath(path)}: must be a regular file. Got a folder or a device.")
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
        raise FileError(f"{os.fspath(path)}: cannot be written: the file is read-only")
    return mode


@contextmanager
def atomic_write(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing so that it has either its old content or all of the new one, never a part.

    The bytes go to a temporary file in the same folder. It replaces ``path`` when the ``with`` statement ends, and is
    deleted if an error occurs before. Symbolic links are followed and permissions are kept, as with ``open``. Temporary
    files that killed processes left in the folder more than a day ago are deleted, too.

    Parameters
    ----------
    path : path
        An existing regular file that is not read-only, or a new file in an existing folder.

    Yields
    ------
    file
        A binary file object.

    Raises
    ------
    FileError
        If the file cannot be written, for example because the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "greeting"
    >>> with atomic_write(path) as file:
    ...     _ = file.write(b"hello")
    >>> path.read_bytes()
    b'hello'
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".hashgrove-{secrets.token_hex(8)}.tmp")
    try:
        mode = check_replaceable(path)
        remove_stale(target.parent)
        with open(temporary, "xb") as file:
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        # An error of the disk names no file: "No space left on device". One that names another is about that file.
        if isinstance(error, OSError) and error.filename in (None, os.fspath(temporary), path, os.fspath(path)):
            raise FileError(f"{os.fspath(path)}: cannot be written: {error.strerror or one_line(error)}") from error
        raise
    sync_name(path)


def exchange(one: PathLike, other: PathLike) -> None:
    """Exchange the names of two files or folders on one disk, durably, in one step: both exist at any moment.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a", "b"):
    ...     _ = (folder / name).write_text(f"was {name}")
    >>> exchange(folder / "a", folder / "b")
    >>> (folder / "a").read_text()
    'was b'
    """
    names = [os.fsencode(os.path.realpath(path)) for path in (one, other)]
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux, glibc 2.28 or musl 1.2.6
    if rename is None or rename(AT_CWD, names[0], AT_CWD, names[1], EXCHANGE):
        reason = os.strerror(errno.ENOSYS if rename is None else ctypes.get_errno())
        raise FileError(f"{os.fspath(other)}: cannot be exchanged with {os.fspath(one)} in one step: {reason}")
    for path in (one, other):
        sync_name(path)


def remove_stale(folder: Path) -> None:
    """Delete the temporary files and folders of killed processes; another process may be faster, or own them."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if TEMPORARY.fullmatch(entry.name):
                with suppress(OSError):
                    if time.time() - _last_written(entry) > STALE_SECONDS:
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(entry.path)
                        else:
                            os.unlink(entry.path)


def _last_written(entry: os.DirEntry[str]) -> float:
    """Time of the last write to a file, or to a folder and the files in it."""
    times = [entry.stat(follow_symlinks=False).st_mtime]
    if entry.is_dir(follow_symlinks=False):
        with os.scandir(entry.path) as files:
            times += [file.stat(follow_symlinks=False).st_mtime for file in files]
    return max(times)


def sync_name(path: PathLike) -> None:
    """Make the name of a file or folder durable that has just got it."""
    try:
        sync_folder(Path(os.path.realpath(path)).parent)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise FileError(f"{os.fspath(path)}: is written, but may not survive a loss of power: {reason}") from error


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable.

    Where folders cannot be opened or synced at all (Windows, some network file systems), there is nothing to do. Any
    other error means that the new names may not survive a loss of power, and is raised.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        if os.name == "nt":
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(handle)
