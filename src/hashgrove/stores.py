"""`build_store`: features of any size in bins on disk, made in two passes and reused."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import FEATURE_DTYPES
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.rounding import marked_places, marks_of
from hashgrove.storage.feature_store import FeatureStore, write_store
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.matrices import check_finite
from hashgrove.storage.streams import identity, list_shards, open_rows
from hashgrove.trees.binning import bin_features, fit_bins

__all__ = ["build_store"]

PIECE_BYTES = 2**25  # of rows that are in memory at a time

Chunks = Callable[[], Iterable[NDArray[Any]]]


def build_store(source: PathLike | Chunks, path: PathLike, *, n_jobs: int | None = None) -> FeatureStore:
    """Write the bins of training rows to a file that `FastHash.fit` takes, unless it has those of these rows already.

    The rows are read twice, piece by piece: first for the range of each feature, then for the bins. These are the bins
    of rows in memory, so a fit gives the same model.

    Parameters
    ----------
    source : path, or callable
        ``.npy`` or ``.parquet``, or a folder of such shards in the order of their names. Or a function that gives an
        iterator of matrices, the same ones each time; it is called twice, and the file is always made anew.
    path : path
        The file to write, of one byte per value. If it exists, it must be a store, which is replaced.
    n_jobs : int, optional
        Number of threads.

    Returns
    -------
    store : FeatureStore

    Examples
    --------
    >>> import tempfile
    >>> from hashgrove import BoostedTrees, FastHash
    >>> folder, X = tempfile.mkdtemp(), np.random.default_rng(0).random((100, 4))
    >>> np.save(f"{folder}/X.npy", X)
    >>> store = build_store(f"{folder}/X.npy", f"{folder}/X.bins")
    >>> store.shape
    (100, 4)
    >>> hasher = FastHash(8, hash_function=BoostedTrees(n_trees=5)).fit(store, X[:, 0] > 0.5)
    """
    key = None if callable(source) else _identity(source)
    if os.path.exists(path):
        store = FeatureStore(path)  # refuses any other file, so that none is overwritten by mistake
        if key is not None and store.source == key:
            return store
    name = "the chunks" if callable(source) else os.fspath(source)
    extremes: NDArray[Any] | None = None
    n_rows = 0
    for first_row, rows in _rows(source):
        _check(name, rows, first_row, None if extremes is None else extremes.shape[1])
        here = np.stack([rows.min(axis=0), rows.max(axis=0)])
        joined = here if extremes is None else np.concatenate([extremes, here])
        extremes = np.stack([joined.min(axis=0), joined.max(axis=0)])
        n_rows += len(rows)
    if extremes is None:
        raise FileError(f"{name}: must have rows. Got none.")
    low, scale = fit_bins(extremes)
    places = marked_places(n_rows)
    shape, n_written = (n_rows, len(low)), 0
    marks: list[int] = []
    with write_store(path, shape=shape, low=low, scale=scale, n_marks=len(places), source=key) as writer:
        for first_row, rows in _rows(source):
            _check(name, rows, first_row, shape[1])
            n_written += len(rows)
            if n_written > n_rows:
                break
            writer.write_bins(first_row, bin_features(rows, low, scale, n_jobs=n_jobs))
            here = places[(places >= first_row) & (places < first_row + len(rows))]
            marks += marks_of(rows[here - first_row])
        if n_written != n_rows or (key is not None and key != _identity(source)):
            raise FileError(f"{name}: has been changed while it was read, or gives other rows each time.")
        writer.write_marks(sorted(marks))
    return FeatureStore(path)


def _identity(source: Any) -> str:
    """Digest of the names, sizes and times of change of the files."""
    files = list_shards(source) if os.path.isdir(source) else [source]
    return hashlib.sha256(json.dumps([identity(file) for file in files]).encode()).hexdigest()


def _rows(source: PathLike | Chunks) -> Iterator[tuple[int, NDArray[Any]]]:
    """Number of the first row and rows, piece by piece, of the types that learners take."""
    first_row = 0
    if callable(source):
        pieces: Iterable[NDArray[Any]] = map(np.asarray, source())
    else:
        opened = open_rows(source)
        width = next((piece.read().shape[1] for piece in opened.pieces(1)), 1)
        pieces = (piece.read() for piece in opened.pieces(max(PIECE_BYTES // (4 * width), 1)))
    for rows in pieces:
        if len(rows) == 0:
            continue
        yield first_row, rows if rows.dtype in FEATURE_DTYPES else rows.astype(np.float64)
        first_row += len(rows)


def _check(name: str, rows: NDArray[Any], first_row: int, n_features: int | None) -> None:
    if rows.ndim != 2 or n_features not in (None, rows.shape[1]):
        wanted = "a matrix" if n_features is None else f"a matrix with {n_features} columns, as the first one"
        raise ParameterError("source", f"must give {wanted}. Got shape {rows.shape} at row {first_row} of {name}.")
    check_finite(name, rows, first_row=first_row)
