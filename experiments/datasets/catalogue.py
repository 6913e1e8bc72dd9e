"""Entries of the registry: the files of a data set, the folders in which they may be, and how to get them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.datasets.base import Dataset
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, listed

__all__ = ["Entry", "Layout", "Remote", "data_root"]


def data_root(root: PathLike | None = None) -> Path:
    """The folder of data sets: ``root``, or else the environment variable HASHGROVE_DATA, or ~/.cache/hashgrove.

    >>> data_root("data")
    PosixPath('data')
    """
    return Path(root or os.environ.get("HASHGROVE_DATA") or "~/.cache/hashgrove").expanduser()


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes
    ----------
    file : str
        Its name on this machine.
    urls : tuple of str
        Its addresses, which are tried in turn.
    checksum : str
        The published checksum, as "md5:..." or "sha256:...".
    size : int
        Its number of bytes.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    size: int


@dataclass(frozen=True)
class Layout:
    """One form that the files of a data set come in: the files it consists of, and the function that reads them.

    Attributes
    ----------
    files : tuple of str
        Files or folders (these end in a slash) below the folder of the data set. Empty for data that come with a
        dependency.
    read : callable
        ``read(folder, entry, **options)`` gives the `Dataset`. Its keyword-only parameters are the options of the data
        set.
    """

    files: tuple[str, ...]
    read: Callable[..., Dataset]

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in ``folder``."""
        return [
            file
            for file in self.files
            if not ((folder / file).is_dir() if file.endswith("/") else (folder / file).is_file())
        ]

    def options(self) -> list[str]:
        """Names of the reader's options, except those that `functools.partial` has fixed."""
        parameters = inspect.signature(self.read).parameters.values()
        fixed = getattr(self.read, "keywords", {})
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in fixed]


@dataclass(frozen=True)
class Entry:
    """One data set of the registry.

    Parameters
    ----------
    name : str
        Its name in the registry.
    description : str
        What it holds, in a few words.
    labels : str
        What its rows are labelled with, such as "10 classes".
    n_train, n_query : int
        Number of rows to train on (and to search in), and number of queries.
    licence, source : str
        Its terms, and its home page.
    split : str
        Where the split into training rows and queries comes from.
    layouts : tuple of Layout
        The forms that its files come in, the preferred one first.
    check_rows : bool
        Whether files with another number of rows are refused; a truncated file may look complete otherwise.
    folders : tuple of str
        Folders below the root in which the files are looked for. By default a folder named after the data set, and the
        root itself.
    remotes : tuple of Remote
        Files that ``python -m experiments datasets fetch`` downloads; empty if users must get the data themselves.
    instructions : str
        How users get the data themselves, in one sentence. ``{place}`` stands for the folder to put them in.
    """

    name: str
    description: str
    labels: str
    n_train: int
    n_query: int
    licence: str
    source: str
    split: str
    layouts: tuple[Layout, ...]
    check_rows: bool = True
    folders: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()
    instructions: str = ""

    @property
    def is_embedded(self) -> bool:
        """Whether the data come with a dependency and need no files."""
        return not self.layouts[0].files

    def places(self, root: Path) -> list[Path]:
        """Folders in which the files are looked for."""
        return [root / folder for folder in self.folders or (self.name, "")]

    def find(self, root: Path) -> tuple[Path, Layout] | None:
        """The folder that has all files of a layout, and that layout; None if there is none."""
        for layout in self.layouts:
            for place in self.places(root):
                if not layout.missing(place):
                    return place, layout
        return None

    def options(self) -> list[str]:
        """Names of the options that `load_dataset` takes for this data set."""
        return list(dict.fromkeys(option for layout in self.layouts for option in layout.options()))

    def dataset(self, **fields: Any) -> Dataset:
        """A `Dataset` of these fields, with the name, licence and source of this entry."""
        return Dataset(name=self.name, licence=self.licence, source=self.source, **fields)

    def load(self, root: Path, **options: Any) -> Dataset:
        """Read the data set from the files below ``root``, and refuse it if rows are missing."""
        dataset = self.read(root, **options)
        rows = len(dataset.train), len(dataset.query)
        if self.check_rows and rows != (self.n_train, self.n_query):
            place, layout = self.find(root) or (root, self.layouts[0])
            raise FileError(
                f"{place / layout.files[0]}: {self.name} must have {self.n_train} training rows and {self.n_query} "
                f"queries. Got {rows[0]} and {rows[1]} instead."
            )
        return dataset

    def read(self, root: Path, **options: Any) -> Dataset:
        """Read the data set from the files below ``root``, however many rows they have."""
        found = self.find(root)
        if found is None:
            raise MissingFileError(self.explain_missing(root))
        place, layout = found
        for option in options:
            if option not in layout.options():
                raise ValueError(
                    f"The options of {self.name!r} must be of {listed(layout.options())}, as its files are "
                    f"{listed(list(layout.files))}. Got {option!r} instead."
                )
        return layout.read(place, self, **options)

    def explain_missing(self, root: Path) -> str:
        """Name the missing files, the folders in which they are expected and how to get them, in one line."""
        for place in self.places(root):
            for layout in self.layouts:
                missing = layout.missing(place)
                if len(missing) < len(layout.files):
                    return f"{place / missing[0]}: no such file, which {self.name} needs. {self.advice(root)}"
        forms = " or ".join(listed(list(layout.files)) for layout in self.layouts)
        places = " or ".join(map(str, self.places(root)))
        return f"{self.places(root)[0]}: no files of {self.name}. Expected {forms} in {places}. {self.advice(root)}"

    def advice(self, root: Path) -> str:
        """Say how to get the files."""
        if self.remotes:
            at = "" if root == data_root() else f" --root {root}"
            return f"Get it with: python -m experiments datasets fetch {self.name}{at}"
        return f"{self.instructions.format(place=self.places(root)[0])} Its home is {self.source}"
