"""The files in the folder of an index: their names, checks that they are files, and removal of old ones."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hashgrove.storage.atomic import TEMPORARY
from hashgrove.storage.formats import FileError, PathLike

__all__ = ["LOCK", "MANIFEST", "MODEL", "check_files", "data_file", "remove_old_files"]

MANIFEST, LOCK = "manifest.json", "writer.lock"
MODEL = "model.hashgrove"
DATA_FILE = re.compile(r"(codes|ids|removed|features|tables)-([0-9]+)\.bin")


def data_file(folder: PathLike, name: str, generation: int) -> Path:
    """The path of a file of rows.

    >>> data_file("photos.hgi", "codes", 3).name
    'codes-3.bin'
    """
    return Path(folder) / f"{name}-{generation}.bin"


def check_files(folder: PathLike) -> None:
    """Refuse to write to a folder in which anything but a regular file has the name of a file of the index.

    Somebody else may have made the folder. A change would write to the file that a link leads to, wherever that is, and
    wait for ever for the reader of a pipe. To read through a link does no harm.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            ours = entry.name in (MANIFEST, LOCK, MODEL) or DATA_FILE.fullmatch(entry.name)
            if ours and not entry.is_file(follow_symlinks=False):
                raise FileError(
                    f"{entry.path}: must be a regular file for an index to be changed. "
                    "Got a link, a folder or a device. Copy the index, and change the copy."
                )


def remove_old_files(folder: PathLike, current: Mapping[str, int], *, temporary: bool) -> None:
    """Remove files of rows whose generation is not the current one; readers keep what they have mapped.

    Parameters
    ----------
    folder : path
    current : dict
        The generation of "codes", "ids", "removed", "features" and "tables".
    temporary : bool
        Whether to remove what killed writers left, too.
    """
    for path in Path(folder).iterdir():
        match = DATA_FILE.fullmatch(path.name)
        is_old = match is not None and int(match[2]) != current[match[1]]
        if is_old or (temporary and TEMPORARY.fullmatch(path.name)):
            with suppress(OSError):
                path.unlink()
