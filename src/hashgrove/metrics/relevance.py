"""Relevance of database items to a query: equal class labels, or enough shared tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hashgrove.codes import MAX_BITS, as_columns, as_words, pack
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.simd import popcount

__all__ = ["Relevance", "labels_by_id", "mark"]

ROWS_PER_CHUNK = 4096  # rows of a sparse tag matrix that are converted to dense ones at a time


@dataclass(frozen=True, eq=False)
class Relevance:
    """Labels of the queries and of the database as 64-bit words, in the form that `mark` reads.

    ``queries`` is uint64 (n_queries, n_words) and ``columns`` is uint64 (n_words, n_database). If ``min_shared`` is 0,
    the only word is the number of the class, its place in ``classes``; otherwise the words hold tags, one bit per tag.
    """

    queries: NDArray[np.uint64]
    columns: NDArray[np.uint64]
    min_shared: int
    classes: NDArray[Any]

    @property
    def n_classes(self) -> int:
        """Number of classes among queries and database; 0 for tags."""
        return len(self.classes)

    @property
    def kind(self) -> str:
        """``"classes"`` or ``"tags"``."""
        return "tags" if self.min_shared else "classes"

    @classmethod
    def from_labels(cls, y_queries: Any, y_database: Any, *, lengths: tuple[int, int], min_shared: int) -> Relevance:
        """Check labels and convert them to words.

        Parameters
        ----------
        y_queries, y_database : 1-D labels of any type, or 2-D tag matrices of 0 and 1, dense or scipy.sparse
        lengths : (n_queries, n_database)
        min_shared : int
            Number of tags that an item must share with the query to be relevant.

        Examples
        --------
        >>> Relevance.from_labels(["b"], ["a", "b"], lengths=(1, 2), min_shared=2).columns
        array([[0, 1]], dtype=uint64)
        """
        y_queries = _check_rows(y_queries, "y_queries", lengths[0], "query codes")
        y_database = _check_rows(y_database, "y_database", lengths[1], "codes in the database")
        if y_queries.ndim != y_database.ndim:
            raise ParameterError(
                "y_database",
                "must be 1-D labels or 2-D tags, whichever 'y_queries' is. "
                f"Got shapes {y_queries.shape} and {y_database.shape} instead.",
            )
        if y_queries.ndim == 1:
            return _from_classes(y_queries, y_database)
        n_tags = y_queries.shape[1]
        if y_database.shape[1] != n_tags:
            raise ParameterError(
                "y_database",
                f"must have {n_tags} columns, one per tag, as 'y_queries'. Got {y_database.shape[1]} instead.",
            )
        if not min_shared <= n_tags <= MAX_BITS:
            raise ParameterError(
                "y_queries",
                f"must have from min_shared={min_shared} to {MAX_BITS} columns, one per tag. "
                f"Got {n_tags} instead; for class labels, pass a 1-D array.",
            )
        query_words = as_words(_pack_tags(y_queries, "y_queries"))
        return cls(query_words, as_columns(_pack_tags(y_database, "y_database")), min_shared, np.empty(0))

    def reordered(self, order: NDArray[np.int64]) -> Relevance:
        """The same labels for a database in another order."""
        columns = np.ascontiguousarray(self.columns[:, order])
        columns.flags.writeable = False  # like those of `from_labels`, so that kernels are compiled once
        return replace(self, columns=columns)


def labels_by_id(y_database: Any, ids: ArrayLike | None, own_ids: NDArray[Any]) -> Any:
    """Labels in the order of the items of a database, from labels that come with their ids.

    Parameters
    ----------
    y_database : mapping from ids to labels, or labels of any kind
    ids : array-like, optional
        The ids of the rows of ``y_database``. Without them, labels that are no mapping are returned as they are.
    own_ids : array of shape (n,)
        The ids of the items.

    Returns
    -------
    y_database : one label or row of tags per item

    Examples
    --------
    >>> labels_by_id({7: "cat", 5: "dog"}, None, np.array([5, 7])).tolist()
    ['dog', 'cat']
    >>> labels_by_id(np.array(["cat", "dog", "cow"]), [7, 5, 6], np.array([5, 7])).tolist()
    ['dog', 'cat']
    """
    by_mapping = isinstance(y_database, Mapping)
    if by_mapping and ids is not None:
        raise ParameterError("ids", "must not be given together with a mapping from ids to labels. Got both.")
    if not by_mapping and ids is None:
        return y_database
    known = np.asarray(ids).tolist() if ids is not None else list(y_database)
    place = {item: row for row, item in enumerate(known)}
    if len(place) != len(known):
        raise ParameterError("ids", "must have no duplicates. Got an id twice instead.")
    if ids is not None and len(known) != _n_rows(y_database):
        raise ParameterError(
            "ids",
            f"must have one id for each of the {_n_rows(y_database)} rows of 'y_database'. Got {len(known)} instead.",
        )
    missing = [item for item in own_ids.tolist() if item not in place]
    if missing:
        raise ParameterError(
            "y_database",
            f"must have a label for every item of the database. Got none for the id "
            f"{missing[0]!r} and {len(missing) - 1:,} others.",
        )
    rows = [place[item] for item in own_ids.tolist()]
    if isinstance(y_database, Mapping):
        values = list(y_database.values())
        return np.asarray([values[row] for row in rows])
    if sparse.issparse(y_database):
        return y_database.tocsr()[rows]
    return np.asarray(y_database)[rows]


def _n_rows(y: Any) -> int:
    return int(y.shape[0]) if hasattr(y, "shape") else len(y)


@kernel
def mark(columns: Any, query: Any, min_shared: int, start: int, stop: int, out: Any) -> None:
    """For each item from ``start`` to ``stop``, write 1 if it is relevant and 0 if not to ``out[: stop - start]``.

    ``columns`` and ``query`` are words of a `Relevance`. ``out`` is uint16 since it holds counts of shared tags first.
    """
    word = query[0]
    column = columns[0, start:stop]
    if min_shared == 0:
        for i in range(np.uint64(column.size)):
            out[i] = column[i] == word
        return
    for i in range(np.uint64(column.size)):
        out[i] = popcount(column[i] & word)
    for w in range(1, columns.shape[0]):
        word = query[w]
        column = columns[w, start:stop]
        for i in range(np.uint64(column.size)):
            out[i] = np.uint16(out[i] + np.uint16(popcount(column[i] & word)))
    for i in range(np.uint64(column.size)):
        out[i] = out[i] >= min_shared


def _check_rows(y: Any, name: str, length: int, of_what: str) -> Any:
    if sparse.issparse(y):
        y = y.tocsr()
    else:
        try:
            y = np.asarray(y)
        except ValueError as error:
            raise ParameterError(name, f"must be an array of labels or tags: {error}") from error
    if y.ndim != 2 and (y.ndim != 1 or sparse.issparse(y)):
        raise ParameterError(name, f"must be 1-D labels or a 2-D tag matrix. Got shape {y.shape} instead.")
    if y.shape[0] != length:
        raise ParameterError(name, f"must have {length} rows, one for each of the {of_what}. Got {y.shape[0]} instead.")
    return y


def _from_classes(y_queries: NDArray[Any], y_database: NDArray[Any]) -> Relevance:
    for name, y in (("y_queries", y_queries), ("y_database", y_database)):
        # NaN and None stand for missing labels; neither is a class.
        if any(label is None for label in y) if y.dtype == object else y.dtype.kind in "fc" and np.isnan(y).any():
            raise ParameterError(name, "must have a label in every row. Got missing values instead.")
    if (y_queries.dtype.kind in "US") != (y_database.dtype.kind in "US") and object not in (
        y_queries.dtype,
        y_database.dtype,
    ):
        raise ParameterError(
            "y_database",
            f"must hold labels of the same type as 'y_queries'. Got {y_queries.dtype} and {y_database.dtype} instead.",
        )
    try:
        classes, numbers = np.unique(np.concatenate([y_queries, y_database]), return_inverse=True)
    except TypeError as error:
        raise ParameterError(
            "y_database",
            f"must hold labels that can be sorted together with those of 'y_queries'. Got this instead: {error}.",
        ) from error
    words = numbers.reshape(-1).astype(np.uint64)
    words.flags.writeable = False  # like the words of tags, so that kernels are compiled once
    n_queries = len(y_queries)
    return Relevance(words[:n_queries, None], words[None, n_queries:], 0, classes)


def _pack_tags(y: Any, name: str) -> NDArray[np.uint8]:
    values = y.data if sparse.issparse(y) else y
    wrong = values.reshape(-1)[~np.isin(values.reshape(-1), (0, 1))]
    if values.dtype.kind not in "biuf" or len(wrong):
        raise ParameterError(
            name, f"must be a tag matrix of 0 and 1. Got {wrong[0] if len(wrong) else values.dtype} instead."
        )
    if not sparse.issparse(y):
        return pack(y != 0)
    codes = np.empty((y.shape[0], (y.shape[1] + 7) // 8), np.uint8)
    for start in range(0, y.shape[0], ROWS_PER_CHUNK):
        codes[start : start + ROWS_PER_CHUNK] = pack(y[start : start + ROWS_PER_CHUNK].toarray() != 0)
    return codes
