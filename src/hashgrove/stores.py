"""Bins of training rows on disk, made in two passes and reused: `build_store`, and what trees ask stored rows for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.memory import fits_memory, memory_limit
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.rounding import marked_places, marks_of
from hashgrove.runtime.sharing import shared
from hashgrove.runtime.threads import in_order
from hashgrove.storage.feature_store import FeatureStore, write_store
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.matrices import check_finite
from hashgrove.storage.stored_rows import Chunks, StoredRows, matrices_of
from hashgrove.storage.streams import identity, list_shards
from hashgrove.trees.binning import bin_features, fit_bins

__all__ = ["Bins", "bins_of", "build_store", "training_bins"]

Pieces = Callable[[], Iterable[NDArray[Any]]]
Limits = tuple[NDArray[np.float64], NDArray[np.float64]]  # the value of bin 0, and the bins per unit, of each feature


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

    def pieces() -> Iterator[NDArray[Any]]:
        yield from matrices_of(source)
        if not callable(source) and key != _identity(source):
            raise _changed(name)

    name = "the chunks" if callable(source) else os.fspath(source)
    _write(path, name, pieces, key, n_jobs=n_jobs)
    return FeatureStore(path)


def bins_of(rows: StoredRows, limits: Limits | None = None, *, n_jobs: int | None = None) -> FeatureStore | Bins:
    """The bins of stored rows: a store in their cache, which is used again, or an array if they have no cache.

    By default the limits of the bins fit the rows.
    """

    def pieces() -> Iterator[NDArray[Any]]:
        return in_order(rows.__getitem__, rows.pieces(), n_jobs=n_jobs)

    if rows.cache is None:
        size = rows.shape[0] * rows.shape[1]
        if not fits_memory(size):
            raise ParameterError(
                "cache",
                f"must be a folder for the bins of {rows!r}: they take {size / 1e9:.1f} GB, and there are "
                f"{memory_limit() / 1e9:.1f} GB of memory. Got None.",
            )
        low, scale = limits or _measure(rows.name, pieces())[1]
        bins, first_row = np.empty((rows.shape[1], len(rows)), np.uint8), 0
        for part in pieces():
            bins[:, first_row : first_row + len(part)] = bin_features(part, low, scale, n_jobs=n_jobs)
            first_row += len(part)
        return Bins(bins, low, scale)
    chosen = b"" if limits is None else np.stack(limits).tobytes()
    key = hashlib.sha256(rows.key.encode() + chosen).hexdigest()
    path = os.path.join(rows.cache, f"bins-{key[:16]}")
    if os.path.exists(path):
        store = FeatureStore(path)
        if store.source == key:
            return store
    _write(path, rows.name, pieces, key, limits, n_jobs=n_jobs)
    return FeatureStore(path)


class Bins(NamedTuple):
    """The bins of rows, uint8 of shape (n_features, n), and their limits."""

    bins: NDArray[np.uint8]
    low: NDArray[np.float64]
    scale: NDArray[np.float64]


@shared
def training_bins(
    X: NDArray[Any] | FeatureStore | StoredRows, limits: Limits | None, *, n_jobs: int | None = None
) -> Bins | FeatureStore:
    """The bins of training rows, with these limits, those of earlier trees, or with limits that fit the rows."""
    if isinstance(X, FeatureStore):
        return X
    if isinstance(X, StoredRows):
        return bins_of(X, limits, n_jobs=n_jobs)
    low, scale = limits or fit_bins(X)
    return Bins(bin_features(X, low, scale, n_jobs=n_jobs), low, scale)


def _measure(name: str, pieces: Iterable[NDArray[Any]]) -> tuple[int, Limits]:
    """The number of rows, and limits of bins that fit them."""
    extremes: NDArray[Any] | None = None
    n_rows = 0
    for rows in pieces:
        _check(name, rows, n_rows, None if extremes is None else extremes.shape[1])
        here = np.stack([rows.min(axis=0), rows.max(axis=0)])
        joined = here if extremes is None else np.concatenate([extremes, here])
        extremes = np.stack([joined.min(axis=0), joined.max(axis=0)])
        n_rows += len(rows)
    if extremes is None:
        raise FileError(f"{name}: must have rows. Got none.")
    return n_rows, fit_bins(extremes)


def _write(
    path: PathLike, name: str, pieces: Pieces, key: str | None, limits: Limits | None = None, *, n_jobs: int | None
) -> None:
    """Write a store of the rows that ``pieces`` gives, the same ones twice."""
    n_rows, (low, scale) = _measure(name, pieces())
    low, scale = limits or (low, scale)
    places = marked_places(n_rows)
    shape, n_written = (n_rows, len(low)), 0
    marks: list[int] = []
    with write_store(path, shape=shape, low=low, scale=scale, n_marks=len(places), source=key) as writer:
        for rows in pieces():
            _check(name, rows, n_written, shape[1])
            if n_written + len(rows) > n_rows:
                raise _changed(name)
            writer.write_bins(n_written, bin_features(rows, low, scale, n_jobs=n_jobs))
            here = places[(places >= n_written) & (places < n_written + len(rows))]
            marks += marks_of(rows[here - n_written])
            n_written += len(rows)
        if n_written != n_rows:
            raise _changed(name)
        writer.write_marks(sorted(marks))


def _changed(name: str) -> FileError:
    return FileError(f"{name}: has been changed while it was read, or gives other rows each time.")


def _identity(source: PathLike) -> str:
    """Digest of the names, sizes and times of change of the files."""
    files = list_shards(source) if os.path.isdir(source) else [source]
    return hashlib.sha256(json.dumps([identity(file) for file in files]).encode()).hexdigest()


def _check(name: str, rows: NDArray[Any], first_row: int, n_features: int | None) -> None:
    if rows.ndim != 2 or n_features not in (None, rows.shape[1]):
        wanted = "a matrix" if n_features is None else f"a matrix with {n_features} columns, as the first one"
        raise ParameterError("source", f"must give {wanted}. Got shape {rows.shape} at row {first_row} of {name}.")
    check_finite(name, rows, first_row=first_row)
