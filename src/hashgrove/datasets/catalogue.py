"""What is known of a data set before it is read: its files, where they are looked for, and how to get them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashgrove.datasets.base import Dataset
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, listed

__all__ = ["Entry", "Layout", "Remote", "data_root"]


def data_root(root: PathLike | None = None) -> Path:
    """The folder of data sets: ``root``, or else the environment variable HASHGROVE_DATA, or ~/.cache/hashgrove."""
    return Path(root or os.environ.get("HASHGROVE_DATA") or "~/.cache/hashgrove").expanduser()


@dataclass(frozen=True)
class Remote:
    """A file to download: its name here, its addresses (tried in turn), published checksum and size in bytes."""

    file: str
    urls: tuple[str, ...]
    checksum: str  # "md5:..." or "sha256:..."
    size: int


@dataclass(frozen=True)
class Layout:
    """One form that the files of a data set come in: what must be there, and what reads it.

    ``read(folder, entry, **options)`` gives the data set. ``needs`` are files or folders (these end in a slash) below
    ``folder``; none for data that come with a dependency.
    """

    needs: tuple[str, ...]
    read: Callable[..., Dataset]


@dataclass(frozen=True)
class Entry:
    """One data set of the registry.

    Parameters
    ----------
    name, what, labels, licence, source : str
        What it is called, what it holds, what its rows are labelled with, its terms and its home page.
    n_train, n_query : int
        Rows to train on (and to search in) and queries.
    layouts : tuple of Layout
        The forms that its files come in, the best one first.
    split : str
        Where the split is from.
    check_rows : bool
        Whether files with another number of rows are refused: a cut file may look whole otherwise.
    folders : tuple of str
        Where below the root the files may be; by default in a folder of the data set's name, or in the root itself.
    remotes : tuple of Remote
        What `hashgrove datasets fetch` downloads; empty for data that users must get themselves.
    how : str
        How users get it themselves, in one sentence; ``{place}`` is the folder for it.
    """

    name: str
    what: str
    labels: str
    n_train: int
    n_query: int
    licence: str
    source: str
    split: str
    layouts: tuple[Layout, ...]
    check_rows: bool = True
    folders: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = field(default=())
    how: str = ""

    def places(self, root: Path) -> list[Path]:
        """Folders in which the files are looked for."""
        return [root / folder for folder in self.folders or (self.name, "")]

    def find(self, root: Path) -> tuple[Path, Layout] | None:
        """The folder and the form in which the files are there, or None."""
        for layout in self.layouts:
            for place in self.places(root):
                if not _missing(place, layout):
                    return place, layout
        return None

    def options(self) -> list[str]:
        """Names of the options that `load` takes for this data set."""
        return list(dict.fromkeys(option for layout in self.layouts for option in _options(layout)))

    def dataset(self, **fields: Any) -> Dataset:
        """A `Dataset` of these fields, with the name, licence and source of this entry."""
        return Dataset(name=self.name, licence=self.licence, source=self.source, **fields)

    def read(self, root: Path, **options: Any) -> Dataset:
        """The data set from the files below ``root``."""
        found = self.find(root)
        if found is None:
            raise MissingFileError(self.absence(root))
        place, layout = found
        for option in options:
            if option not in _options(layout):
                raise ValueError(
                    f"The options of {self.name!r} must be of {listed(_options(layout))}, as its files are "
                    f"{listed(list(layout.needs))}. Got {option!r} instead."
                )
        return layout.read(place, self, **options)

    def checked(self, dataset: Dataset, root: Path) -> Dataset:
        """``dataset``, refused if rows are missing or too many."""
        rows = len(dataset.train), len(dataset.query)
        if self.check_rows and rows != (self.n_train, self.n_query):
            place, layout = self.find(root) or (root, self.layouts[0])
            raise FileError(
                f"{place / layout.needs[0]}: {self.name} must have {self.n_train} training rows and {self.n_query} "
                f"queries. Got {rows[0]} and {rows[1]} instead."
            )
        return dataset

    def absence(self, root: Path) -> str:
        """What is missing, where it is expected and how to get it, in one line."""
        for place in self.places(root):
            for layout in self.layouts:
                missing = _missing(place, layout)
                if len(missing) < len(layout.needs):
                    return f"{place / missing[0]}: no such file, which {self.name} needs. {self.advice(root)}"
        forms = " or ".join(listed(list(layout.needs)) for layout in self.layouts)
        places = " or ".join(map(str, self.places(root)))
        return f"{self.places(root)[0]}: no files of {self.name}. Expected {forms} in {places}. {self.advice(root)}"

    def advice(self, root: Path) -> str:
        """How to get the files."""
        if self.remotes:
            at = "" if root == data_root() else f" --root {root}"
            return f"Get it with: hashgrove datasets fetch {self.name}{at}"
        return f"{self.how.format(place=self.places(root)[0])} Its home is {self.source}"


def _options(layout: Layout) -> list[str]:
    """Keyword-only parameters of the reader, but for those that the layout itself has fixed by `functools.partial`."""
    parameters = inspect.signature(layout.read).parameters.values()
    fixed = getattr(layout.read, "keywords", {})
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in fixed]


def _missing(place: Path, layout: Layout) -> list[str]:
    return [need for need in layout.needs if not _is_there(place / need, folder=need.endswith("/"))]


def _is_there(path: Path, *, folder: bool) -> bool:
    return path.is_dir() if folder else path.is_file()
