"""Data sets: the paper's, the ones that stand in for them, and your own; each with labels and a split."""

from __future__ import annotations

from typing import Any

from hashgrove.datasets import cifar, digits, folders, idx, npz, tagprop
from hashgrove.datasets.base import Dataset
from hashgrove.datasets.catalogue import Entry, data_root
from hashgrove.datasets.folders import load_folder
from hashgrove.datasets.npz import load_npz
from hashgrove.formats import PathLike

__all__ = ["DATASETS", "Dataset", "Entry", "data_root", "load", "load_folder", "load_npz"]

DATASETS: dict[str, Entry] = {
    entry.name: entry for family in (digits, cifar, idx, tagprop, folders, npz) for entry in family.ENTRIES
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
    if name not in DATASETS:
        raise ValueError(f"The 'name' parameter must be one of {list(DATASETS)}. Got {name!r} instead.")
    folder = data_root(root)
    return DATASETS[name].checked(DATASETS[name].read(folder, **options), folder)
