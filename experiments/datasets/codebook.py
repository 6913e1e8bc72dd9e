"""Codebook features of CIFAR-10, as in the paper: a .npy file of bytes, and a file of labels beside it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from experiments.datasets.base import Dataset
from experiments.datasets.catalogue import Entry, Layout
from experiments.datasets.cifar import CIFAR10_NAMES
from hashgrove.storage.formats import FileError
from hashgrove.storage.matrices import read

__all__ = ["ENTRIES"]

N_TRAIN = 50_000
LABELS = {
    "cifar10.npz": "labels",
    "cifar10_gist512_u8.npz": "y",
}  # files that hold the labels of the same rows, and the name of their array


def _read(folder: Path, entry: Entry, file: str, n_features: int, labels: str) -> Dataset:
    """Read labels and memory-mapped features; a row of features is read from disk when it is used."""
    X, y = read(folder / file, None)[0], read(f"{folder / labels}:{LABELS[labels]}", None)[0]
    if X.dtype != np.uint8 or X.ndim != 2 or X.shape[1] != n_features:
        raise FileError(f"{folder / file}: must be uint8 with {n_features} columns. Got {X.dtype} of shape {X.shape}.")
    if y.shape != X.shape[:1] or y.dtype.kind not in "iu":
        raise FileError(f"{folder / labels}: must have {len(X)} labels, one per row of {file}. Got shape {y.shape}.")
    if not len(X) > N_TRAIN:
        raise FileError(f"{folder / file}: must have more than {N_TRAIN} rows. Got {len(X)}.")
    return entry.dataset(
        features=X,
        labels=y.astype(np.int64),
        names=CIFAR10_NAMES,
        train=np.arange(N_TRAIN),
        query=np.arange(N_TRAIN, len(X)),
    )


def _entry(n_atoms: int) -> Entry:
    n_features = 14 * n_atoms
    file = f"cifar10_codebook{n_features}_u8.npy"
    return Entry(
        name=f"cifar10-codebook{n_atoms}",
        description=f"CIFAR-10, {n_features} codebook features",
        labels="10 classes",
        n_train=N_TRAIN,
        n_query=10_000,
        licence="not stated",
        source="https://www.cs.toronto.edu/~kriz/cifar.html; features computed by this project",
        split="given: CIFAR-10's test batch is the queries",
        layouts=tuple(
            Layout((file, labels), partial(_read, file=file, n_features=n_features, labels=labels)) for labels in LABELS
        ),
        instructions=f"Make {file} with `hashgrove features codebook`, and put it in {{place}} with one of "
        f"{', '.join(LABELS)}.",
    )


ENTRIES = (_entry(800), _entry(1600))
