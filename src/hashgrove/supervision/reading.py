"""Reading what users have: class labels, tags, pairs or triplets in all common forms, checked once.

Each function returns one clean form: class numbers with -1 for unlabelled points; a sparse tag matrix, and which points
are unlabelled; or a sparse matrix of +1 (similar) and -1 (dissimilar). Anything else raises a one-line ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from hashgrove.runtime.parameters import ParameterError

__all__ = ["UNLABELLED", "is_null", "is_tags", "read_classes", "read_pairs", "read_tags", "read_triplets"]

UNLABELLED = -1  # the class number of a point without a label
COLLECTIONS = (set, frozenset, list, tuple, np.ndarray)
TAGS_ONLY = (str, bytes, *COLLECTIONS)  # not in a matrix of numbers


def is_tags(y: Any) -> bool:
    """Whether ``y`` has the form of tags: a matrix with several columns, or one collection per row.

    >>> is_tags([[0, 1], [1, 0]]), is_tags([{"cat"}, {"cat", "dog"}]), is_tags(["cat", "dog"])
    (True, True, False)
    """
    if sparse.issparse(y):
        return True
    if isinstance(y, list | tuple) and any(isinstance(row, set | frozenset) for row in y):
        return True
    if isinstance(y, list | tuple) and any(isinstance(row, list | tuple | np.ndarray) for row in y):
        return len({len(row) if isinstance(row, COLLECTIONS) else -1 for row in y}) > 1 or len(y[0]) > 1
    array = np.asarray(y)
    if array.ndim == 1 and array.dtype == object:
        return any(isinstance(row, COLLECTIONS) for row in array)
    return array.ndim == 2 and array.shape[1] > 1


def read_classes(y: Any, *, unlabelled: Any = None) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Turn class labels of any single type into numbers from 0, with -1 for points without a label.

    A label is missing if it is None, NaN or pandas' NA, or equal to ``unlabelled``. Also returns the labels that the
    numbers stand for.

    >>> read_classes(["cat", "dog", None, "cat"])
    (array([ 0,  1, -1,  0]), ('cat', 'dog'))
    """
    y = _as_array(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if y.ndim != 1:
        raise ParameterError("y", f"must be 1-D class labels. Got shape {y.shape} instead.")
    known = ~_missing(y, unlabelled)
    names, classes = np.unique(_of_one_type(y[known]), return_inverse=True)
    if len(names) < 2:
        raise ParameterError("y", f"must have at least two classes. Got {len(names)} class instead.")
    if len(names) == known.sum():
        raise ParameterError(
            "y",
            f"must have at least two points of one class. Got {len(names)} different labels for "
            f"{len(names)} points instead; are they identifiers or real numbers?",
        )
    numbers = np.full(len(y), UNLABELLED, np.int64)
    numbers[known] = classes
    return numbers, tuple(names.tolist())


def read_tags(tags: Any, *, unlabelled: Any = None) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """Turn tags into a sparse matrix of ones with one column per tag, and say which points are unlabelled.

    ``tags`` is a matrix (dense or sparse, not zero for each tag that a point has) or one set, list or tuple of strings
    or numbers per point. A point is unlabelled if its collection is None, or its row of a matrix is all NaN.

    >>> matrix, missing = read_tags([{"sea", "sky"}, ["sky"], None])
    >>> matrix.toarray().tolist(), missing.tolist()
    ([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], [False, False, True])
    """
    if sparse.issparse(tags):
        matrix, missing = sparse.csr_array(tags), np.zeros(tags.shape[0], bool)
    else:
        tags = tags if isinstance(tags, list | tuple) else np.asarray(tags)
        rows = _as_collections(tags)
        matrix, missing = _tag_matrix(tags) if rows is None else _collected(rows, unlabelled)
    if not np.isfinite(matrix.data).all():
        raise ParameterError("y", "must have finite tags; a whole row of NaN is unlabelled. Got NaN or infinity.")
    matrix.eliminate_zeros()
    matrix.sum_duplicates()
    if not matrix.nnz:
        raise ParameterError("y", "must have at least one tag. Got none: all entries are zero.")
    return (matrix != 0).astype(np.float64), missing


def read_pairs(pairs: Any, *, n_points: int | None = None) -> sparse.csr_array:
    """Turn pairs into a symmetric sparse matrix of +1 and -1 without a diagonal.

    ``pairs`` is an array of rows (i, j, relation), three arrays, or a sparse matrix of shape (n_points, n_points).

    >>> read_pairs([[0, 1, 1], [0, 2, -1]], n_points=3).toarray().astype(int).tolist()
    [[0, 1, -1], [1, 0, 0], [-1, 0, 0]]
    """
    if sparse.issparse(pairs):
        coo = pairs.tocoo()
        if coo.shape[0] != coo.shape[1] or n_points not in (None, coo.shape[0]):
            expected = "square" if n_points is None else f"({n_points}, {n_points})"
            raise ValueError(f"The 'affinity' matrix must be {expected}. Got shape {coo.shape} instead.")
        i, j, relation, n_points = coo.row, coo.col, coo.data, int(coo.shape[0])
        kept = relation != 0
        i, j, relation = i[kept], j[kept], relation[kept]
    else:
        i, j, relation = _three_columns(pairs, "affinity", "(i, j, relation)")
        if n_points is None:
            raise ParameterError("n_points", "must be given with an array of pairs.")
        i, j = (_point_numbers(end, n_points, "affinity") for end in (i, j))
        _check_relations(relation)
    if relation.dtype.kind not in "biuf" or not np.isfinite(relation).all():
        raise ValueError("The relation of a pair must be a number: above 0 for similar, below 0 for dissimilar points.")
    return _signed_matrix(i, j, np.sign(relation), n_points, vote=False)


def read_triplets(triplets: Any, *, n_points: int) -> sparse.csr_array:
    """Turn triplets (anchor, positive, negative) into pairs: the anchor is similar to the second point, not the third.

    Triplets are comparisons, so they may disagree about a pair. Then the majority decides; a tie leaves the pair out.

    >>> read_triplets([[0, 1, 2]], n_points=3).toarray().astype(int).tolist()
    [[0, 1, -1], [1, 0, 0], [-1, 0, 0]]
    """
    columns = _three_columns(triplets, "triplets", "(anchor, positive, negative)")
    anchor, positive, negative = (_point_numbers(end, n_points, "triplets") for end in columns)
    i, j = np.concatenate([anchor, anchor]), np.concatenate([positive, negative])
    return _signed_matrix(i, j, np.repeat([1.0, -1.0], len(anchor)), n_points, vote=True)


def _as_array(y: Any) -> NDArray[Any]:
    """Labels as an array that keeps their types. (By itself NumPy turns ["cat", 1, nan] into strings.)"""
    array = np.asarray(y)
    if isinstance(y, list | tuple) and array.ndim == 1 and array.dtype.kind in "US" and not _is_text(y):
        array = np.empty(len(y), object)
        array[:] = y
    return array


def _is_text(values: Any) -> bool:
    return all(isinstance(value, str | bytes) for value in values)


def _missing(y: NDArray[Any], unlabelled: Any) -> NDArray[np.bool_]:
    """Mask of the missing entries of a 1-D array of labels."""
    if y.dtype.kind in "fc" and np.isinf(y).any():
        raise ParameterError("y", "must be finite, except for NaN, which means unlabelled. Got infinity.")
    missing = np.isnan(y) if y.dtype.kind in "fc" else np.zeros(len(y), bool)
    if y.dtype.kind in "OmM":
        missing = np.array([is_null(label) for label in y], bool)
    if unlabelled is not None:
        missing |= np.array([not is_null(label) and label == unlabelled for label in y.tolist()], bool)
    return missing


def is_null(label: Any) -> bool:
    """Whether a label is None, NaN, pandas' NA or NaT, or NumPy's NaT."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, Number | np.generic) and not isinstance(label, np.void) and bool(label != label)


def _of_one_type(labels: NDArray[Any]) -> NDArray[Any]:
    """The labels, after a check that they can be sorted: objects must all be numbers, or all of one type."""
    if labels.dtype != object:
        return labels
    kinds = {"number" if isinstance(label, Number | np.number | np.bool_) else type(label).__name__ for label in labels}
    if len(kinds) > 1:
        raise ParameterError("y", f"must have labels of one type. Got {' and '.join(sorted(kinds))} instead.")
    if kinds & {"dict", "set", "frozenset", "list", "type"}:
        raise ParameterError("y", f"must have numbers or strings as labels. Got {kinds.pop()} instead.")
    if kinds == {"number"} and any(abs(label) == math.inf for label in labels):
        raise ParameterError("y", "must be finite, except for NaN, which means unlabelled. Got infinity.")
    try:
        min(labels, default=None)
    except TypeError as error:
        kind = type(labels[0]).__name__
        raise ParameterError("y", f"must have labels that can be sorted. Got {kind} instead.") from error
    return labels


def _as_collections(tags: Any) -> Sequence[Any] | None:
    """One collection (or missing value) per point, or None if ``tags`` is a matrix."""
    if isinstance(tags, np.ndarray) and tags.ndim == 2:
        return [list(row) for row in tags] if _has(tags.flat, (str, bytes)) else None
    rows = list(tags)
    for number, row in enumerate(rows):
        if not isinstance(row, COLLECTIONS) and not is_null(row):
            raise ParameterError(
                "y",
                "must have one collection of tags per row, a set, list or tuple, or None. "
                f"Got {row!r} in row {number} instead.",
            )
    present = [row for row in rows if isinstance(row, COLLECTIONS)]
    is_matrix = len(present) == len(rows) and len({len(row) for row in rows}) == 1
    if not is_matrix or any(isinstance(row, set | frozenset) or _has(row, TAGS_ONLY) for row in present):
        return rows
    if not np.isin(np.asarray(rows), (0, 1)).all():
        raise ParameterError(
            "y",
            "is a list of equally long lists of numbers, which may be a tag matrix or lists of tags. "
            "Pass a NumPy array for a matrix (not zero for each tag that a row has), or sets for collections of tags.",
        )
    return None


def _has(values: Any, types: tuple[type, ...]) -> bool:
    return any(isinstance(value, types) for value in values)


def _tag_matrix(tags: Any) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    array = np.asarray(tags)
    if array.ndim != 2:
        raise ParameterError("y", f"must be 2-D for tags. Got shape {array.shape} instead.")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError("y", f"must have numbers in a tag matrix. Got {array.dtype} instead.") from error
    missing = np.isnan(array).all(axis=1)
    return sparse.csr_array(np.where(missing[:, None], 0.0, array)), missing


def _collected(rows: Sequence[Any], unlabelled: Any) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """The tag matrix of collections, with one column per tag in sorted order, and which points are unlabelled."""
    missing = np.array([is_null(row) or (unlabelled is not None and row == unlabelled) for row in rows], bool)
    tags = [[] if lost else list(row) for row, lost in zip(rows, missing, strict=True)]
    flat = np.empty(sum(map(len, tags)), object)
    flat[:] = [tag for row in tags for tag in row]
    if any(is_null(tag) or isinstance(tag, COLLECTIONS) for tag in flat):
        raise ParameterError("y", "must have strings or numbers as tags. Got a missing tag or a collection.")
    names, columns = np.unique(_of_one_type(flat), return_inverse=True)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in tags])])
    matrix = sparse.csr_array((np.ones(len(columns)), columns, indptr), shape=(len(tags), max(1, len(names))))
    return matrix, missing


def _three_columns(rows: Any, parameter: str, meaning: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The three columns of an array of shape (m, 3), or three arrays of the same length."""
    try:
        columns = np.asarray(rows)
    except ValueError:
        columns = np.empty(0)
    if columns.ndim == 2 and columns.shape[1] == 3 and not isinstance(rows, tuple):
        columns = columns.T
    if columns.ndim != 2 or columns.shape[0] != 3 or columns.dtype.kind not in "biuf":
        or_matrix = ", or a sparse matrix" if parameter == "affinity" else ""
        raise ParameterError(
            parameter,
            f"must be an array of shape (m, 3) or three arrays {meaning}{or_matrix}. "
            f"Got {columns.dtype} of shape {columns.shape} instead.",
        )
    return columns[0], columns[1], columns[2]


def _point_numbers(ends: NDArray[Any], n_points: int, parameter: str) -> NDArray[np.int64]:
    numbers = ends.astype(np.int64)
    if not np.array_equal(ends, numbers):
        raise ParameterError(parameter, "must name points by integers. Got other numbers instead.")
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < n_points):
        raise ParameterError(
            parameter, f"must name points from 0 to {n_points - 1}. Got {numbers.min()} to {numbers.max()} instead."
        )
    return numbers


def _check_relations(relation: NDArray[Any]) -> None:
    """Raise ValueError for a third column that is probably not a relation: triplets, or 0 and 1."""
    if (relation == 0).any():
        raise ValueError(
            "The relation of a pair must be above 0 for similar and below 0 for dissimilar points. Got 0. "
            "Leave out pairs about which nothing is known."
        )
    if len(relation) and not (relation < 0).any():
        raise ValueError(
            "The third column of 'affinity' must be below 0 for dissimilar pairs. Got no such pair; are these triplets "
            "(anchor, positive, negative)? Then pass them as triplets."
        )


def _signed_matrix(
    i: NDArray[Any], j: NDArray[Any], sign: NDArray[Any], n_points: int, *, vote: bool
) -> sparse.csr_array:
    """The symmetric matrix of the signs, with sorted rows. Contradictions are decided by majority, or are an error."""
    other = i != j
    i, j, sign = i[other], j[other], sign[other]
    ends = np.concatenate([i, j]), np.concatenate([j, i])
    similar, dissimilar = (
        sparse.csr_array((np.ones(int(2 * part.sum())), tuple(end[np.tile(part, 2)] for end in ends)), (n_points,) * 2)
        for part in (sign > 0, sign < 0)
    )
    conflict = similar.multiply(dissimilar).tocoo()
    if conflict.nnz and not vote:
        raise ParameterError(
            "affinity",
            f"must not contradict itself. Got points {conflict.row[0]} and {conflict.col[0]} "
            "both as similar and as dissimilar.",
        )
    signs = similar - dissimilar
    signs.eliminate_zeros()
    signs.data = np.sign(signs.data)
    signs.sort_indices()
    return signs
