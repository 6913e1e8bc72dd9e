"""Data sets: the paper's, the ones that stand in for them, and your own; each with labels and a split."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hashgrove.datasets import cifar, codebook, digits, folders, idx, npz, tagprop
from hashgrove.datasets.base import Dataset
from hashgrove.datasets.catalogue import Entry, data_root
from hashgrove.datasets.download import DownloadError, Progress, download_file
from hashgrove.datasets.folders import load_folder
from hashgrove.datasets.npz import load_npz
from hashgrove.storage.formats import FileError, PathLike, one_line

__all__ = ["DATASETS", "Dataset", "DownloadError", "Entry", "data_root", "fetch", "load", "load_folder", "load_npz"]

DATASETS: dict[str, Entry] = {
    entry.name: entry for family in (digits, cifar, idx, tagprop, folders, npz, codebook) for entry in family.ENTRIES
}


def load(name: str, *, root: PathLike | None = None, **options: Any) -> Dataset:
    """Load a data set of the registry from the files on this machine.

    Parameters
    ----------
    name : str
        One of `DATASETS`; ``hashgrove datasets list`` shows them.
    root : path, optional
        The folder of data sets. By default the environment variable HASHGROVE_DATA, or ~/.cache/hashgrove.
    **options
        What the data set lets choose, such as its kind of features; docs/datasets.md has them.

    Returns
    -------
    Dataset

    Raises
    ------
    MissingFileError
        If the files are not there; it says where they are expected and how to get them.
    FileError
        If a file is damaged, cut, or not what it should be.

    Examples
    --------
    >>> load("digits")
    Dataset('digits': 1797 rows, 64 features, 10 classes; 1200 to train, 1200 to search, 597 queries)
    >>> load("digits", n_query=100).X_query.shape
    (100, 64)
    """
    entry, folder = _entry(name), data_root(root)
    return entry.checked(entry.read(folder, **options), folder)


def fetch(
    name: str,
    *,
    root: PathLike | None = None,
    report: Callable[[str], AbstractContextManager[Progress]] = lambda file: nullcontext(lambda done, total: None),
) -> list[Path]:
    """Download the files of a data set, those that are not there yet; an interrupted download goes on where it was.

    Parameters
    ----------
    name : str
        One of `DATASETS` that can be downloaded.
    root : path, optional
        As in `load`; the files go to a folder of the name of the data set below it, which is made.
    report : callable, optional
        Given the name of a file, it makes a context manager whose value is called with the bytes that are here and
        the bytes in all.

    Returns
    -------
    list of Path
        The files.
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
    if name not in DATASETS:
        raise ValueError(f"The 'name' parameter must be one of {list(DATASETS)}. Got {name!r} instead.")
    return DATASETS[name]
