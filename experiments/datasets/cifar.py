"""CIFAR-10 and CIFAR-100: the python version, the binary version, or an .npz file of the images of CIFAR-10.

A row of either version is 3072 bytes: 32 x 32 values of red, then of green, then of blue. In the binary version one
byte with the class comes before them; in CIFAR-100 two bytes, with the coarse class and then the fine class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Dataset
from experiments.datasets.batches import read_batch
from experiments.datasets.catalogue import Entry, Layout, Remote
from experiments.datasets.raw import members
from hashgrove.runtime.parameters import OneOf
from hashgrove.storage.formats import FileError
from hashgrove.storage.matrices import read

__all__ = ["CIFAR10_NAMES", "ENTRIES"]

PIXELS = 3 * 32 * 32
MEMBER_LIMIT = 2**28  # bytes per file; the largest one, the training rows of CIFAR-100, has 155 million
ADDRESS = "https://www.cs.toronto.edu/~kriz/"
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
GRANULARITIES = OneOf(("fine", "coarse"))
N_CLASSES = {"cifar10": 10, "fine": 100, "coarse": 20}

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _python_part(path: Path, content: bytes, key: str) -> Part:
    batch = read_batch(path, content)
    labels, pixels = batch.get(key), batch.get("data")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise FileError(f"{path}: must have a list of integers {key!r}. It does not.")
    if not isinstance(pixels, np.ndarray) or pixels.shape != (len(labels), PIXELS):
        raise FileError(f"{path}: must have an array 'data' of {len(labels)} rows and {PIXELS} columns. It does not.")
    return pixels, np.array(labels, np.int64)


def _binary_part(path: Path, content: bytes, *, width: int, column: int) -> Part:
    """Rows of ``width`` bytes of classes followed by the pixels; the wanted class is in byte ``column``."""
    if len(content) % (width + PIXELS):
        raise FileError(f"{path}: must have a multiple of {width + PIXELS} bytes. Got {len(content)} bytes.")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width + PIXELS)
    return rows[:, width:], rows[:, column].astype(np.int64)


def _assemble(
    path: Path,
    entry: Entry,
    files: tuple[str, ...],
    convert: Callable[[Path, bytes], Part],
    names: tuple[str, ...] | None,
    n_classes: int,
) -> Dataset:
    """Put the rows of ``files`` together; the last file holds the queries."""
    parts: dict[str, Part] = {}
    for file, content in members(path, files, limit=MEMBER_LIMIT):
        parts[file] = pixels, labels = convert(path / file, content)
        if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
            raise FileError(f"{path / file}: labels must be from 0 to {n_classes - 1}. Got others.")
        parts[file] = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels
    images, classes = (np.concatenate([parts[file][i] for file in files]) for i in (0, 1))
    n_train = len(classes) - len(parts[files[-1]][1])
    return entry.dataset(
        images=images,
        labels=classes,
        train=np.arange(n_train),
        query=np.arange(n_train, len(classes)),
        names=names,
    )


def _read_python(folder: Path, entry: Entry, place: str) -> Dataset:
    files = (*CIFAR10_BATCHES, "test_batch")
    return _assemble(folder / place, entry, files, partial(_python_part, key="labels"), CIFAR10_NAMES, 10)


def _read_binary(folder: Path, entry: Entry, place: str) -> Dataset:
    files = (*(f"{batch}.bin" for batch in CIFAR10_BATCHES), "test_batch.bin")
    return _assemble(folder / place, entry, files, partial(_binary_part, width=1, column=0), CIFAR10_NAMES, 10)


def _read_npz(folder: Path, entry: Entry) -> Dataset:
    path = folder / "cifar10.npz"
    images, labels = read(f"{path}:images", None)[0], read(f"{path}:labels", None)[0]
    if images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8:
        raise FileError(f"{path}: 'images' must be uint8 of shape (n, 32, 32, 3). Got {images.dtype} {images.shape}.")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or (labels.size and labels.max() > 9):
        raise FileError(f"{path}: 'labels' must be {len(images)} integers from 0 to 9. They are not.")
    n_train = len(labels) * 5 // 6
    return entry.dataset(
        images=images,
        labels=labels.astype(np.int64),
        train=np.arange(n_train),
        query=np.arange(n_train, len(labels)),
        names=CIFAR10_NAMES,
    )


def _names_of(labels: str, *, found: Any, path: Path) -> tuple[str, ...]:
    if len(found) != N_CLASSES[labels] or not all(type(name) is str for name in found):
        raise FileError(f"{path}: must have {N_CLASSES[labels]} names of {labels} classes. It does not.")
    return tuple(found)


def _read_python100(folder: Path, entry: Entry, place: str, *, labels: str = "fine") -> Dataset:
    GRANULARITIES.check("labels", labels)
    path = folder / place
    [(_, content)] = members(path, ("meta",), limit=MEMBER_LIMIT)
    found = read_batch(path / "meta", content).get(f"{labels}_label_names", ())
    names = _names_of(labels, found=found, path=path / "meta")
    convert = partial(_python_part, key=f"{labels}_labels")
    return _assemble(path, entry, ("train", "test"), convert, names, len(names))


def _read_binary100(folder: Path, entry: Entry, place: str, *, labels: str = "fine") -> Dataset:
    GRANULARITIES.check("labels", labels)
    path = folder / place
    file = f"{labels}_label_names.txt"
    [(_, content)] = members(path, (file,), limit=MEMBER_LIMIT)
    names = _names_of(labels, found=content.decode("latin-1").split(), path=path / file)
    convert = partial(_binary_part, width=2, column=("coarse", "fine").index(labels))
    return _assemble(path, entry, ("train.bin", "test.bin"), convert, names, len(names))


def _layouts(read: Callable[..., Dataset], archive: str, folder: str, files: tuple[str, ...]) -> tuple[Layout, ...]:
    """Two layouts: the archive as it is published, and the folder that it unpacks to."""
    return (
        Layout((archive,), partial(read, place=archive)),
        Layout(tuple(f"{folder}/{file}" for file in files), partial(read, place=folder)),
    )


ENTRIES = (
    Entry(
        name="cifar10",
        description="objects, 32x32 colour images",
        labels="10 classes",
        n_train=50_000,
        n_query=10_000,
        licence="not stated",
        source=f"{ADDRESS}cifar.html",
        split="given: the test batch is the queries",
        layouts=(
            *_layouts(_read_python, "cifar-10-python.tar.gz", "cifar-10-batches-py", (*CIFAR10_BATCHES, "test_batch")),
            *_layouts(
                _read_binary,
                "cifar-10-binary.tar.gz",
                "cifar-10-batches-bin",
                (*(f"{batch}.bin" for batch in CIFAR10_BATCHES), "test_batch.bin"),
            ),
            Layout(("cifar10.npz",), _read_npz),
        ),
        remotes=(
            Remote(
                "cifar-10-python.tar.gz",
                (f"{ADDRESS}cifar-10-python.tar.gz",),
                "md5:c58f30108f718f92721af3b95e74349a",
                170_498_071,
            ),
        ),
    ),
    Entry(
        name="cifar100",
        description="objects, 32x32 colour images",
        labels="100 classes, or 20 coarse ones",
        n_train=50_000,
        n_query=10_000,
        licence="not stated",
        source=f"{ADDRESS}cifar.html",
        split="given: the test rows are the queries",
        layouts=(
            *_layouts(_read_python100, "cifar-100-python.tar.gz", "cifar-100-python", ("meta", "train", "test")),
            *_layouts(
                _read_binary100,
                "cifar-100-binary.tar.gz",
                "cifar-100-binary",
                ("fine_label_names.txt", "coarse_label_names.txt", "train.bin", "test.bin"),
            ),
        ),
        remotes=(
            Remote(
                "cifar-100-python.tar.gz",
                (f"{ADDRESS}cifar-100-python.tar.gz",),
                "md5:eb9058c3a382ffc7106e4002c42a8d85",
                169_001_437,
            ),
        ),
    ),
)
