"""MNIST and Fashion-MNIST, in the IDX format: two zero bytes, type, number of dimensions, sizes, then the values.

The only type that is read is 8, unsigned bytes. The sizes are big-endian and have 4 bytes each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Dataset
from experiments.datasets.catalogue import Entry, Layout, Remote
from experiments.datasets.raw import open_file, read_array
from hashgrove.storage.formats import FileError, check_shape

__all__ = ["ENTRIES", "read_idx"]

UNSIGNED_BYTE = 8
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def read_idx(path: Path, *, ndim: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, plain or .gz, that must have ``ndim`` dimensions.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    >>> read_idx(path, ndim=1)
    array([7, 2, 1], dtype=uint8)
    """
    with open_file(path) as file:
        header = file.read(4 + 4 * ndim)
        magic = bytes([0, 0, UNSIGNED_BYTE, ndim])
        if header[:4] != magic or len(header) < 4 + 4 * ndim:
            raise FileError(
                f"{path}: must be an IDX file of bytes in {ndim} dimensions, which starts with {magic.hex(' ')}. "
                f"Got {header[:4].hex(' ') or 'nothing'}."
            )
        shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
        return read_array(path, file, check_shape(str(path), shape, 1)).reshape(shape)


def _read(folder: Path, entry: Entry, suffix: str) -> Dataset:
    paths = [folder / f"{file}{suffix}" for file in FILES]
    images = [read_idx(path, ndim=3) for path in paths[::2]]
    labels = [read_idx(path, ndim=1) for path in paths[1::2]]
    for path, part, part_labels in zip(paths[1::2], images, labels, strict=True):
        if len(part) != len(part_labels):
            raise FileError(f"{path}: must have {len(part)} labels, one per image. Got {len(part_labels)} instead.")
        if part_labels.size and part_labels.max() >= len(DIGITS):
            raise FileError(f"{path}: labels must be from 0 to 9. Got {part_labels.max()} instead.")
    if images[0].shape[1:] != images[1].shape[1:]:
        raise FileError(
            f"{paths[2]}: images must have the size {images[0].shape[1:]} of those in {paths[0].name}. "
            f"Got {images[1].shape[1:]} instead."
        )
    n_train, n_rows = len(labels[0]), len(labels[0]) + len(labels[1])
    return entry.dataset(
        images=np.concatenate(images),
        labels=np.concatenate(labels).astype(np.int64),
        train=np.arange(n_train),
        query=np.arange(n_train, n_rows),
        names=CLOTHES if entry.name == "fashion-mnist" else DIGITS,
    )


def _read_gz(folder: Path, entry: Entry) -> Dataset:
    return _read(folder, entry, ".gz")


def _read_plain(folder: Path, entry: Entry) -> Dataset:
    return _read(folder, entry, "")


LAYOUTS = (
    Layout(tuple(f"{file}.gz" for file in FILES), _read_gz),
    Layout(FILES, _read_plain),
)


def _remotes(addresses: tuple[str, ...], published: tuple[tuple[str, int], ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{file}.gz", tuple(f"{address}{file}.gz" for address in addresses), f"md5:{md5}", size)
        for file, (md5, size) in zip(FILES, published, strict=True)
    )


ENTRIES = (
    Entry(
        name="mnist",
        description="handwritten digits, 28x28 grey images",
        labels="10 classes",
        n_train=60_000,
        n_query=10_000,
        licence="CC BY-SA 3.0",
        source="http://yann.lecun.com/exdb/mnist/",
        split="given: the t10k rows are the queries",
        layouts=LAYOUTS,
        folders=("mnist", "MNIST/raw"),
        remotes=_remotes(
            ("http://yann.lecun.com/exdb/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
            (
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
        ),
    ),
    Entry(
        name="fashion-mnist",
        description="clothes, 28x28 grey images",
        labels="10 classes",
        n_train=60_000,
        n_query=10_000,
        licence="MIT",
        source="https://github.com/zalandoresearch/fashion-mnist",
        split="given: the t10k rows are the queries",
        layouts=LAYOUTS,
        folders=("fashion-mnist", "FashionMNIST/raw"),
        remotes=_remotes(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            ),
        ),
    ),
)
