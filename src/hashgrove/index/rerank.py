"""Re-ranking: the nearest items by Hamming distance, ordered again by the distance of their features.

Codes decide which items come into question; features decide among them. So items with equal codes, of which trained
hashers make many, are told apart by their content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.ids import check_ids, encode, find, refuse_duplicates
from hashgrove.runtime.parameters import Integer, OneOf, ParameterError
from hashgrove.runtime.rounding import to_bytes
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["CAREFUL", "METRICS", "Int8Rows", "Order", "Rerank", "order_candidates"]

METRICS = ("cosine", "euclidean")
CAREFUL = (
    1  # oversample where nobody asked for re-ranking: only the nearest by their codes, and those that tie with them
)
QUERIES_PER_CHUNK = 64


@dataclass(frozen=True, eq=False)
class Int8Rows:
    """Features in one byte each: a row is its ``scale`` times whole numbers from -127 to 127.

    Attributes
    ----------
    values : int8 array of shape (n, n_features)
    scales : float32 array of shape (n,)
    """

    values: NDArray[np.int8]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, X: ArrayLike, *, name: str = "X") -> Int8Rows:
        """Round features; ``name`` is that of the parameter, for error messages.

        >>> Int8Rows.of([[1.0, -2.0]])[[0]].round(2)
        array([[ 1.01, -2.  ]], dtype=float32)
        """
        array = _check_features(X, name)
        values, scales = np.empty(array.shape, np.int8), np.empty(len(array), np.float32)
        for start, stop in chunks(len(array), 4096):
            values[start:stop], scales[start:stop] = to_bytes(array[start:stop])
        return cls(values, scales)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and of features."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return self.values[rows].astype(np.float32) * self.scales[rows][..., None]


class StoredRows(Protocol):
    """Features that an index keeps: `hashgrove.index.stored_features.StoredFeatures`."""

    n_features: int

    def find(self, ids: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The features of some items, and which of these items have some."""


class Order(Protocol):
    """Another order of the nearest items: `Rerank` by their features, `hashgrove.index.Decoded` by their codes.

    `hashgrove.index.BreakTies` changes the order of ties only.
    """

    @property
    def model(self) -> str | None:
        """Digest of the model that the codes of the items must be of; None if it does not matter."""

    def search(
        self,
        nearest: Callable[[NDArray[np.uint8], int], tuple[NDArray[np.uint16], NDArray[Any]]],
        codes: NDArray[np.uint8],
        k: int,
        features: ArrayLike | None,
        *,
        stored: StoredRows | None,
        codes_of: Callable[[NDArray[Any]], NDArray[np.uint8]],
        n_jobs: int | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Distances and ids of the ``k`` best candidates; `Index.search` calls this.

        ``nearest(codes, n)`` finds candidates, ``stored`` are the features that the index keeps, or None, and
        ``codes_of(ids)`` the codes of items.
        """


@dataclass(frozen=True, eq=False)
class Rerank:
    """Order the nearest items that `Index.search` finds again, by their features.

    Of each query, the ``oversample * k`` nearest items by Hamming distance are candidates, and so are all further items
    that tie with the last of them, up to ``max_candidates``. The ``k`` candidates with the smallest distance of their
    features are returned, with these distances (float32); equal ones in ascending order of their ids.

    Parameters
    ----------
    X : array of shape (n, n_features), `Int8Rows`, or None
        The features of the items, in memory or mapped from a file (`numpy.load(..., mmap_mode="r")`); or in one byte
        each, ``Int8Rows.of(X)``. None means those that the index keeps; see ``features`` of `Index.add`.
    ids : array-like of int or str, shape (n,), optional
        The ids of the items that the rows belong to; without them, the id of an item is its row number.
    metric : {"cosine", "euclidean"}
    oversample : int
        Number of candidates per result.
    max_candidates : int
        Items that tie with the last candidate are candidates too, as long as there are at most this many.

    Examples
    --------
    >>> from hashgrove.index import FlatIndex
    >>> X = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> index = FlatIndex(np.array([[7], [7], [7]], np.uint8))  # one code for all
    >>> distances, ids = index.search(np.array([[7]], np.uint8), 2, rerank=Rerank(X), features=[[0.6, 0.8]])
    >>> ids
    array([[1, 2]])
    """

    X: Any = None
    ids: ArrayLike | None = None
    metric: str = "cosine"
    oversample: int = 4
    max_candidates: int = 4096
    model = None

    def search(
        self,
        nearest: Callable[[NDArray[np.uint8], int], tuple[NDArray[np.uint16], NDArray[Any]]],
        codes: NDArray[np.uint8],
        k: int,
        features: ArrayLike | None,
        *,
        stored: StoredRows | None,
        codes_of: Callable[[NDArray[Any]], NDArray[np.uint8]],
        n_jobs: int | None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Distances and ids of the ``k`` best candidates; see `Order.search`."""
        OneOf(METRICS).check("metric", self.metric)
        wanted = k * int(Integer(1).check("oversample", self.oversample))
        at_most = max(wanted, int(Integer(1).check("max_candidates", self.max_candidates)))
        n_features, rows_of = self._features_of(stored)
        if features is None:
            raise ParameterError("features", "must be the features of the queries, for 'rerank'. Got None.")
        Q = np.asarray(_check_features(features, "features"), np.float32)
        if Q.shape != (len(codes), n_features):
            raise ParameterError(
                "features",
                f"must have shape {(len(codes), n_features)}, one row per query and as many "
                f"features as the items have. Got {Q.shape} instead.",
            )

        def distances(query: int, candidates: NDArray[Any]) -> NDArray[np.float32]:
            return _distances(rows_of(candidates), Q[query], self.metric)

        return order_candidates(nearest, codes, k, distances, wanted=wanted, at_most=at_most, n_jobs=n_jobs)

    def _features_of(self, stored: StoredRows | None) -> tuple[int, Callable[[NDArray[Any]], NDArray[Any]]]:
        """The number of features, and a function that returns those of some items by their ids."""
        if self.X is None:
            if stored is None:
                raise ParameterError(
                    "X", "must be the features of the items if the index keeps none. Got None instead."
                )
            return stored.n_features, lambda ids: _all_known(*stored.find(ids), ids)
        X = self.X if isinstance(self.X, Int8Rows) else _check_features(self.X, "X")
        own = None if self.ids is None else _sorted(self.ids, len(X))
        return X.shape[1], lambda ids: X[_rows_of(ids, own, len(X))]


def order_candidates(
    nearest: Callable[[NDArray[np.uint8], int], tuple[NDArray[np.uint16], NDArray[Any]]],
    codes: NDArray[np.uint8],
    k: int,
    distances: Callable[[int, NDArray[Any]], NDArray[np.float32]],
    *,
    wanted: int,
    at_most: int,
    n_jobs: int | None,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Distances and ids of the ``k`` best candidates of each query, sorted by distance and then by id.

    Candidates are the ``wanted`` nearest items and those that tie with the last of them, but only ``at_most`` in all;
    ``distances(query, ids)`` are the distances to order them by.
    """

    def search_chunk(start: int, stop: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
        near, ids = nearest(codes[start:stop], at_most)
        columns = min(k, near.shape[1])
        ordered, found = np.empty((stop - start, columns), np.float32), np.empty_like(ids[:, :columns])
        for row in range(stop - start):
            last = near[row, min(wanted, near.shape[1]) - 1] if columns else 0
            candidates = ids[row, : np.searchsorted(near[row], last, side="right")]
            scores = distances(start + row, candidates)
            best = np.lexsort((candidates, scores))[:columns]
            ordered[row], found[row] = scores[best], candidates[best]
        return ordered, found

    if len(codes) == 0:
        near, ids = nearest(codes, k)
        return near.astype(np.float32), ids
    parts = run_tasks(search_chunk, chunks(len(codes), QUERIES_PER_CHUNK), n_jobs=n_jobs)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _sorted(ids: ArrayLike, length: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Ids in ascending order, and the row of each."""
    checked = encode(check_ids(ids, length=length))
    order = np.argsort(checked, kind="stable")
    refuse_duplicates(checked[order])
    return checked[order], order


def _rows_of(ids: NDArray[Any], own: tuple[NDArray[Any], NDArray[np.int64]] | None, n_rows: int) -> NDArray[np.int64]:
    """The rows of the features of some items."""
    if own is None:
        numbers = ids if ids.dtype.kind == "i" else np.full(len(ids), -1)
        return _all_known(numbers, (numbers >= 0) & (numbers < n_rows), ids)
    positions, known = find(own[0], encode(ids))
    return own[1][_all_known(positions, known, ids)]


def _all_known(found: NDArray[Any], known: NDArray[np.bool_], ids: NDArray[Any]) -> NDArray[Any]:
    if not known.all():
        raise ParameterError("X", f"must have features of all items. Got none for the id {ids[~known][0]!r}.")
    return found


def _distances(rows: NDArray[Any], query: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    rows = np.asarray(rows, np.float32)
    if metric == "euclidean":
        return np.sqrt(((rows - query) ** 2).sum(axis=1))
    lengths = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((query**2).sum())
    lengths[lengths == 0] = 1
    return 1 - rows @ query / lengths


def _check_features(X: ArrayLike, name: str) -> NDArray[Any]:
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ParameterError(
            name, f"must be a matrix of numbers, one row per item. Got {array.dtype} of shape {array.shape} instead."
        )
    return array
