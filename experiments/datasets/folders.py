"""Folders of image files: SUN397, ILSVRC2012, and any folder with one folder per class. Files are not decoded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Dataset, seeded_split
from experiments.datasets.catalogue import Entry, Layout
from experiments.datasets.raw import read_lines
from hashgrove.runtime.parameters import Integer
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line

__all__ = ["ENTRIES", "IMAGE_ENDINGS", "load_folder"]

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
QUERY_FOLDERS = ("query", "test", "val")


def load_folder(path: PathLike, *, n_query: int | None = None, seed: int = 0) -> Dataset:
    """Load a folder of your own image files, with one folder per class.

    If the folder holds ``train`` and one of ``query``, ``test`` and ``val``, these are the split, and each of them
    holds the folders of the classes. Otherwise queries are drawn at random.

    Parameters
    ----------
    path : path
        The folder. Files that are no images and names that begin with a dot are left out.
    n_query : int, optional
        Number of queries if the folder has no split; by default a tenth of the images.
    seed : int
        The same seed draws the same queries.

    Returns
    -------
    Dataset
        Its images are paths, sorted by class and name. A class is a number, in the order of the classes' names.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
    ...     (folder / name).parent.mkdir(exist_ok=True)
    ...     (folder / name).touch()
    >>> pets = load_folder(folder)
    >>> pets.names, pets.labels.tolist(), len(pets.query)
    (('cat', 'dog'), [0, 0, 1], 1)
    """
    folder = Path(path)
    queries = [name for name in QUERY_FOLDERS if (folder / "train").is_dir() and (folder / name).is_dir()]
    if not queries:
        names = _folders(folder)
        images, labels = _class_images(folder, names)
        train, query = _split(folder, len(labels), n_query, seed)
    else:
        names = _folders(folder / "train")
        strange = sorted(set(_folders(folder / queries[0])) - set(names))
        if strange:
            raise FileError(
                f"{folder / queries[0]}: classes must be those of train. Got {strange[0]!r}, which train does not have."
            )
        images, labels = _class_images(folder / "train", names)
        more, more_labels = _class_images(folder / queries[0], names)
        train, query = np.arange(len(images)), np.arange(len(images), len(images) + len(more))
        images, labels = images + more, np.concatenate([labels, more_labels])
    return Dataset(
        name=folder.resolve().name,
        images=images,
        labels=labels,
        names=tuple(names),
        train=train,
        query=query,
        source=str(path),
    )


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except FileNotFoundError as error:
        raise MissingFileError(f"{folder}: no such folder") from error
    except OSError as error:
        raise FileError(f"{folder}: cannot be read: {error.strerror or one_line(error)}") from error


def _class_images(folder: Path, names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Paths of the images in the folders ``names``, and the number of each image's folder; folders may be missing."""
    images: list[str] = []
    counts = []
    for name in names:
        found: list[str] = []
        if (folder / name).is_dir():
            with os.scandir(folder / name) as entries:
                found = [entry.path for entry in entries if _is_image(entry.name) and entry.is_file()]
        images += sorted(found)
        counts.append(len(found))
    if not images:
        raise FileError(f"{folder}: must hold folders of images, one per class. Got no image.")
    return tuple(images), np.repeat(np.arange(len(names)), counts)


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def _split(folder: Path, n_rows: int, n_query: int | None, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if n_rows < 2:
        raise FileError(f"{folder}: must hold at least 2 images, one to train on and one query. Got {n_rows}.")
    return seeded_split(n_rows, n_query, seed=seed)


def _read_sun(
    folder: Path, entry: Entry, *, partition: int | None = None, n_query: int = 8000, seed: int = 0
) -> Dataset:
    """Read SUN397, with the paper's protocol of 8,000 random queries or one of the ten partitions of its authors."""
    top = folder / "SUN397"
    listing = _sun_list(folder, "ClassName.txt")
    names = [line.removeprefix("/") for line in read_lines(listing)]
    if any(".." in name.split("/") or name.startswith("/") for name in names) or len(set(names)) != len(names):
        raise FileError(f"{listing}: must list each class once, in the form /a/abbey. It does not.")
    images, labels = _class_images(top, names)
    if partition is None:
        train, query = _split(top, len(labels), n_query, seed)
    else:
        Integer(1, 10, or_none=True).check("partition", partition)
        row_of = {os.path.relpath(image, top).replace(os.sep, "/"): row for row, image in enumerate(images)}
        train, query = (_listed_rows(folder, row_of, f"{part}_{partition:02}.txt") for part in ("Training", "Testing"))
        common = np.intersect1d(train, query)
        if common.size:
            raise FileError(f"{folder}: partition {partition} must not have an image in both lists. Got {common.size}.")
    return entry.dataset(images=images, labels=labels, names=tuple(names), train=train, query=query)


def _sun_list(folder: Path, file: str) -> Path:
    """Path of a list of SUN397; some are in the archive of the images, others in that of the partitions."""
    places = [folder / "Partitions" / file, folder / "SUN397" / file, folder / file]
    return next((place for place in places if place.is_file()), places[0])


def _listed_rows(folder: Path, row_of: dict[str, int], file: str) -> NDArray[np.int64]:
    """Rows of the images in a list of SUN397, which has one image per line in the form /a/abbey/sun_x.jpg."""
    path = _sun_list(folder, file)
    rows = []
    for line in read_lines(path):
        if line.removeprefix("/") not in row_of:
            raise FileError(f"{path}: must list images of SUN397. Got {line[:100]!r}, which is not there.")
        rows.append(row_of[line.removeprefix("/")])
    if len(set(rows)) != len(rows):
        raise FileError(f"{path}: must list each image once. It does not.")
    return np.array(rows, np.int64)


def _read_ilsvrc(folder: Path, entry: Entry) -> Dataset:
    """Read ILSVRC2012; as in the paper, training images are the database and validation images the queries."""
    names = _folders(folder / "train")
    images, labels = _class_images(folder / "train", names)
    if (folder / "val.txt").is_file():
        queries, query_labels = _listed_queries(folder, names)
    else:
        queries, query_labels = _class_images(folder / "val", names)
    return entry.dataset(
        images=images + queries,
        labels=np.concatenate([labels, query_labels]),
        names=tuple(names),
        train=np.arange(len(images)),
        query=np.arange(len(images), len(images) + len(queries)),
    )


def _listed_queries(folder: Path, names: list[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Validation images and classes from lines "file class"; a class is a wnid or its number in the order of wnids."""
    path = folder / "val.txt"
    synsets = read_lines(folder / "synsets.txt") if (folder / "synsets.txt").is_file() else names
    number_of = {name: number for number, name in enumerate(names)}
    images, labels = [], []
    for line in read_lines(path):
        file, _, kind = line.rpartition(" ")
        if kind.isascii() and kind.isdigit() and len(kind) < 6 and int(kind) < len(synsets):
            kind = synsets[int(kind)]
        file = file.strip().rpartition("/")[2]
        if kind not in number_of and kind in synsets:
            continue  # a class that is missing here, as most are in the paper's ImageNet-50
        if kind not in number_of or not _is_image(file):
            raise FileError(f"{path}: must have lines of an image and its class in train. Got {line[:100]!r} instead.")
        images.append(str(folder / "val" / file))
        labels.append(number_of[kind])
    if not images:
        raise FileError(f"{path}: must list at least one image. It does not.")
    missing = next((image for image in images if not os.path.isfile(image)), None)
    if missing is not None:
        raise MissingFileError(f"{missing}: no such file, which {path} lists")
    return tuple(images), np.array(labels, np.int64)


ENTRIES = (
    Entry(
        name="sun397",
        description="scenes, image files",
        labels="397 classes",
        n_train=100_754,
        n_query=8_000,
        licence="not stated",
        source="https://vision.princeton.edu/projects/2010/SUN/",
        split="8,000 queries drawn by seed (the paper's protocol), or partition=1 to 10",
        layouts=(Layout(("SUN397/",), _read_sun),),
        check_rows=False,
        instructions="Unpack SUN397.tar.gz into {place}, and Partitions.zip (ClassName.txt, Training_01.txt, ...) "
        "into {place}/Partitions.",
    ),
    Entry(
        name="ilsvrc2012",
        description="ImageNet, image files",
        labels="1000 classes",
        n_train=1_281_167,
        n_query=50_000,
        licence="non-commercial research",
        source="https://image-net.org/challenges/LSVRC/2012/",
        split="given: the validation images are the queries",
        layouts=(Layout(("train/", "val/"), _read_ilsvrc),),
        check_rows=False,
        folders=("ilsvrc2012",),
        instructions="Unpack the images into {place}, as train/n01440764/*.JPEG and val/*.JPEG with the list val.txt, "
        "or as val/n01440764/*.JPEG.",
    ),
)
