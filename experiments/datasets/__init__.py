"""Data sets with labels and a split: those of the paper, replacements for some of them, and your own.

A new data set is one file with a tuple ``ENTRIES``, and the name of that file in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.datasets.base import Dataset
from experiments.datasets.catalogue import Entry, data_root
from experiments.datasets.download import DownloadError, Progress, download_file
from experiments.datasets.folders import load_folder
from experiments.datasets.npz import load_npz
from hashgrove.runtime.parameters import OneOf
from hashgrove.storage.formats import FileError, PathLike, one_line

__all__ = [
    "DATASETS",
    "Dataset",
    "DownloadError",
    "Entry",
    "data_root",
    "fetch",
    "load_dataset",
    "load_folder",
    "load_npz",
]

FAMILIES = ("digits", "cifar", "idx", "tagprop", "folders", "npz", "codebook")
DATASETS: dict[str, Entry] = {
    entry.name: entry for family in FAMILIES for entry in import_module(f"{__name__}.{family}").ENTRIES
}


def load_dataset(name: str, *, root: PathLike | None = None, **options: Any) -> Dataset:
    """Load a data set of the registry from the files on this machine.

    Parameters
    ----------
    name : str
        One of `DATASETS`; ``python -m experiments datasets list`` shows them.
    root : path, optional
        The folder of data sets. By default the environment variable HASHGROVE_DATA, or else ~/.cache/hashgrove.
    **options
        Options of the data set, such as which features to load; docs/datasets.md lists them.

    Returns
    -------
    Dataset

    Raises
    ------
    MissingFileError
        If the files are missing; the message says where they are expected and how to get them.
    FileError
        If a file is damaged, truncated, or of another kind.

    Examples
    --------
    >>> load_dataset("digits")
    Dataset('digits': 1797 rows, 64 features, 10 classes; 1200 to train, 1200 to search, 597 queries)
    >>> load_dataset("digits", n_query=100).X_query.shape
    (100, 64)
    """
    return _entry(name).load(data_root(root), **options)


def fetch(
    name: str,
    *,
    root: PathLike | None = None,
    report: Callable[[str], AbstractContextManager[Progress]] = lambda file: nullcontext(lambda done, total: None),
) -> list[Path]:
    """Download those files of a data set that are missing; an interrupted download continues where it stopped.

    Parameters
    ----------
    name : str
        One of `DATASETS` that can be downloaded.
    root : path, optional
        As in `load_dataset`. The files go into a folder below it that is named after the data set and is created if
        needed.
    report : callable, optional
        Takes the name of a file and returns a context manager. The value of the context manager is called with the
        number of bytes that have arrived and the number of bytes in total.

    Returns
    -------
    list of Path
        The paths of the files.
    """
    entry = _entry(name)
    if not entry.remotes:
        raise DownloadError(f"{name}: cannot be downloaded from here. {entry.advice(data_root(root))}")
    folder = entry.places(data_root(root))[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or one_line(error)}") from error
    for remote in entry.remotes:
        with report(remote.file) as progress:
            path = folder / remote.file
            download_file(remote.urls, path, checksum=remote.checksum, size=remote.size, progress=progress)
    return [folder / remote.file for remote in entry.remotes]


def _entry(name: str) -> Entry:
    return DATASETS[OneOf(tuple(DATASETS)).check("name", name)]
