"""The tagged images of TagProp (Guillaumin et al., ICCV 2009): annotations and features in INRIA's vector files.

A vector file holds one row after the other, each preceded by its length. A .hvecs file has 16-bit integers and lengths,
a .hvecs32 file 32-bit ones, and a .fvec file 32-bit floats and lengths; all are little-endian. The files are
NAME_{train,test}_{annot,Gist,DenseSift,...}, and NAME_dictionary.txt with the tags.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Dataset
from experiments.datasets.catalogue import Entry, Layout
from experiments.datasets.raw import open_file, read_lines
from hashgrove.runtime.parameters import OneOf, Several
from hashgrove.storage.formats import FileError, one_line

__all__ = ["ENTRIES", "FEATURES", "read_vectors"]

TYPES = {
    ".hvecs": ("<u2", "<u2"),
    ".hvecs32": ("<u4", "<u4"),
    ".fvec": ("<u4", "<f4"),
}  # types of the length and of the values
FEATURES = {
    **dict.fromkeys(
        [
            "DenseHue", "DenseHueV3H1", "DenseSift", "DenseSiftV3H1",
            "HarrisHue", "HarrisHueV3H1", "HarrisSift", "HarrisSiftV3H1",
        ],
        ".hvecs",
    ),
    "Gist": ".fvec",
    **dict.fromkeys(["Hsv", "HsvV3H1", "Lab", "LabV3H1", "Rgb", "RgbV3H1"], ".hvecs32"),
}  # fmt: skip
PARTS = ("train", "test")


def read_vectors(path: Path) -> NDArray[Any]:
    """Read a file of vectors of the same length; the ending of its name gives the type of the numbers.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "iaprtc12_train_annot.hvecs"
    >>> np.array([[2, 7, 8], [2, 9, 0]], "<u2").tofile(path)
    >>> read_vectors(path).tolist()
    [[7, 8], [9, 0]]
    """
    head, kind = map(np.dtype, TYPES[path.suffix])
    with open_file(path) as file:
        start = file.read(head.itemsize)
        size = os.fstat(file.fileno()).st_size
        length = int(np.frombuffer(start, head)[0]) if len(start) == head.itemsize else 0
        row = head.itemsize + length * kind.itemsize
        if length == 0 or size % row:
            raise FileError(
                f"{path}: must be vectors, each preceded by its length. Got {size} bytes, and "
                f"{length} as the first length."
            )
        file.seek(0)
        rows = np.fromfile(file, np.dtype([("length", head), ("values", kind, (length,))]))
    wrong = np.flatnonzero(rows["length"] != length)
    if wrong.size:
        raise FileError(
            f"{path}: all vectors must have the length {length} of the first. "
            f"Got {rows['length'][wrong[0]]} in row {wrong[0]}, counted from 0."
        )
    return np.ascontiguousarray(rows["values"])


def _read_matrix(path: Path) -> NDArray[Any]:
    """Read a text file of numbers, one line per row."""
    lines = [line.replace(",", " ") for line in read_lines(path)]
    if not lines:
        raise FileError(f"{path}: must be rows of numbers. Got an empty file.")
    try:
        return np.loadtxt(lines, ndmin=2, comments=None)
    except ValueError as error:
        raise FileError(f"{path}: must be rows of numbers, all of one length: {one_line(error)}") from error


def _stack(paths: list[Path], parts: list[NDArray[Any]]) -> NDArray[Any]:
    if parts[0].shape[1] != parts[1].shape[1]:
        raise FileError(
            f"{paths[1]}: must have {parts[0].shape[1]} columns, as {paths[0].name} has. Got {parts[1].shape[1]}."
        )
    return np.concatenate(parts)


def _read(folder: Path, entry: Entry, stem: str, *, features: str | Sequence[str] = "Gist") -> Dataset:
    return _read_tags(folder, entry, stem, features, tags="annot.hvecs", words="dictionary.txt")


def _read_mirflickr(
    folder: Path, entry: Entry, stem: str, *, features: str | Sequence[str] = "Gist", labels: str = "tags"
) -> Dataset:
    """Read MIRFLICKR, with the tags of its users or the 38 classes of its annotators."""
    OneOf(("tags", "classes")).check("labels", labels)
    if labels == "tags":
        return _read_tags(folder, entry, stem, features, tags="tags.hvecs", words="dictionary.txt")
    return _read_tags(folder, entry, stem, features, tags="classes.txt", words="classes.txt")


def _read_tags(
    folder: Path, entry: Entry, stem: str, features: str | Sequence[str], *, tags: str, words: str
) -> Dataset:
    Several(OneOf(tuple(FEATURES)), low=1, high=len(FEATURES), or_one=True).check("features", features)
    wanted = [features] if isinstance(features, str) else list(features)
    paths = [folder / f"{stem}_{part}_{tags}" for part in PARTS]
    read_part = _read_matrix if tags.endswith(".txt") else read_vectors
    parts = [read_part(path) for path in paths]
    labels = (_stack(paths, parts) > 0).astype(np.uint8)
    names = tuple(read_lines(folder / f"{stem}_{words}"))
    if len(names) != labels.shape[1]:
        raise FileError(
            f"{folder / f'{stem}_{words}'}: must have {labels.shape[1]} lines, one for each tag in "
            f"{paths[0].name}. Got {len(names)} instead."
        )
    columns = [_read_features(folder, stem, feature, [len(part) for part in parts]) for feature in wanted]
    X = columns[0] if len(columns) == 1 else np.concatenate([column.astype(np.float32) for column in columns], axis=1)
    n_train = len(parts[0])
    return entry.dataset(
        features=X, labels=labels, names=names, train=np.arange(n_train), query=np.arange(n_train, len(labels))
    )


def _read_features(folder: Path, stem: str, feature: str, n_rows: list[int]) -> NDArray[Any]:
    paths = [folder / f"{stem}_{part}_{feature}{FEATURES[feature]}" for part in PARTS]
    parts = [read_vectors(path) for path in paths]
    for path, part, n in zip(paths, parts, n_rows, strict=True):
        if len(part) != n:
            raise FileError(f"{path}: must have {n} rows, as many as the annotations have. Got {len(part)} instead.")
    return _stack(paths, parts)


def _entry(stem: str, *, description: str, n_tags: int, n_train: int, n_query: int, archive: str, **more: Any) -> Entry:
    """An entry; ``stem`` is the beginning of the names of its files."""
    annotations = tuple(f"{stem}_{part}_annot.hvecs" for part in PARTS)
    settings: dict[str, Any] = {
        "name": stem,
        "layouts": (Layout((f"{stem}_dictionary.txt", *annotations), partial(_read, stem=stem)),),
        **more,
    }
    return Entry(
        description=description,
        labels=f"{n_tags} tags",
        n_train=n_train,
        n_query=n_query,
        licence="not stated",
        source="http://lear.inrialpes.fr/people/guillaumin/data.php",
        split="given: the test rows are the queries",
        folders=(settings["name"], archive.removesuffix(".tar.bz2"), ""),
        instructions=f"Unpack {archive} into {{place}}.",
        **settings,
    )


ENTRIES = (
    _entry(
        "iaprtc12",
        description="photographs of IAPR TC-12, 15 kinds of features",
        n_tags=291,
        n_train=17_665,
        n_query=1_962,
        archive="iaprtc12.20091111.tar.bz2",
    ),
    _entry(
        "espgame",
        description="pictures of the ESP game, 15 kinds of features",
        n_tags=268,
        n_train=18_689,
        n_query=2_081,
        archive="espgame.20091111.tar.bz2",
    ),
    _entry(
        "mirflickr",
        description="photographs of MIRFLICKR-25000, 15 kinds of features",
        n_tags=457,
        n_train=12_500,
        n_query=12_500,
        archive="mirflickr.20101118.tar.bz2",
        check_rows=False,
        layouts=(
            Layout(
                ("mirflickr_dictionary.txt", "mirflickr_train_tags.hvecs", "mirflickr_test_tags.hvecs"),
                partial(_read_mirflickr, stem="mirflickr"),
            ),
        ),
    ),
    _entry(
        "corel5k",
        name="corel5k-tagprop",
        description="photographs of Corel 5k, 15 kinds of features",
        n_tags=260,
        n_train=4_500,
        n_query=499,
        archive="corel5k.20091111.tar.bz2",
    ),
)
