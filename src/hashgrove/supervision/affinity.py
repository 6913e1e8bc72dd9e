"""Step 0: who is similar to whom. Class labels, tags or explicit pairs become one sparse, symmetric relation.

A pair is similar (y_ij = +1 in the paper), dissimilar (-1) or undefined (0, not stored). Of the similar and of the
dissimilar points of each point at most ``n_similar`` and ``n_dissimilar`` are drawn, without replacement, and the
draw is symmetrised by union, as in the authors' code: about twice as many neighbours for each point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, column_or_1d

from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.supervision.neighbours import draw_by_class, draw_by_tags, draw_of_rows, interleave, union

__all__ = ["Affinity", "check_labels", "check_target", "label_indicator"]

ROWS_PER_CHUNK = 512
Rows = tuple[NDArray[np.int64], NDArray[np.uint32]]  # (entries of each row, column indices row by row)


@dataclass(frozen=True, eq=False)
class Affinity:
    """The pairs that a loss is summed over, as rows of neighbours.

    Make one by `from_labels`, `from_tags` or `from_pairs`. The relation is symmetric and has no diagonal.

    Attributes
    ----------
    indptr : int64 array of shape (n_points + 1,)
        Row i is ``indices[indptr[i]:indptr[i + 1]]``.
    middle : int64 array of shape (n_points,)
        Row i is similar up to ``middle[i]`` and dissimilar from there on; both runs are sorted.
    indices : uint32 array
        The neighbours.
    classes : int32 array of shape (n_points,), or None
        The class of each point where the relation comes from class labels, so that a class can be a block.

    Examples
    --------
    >>> affinity = Affinity.from_labels(["cat", "dog", "cat"], random_state=0)
    >>> affinity
    Affinity(3 points, 1 similar and 2 dissimilar pairs)
    >>> affinity.similar(0), affinity.dissimilar(0)
    (array([2], dtype=uint32), array([1], dtype=uint32))
    """

    indptr: NDArray[np.int64]
    middle: NDArray[np.int64]
    indices: NDArray[np.uint32]
    classes: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.middle)

    def __repr__(self) -> str:
        n_similar = self.n_similar_entries // 2
        n_dissimilar = (len(self.indices) - self.n_similar_entries) // 2
        return f"Affinity({len(self)} points, {n_similar} similar and {n_dissimilar} dissimilar pairs)"

    @cached_property
    def n_similar_entries(self) -> int:
        """Number of stored similar entries, twice the number of similar pairs."""
        return int((self.middle - self.indptr[:-1]).sum())

    def similar(self, point: int) -> NDArray[np.uint32]:
        """The points similar to ``point``."""
        return self.indices[self.indptr[point] : self.middle[point]]

    def dissimilar(self, point: int) -> NDArray[np.uint32]:
        """The points dissimilar to ``point``."""
        return self.indices[self.middle[point] : self.indptr[point + 1]]

    @classmethod
    def from_labels(
        cls,
        y: ArrayLike,
        *,
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Affinity:
        """Points of the same class are similar, all others dissimilar; ``None`` neighbours means all."""
        limits = _check_limits(n_similar, n_dissimilar)
        classes = check_labels(y)
        by_class = np.argsort(classes, kind="stable").astype(np.uint32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(classes))])
        seed = _seed(random_state)

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return draw_by_class(classes, by_class, starts, *limits, seed, start, stop)

        return cls._from_draws(draw_rows, n_points=len(classes), classes=classes.astype(np.int32), n_jobs=n_jobs)

    @classmethod
    def from_tags(
        cls,
        tags: Any,
        *,
        min_shared: int = 2,
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Affinity:
        """Points that share ``min_shared`` tags or more are similar, all others dissimilar.

        Parameters
        ----------
        tags : array or scipy sparse matrix of shape (n_points, n_tags)
            Non-zero where the point has the tag.
        """
        limits = _check_limits(n_similar, n_dissimilar)
        if not isinstance(min_shared, int | np.integer) or min_shared < 1:
            raise ValueError(f"The 'min_shared' parameter must be an integer >= 1. Got {min_shared!r} instead.")
        _refuse_nan(tags.data if sparse.issparse(tags) else np.asarray(tags))
        tags = sparse.csr_array(tags)
        if tags.ndim != 2:
            raise ValueError(f"The 'tags' parameter must be 2-D. Got shape {tags.shape} instead.")
        tags.eliminate_zeros()
        tags.sum_duplicates()
        n_points = int(tags.shape[0])
        by_tag = tags.tocsc()
        arrays = [a.astype(np.int64) for a in (tags.indptr, tags.indices, by_tag.indptr, by_tag.indices)]
        seed = _seed(random_state)

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return draw_by_tags(*arrays, n_points, int(min_shared), *limits, seed, start, stop)

        return cls._from_draws(draw_rows, n_points=n_points, n_jobs=n_jobs)

    @classmethod
    def from_pairs(
        cls,
        pairs: Any,
        *,
        n_points: int | None = None,
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Affinity:
        """Explicit pairs; those that are not named are undefined.

        Parameters
        ----------
        pairs : array of shape (m, 3), three arrays (i, j, relation), or scipy sparse matrix of shape (n, n)
            The relation is positive for similar and negative for dissimilar; 0 is undefined. (i, j) also means (j, i).
        n_points : int, optional
            Number of points; needed with an array of pairs, since the last points may have none.
        """
        limits = _check_limits(n_similar, n_dissimilar)
        i, j, relation, n_points = _check_pairs(pairs, n_points)
        ends = np.concatenate([i, j]), np.concatenate([j, i])
        both = np.concatenate([relation, relation])
        similar, dissimilar = (
            sparse.csr_array(
                (np.ones(int(chosen.sum()), bool), (ends[0][chosen], ends[1][chosen])),
                shape=(n_points, n_points),
            )
            for chosen in (both > 0, both < 0)
        )
        conflict = similar.multiply(dissimilar).tocoo()
        if conflict.nnz:
            raise ValueError(
                f"The 'pairs' parameter must not contradict itself. Got points {conflict.row[0]} and {conflict.col[0]} "
                "both as similar and as dissimilar."
            )
        rows = [a.astype(np.int64) for m in (similar, dissimilar) for a in (m.indptr, m.indices)]
        seed = _seed(random_state)

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return (
                draw_of_rows(*rows[:2], limits[0], seed, 0, start, stop),
                draw_of_rows(*rows[2:], limits[1], seed, n_points, start, stop),
            )

        return cls._from_draws(draw_rows, n_points=n_points, n_jobs=n_jobs)

    @classmethod
    def _from_draws(
        cls,
        draw_rows: Callable[[int, int], tuple[Rows, Rows]],
        *,
        n_points: int,
        classes: NDArray[np.int32] | None = None,
        n_jobs: int | None,
    ) -> Affinity:
        parts = run_tasks(draw_rows, chunks(n_points, ROWS_PER_CHUNK), n_jobs=n_jobs)
        unions = []
        for drawn in zip(*parts, strict=True):
            counts = np.concatenate([counts for counts, _ in drawn])
            indices = np.concatenate([indices for _, indices in drawn])
            unions.append(union(np.concatenate([[0], np.cumsum(counts)]), indices))
        (similar_ptr, similar), (dissimilar_ptr, dissimilar) = unions
        if not len(similar) + len(dissimilar):
            raise ValueError("The training points must have at least one defined pair. Got none.")
        indices = np.empty(len(similar) + len(dissimilar), np.uint32)
        indptr = similar_ptr + dissimilar_ptr
        middle = indptr[:-1] + np.diff(similar_ptr)
        interleave(similar_ptr, similar, dissimilar_ptr, dissimilar, indptr, middle, indices)
        return cls(indptr, middle, indices, classes)


def check_labels(y: ArrayLike) -> NDArray[np.int64]:
    """Class labels of any type as numbers from 0; there must be two classes, and two points of one class."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"The 'y' parameter must be 1-D class labels. Got shape {y.shape} instead.")
    _refuse_nan(y)
    names, classes = np.unique(y, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"The 'y' parameter must have at least two classes. Got {len(names)} class instead.")
    if len(names) == len(y):
        raise ValueError(
            f"The 'y' parameter must have two points of one class at least. Got {len(y)} different labels for "
            f"{len(y)} points instead; are they identifiers or real numbers?"
        )
    return classes


def label_indicator(labels: Any) -> NDArray[np.float64]:
    """One column a class of 1-D class numbers, or a tag of a tag matrix; 1 where the point has it.

    >>> label_indicator(np.array([0, 1, 0])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if labels.ndim == 1:
        return (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    return ((labels.toarray() if sparse.issparse(labels) else np.asarray(labels)) != 0).astype(np.float64)


def check_target(X: NDArray[Any], y: Any, affinity: Any, *, estimator: str) -> tuple[str, Any]:
    """What `fit` was given: ("labels", 1-D), ("tags", 2-D), ("affinity", an Affinity) or ("pairs", its source)."""
    if (y is None) == (affinity is None):
        if y is not None:
            raise ValueError("The 'y' and 'affinity' parameters must not both be given.")
        raise ValueError(
            f"This {estimator} estimator requires y to be passed, but the target y is None. "
            "Pass class labels or a tag matrix as y, or pairs as affinity."
        )
    if isinstance(affinity, Affinity):
        check_consistent_length(X, affinity)
        return "affinity", affinity
    if affinity is not None:
        return "pairs", affinity
    check_consistent_length(X, y)
    y = y if sparse.issparse(y) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] > 1:
        return "tags", y
    return "labels", column_or_1d(y, warn=True)


def _check_limits(n_similar: int | None, n_dissimilar: int | None) -> tuple[int, int]:
    """The two limits as integers; ``None`` becomes a number that no row reaches."""
    for name, value in (("n_similar", n_similar), ("n_dissimilar", n_dissimilar)):
        if value is not None and (not isinstance(value, int | np.integer) or value < 1):
            raise ValueError(f"The '{name}' parameter must be an integer >= 1 or None (all). Got {value!r} instead.")
    everything = np.iinfo(np.int64).max
    return (
        int(everything if n_similar is None else n_similar),
        int(everything if n_dissimilar is None else n_dissimilar),
    )


def _check_pairs(pairs: Any, n_points: int | None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], int]:
    """Pairs as (i, j, relation, n_points), without the diagonal."""
    if sparse.issparse(pairs):
        coo = pairs.tocoo()
        if coo.shape[0] != coo.shape[1] or n_points not in (None, coo.shape[0]):
            expected = "square" if n_points is None else f"({n_points}, {n_points})"
            raise ValueError(f"The 'pairs' matrix must be {expected}. Got shape {coo.shape} instead.")
        i, j, relation, n_points = coo.row, coo.col, coo.data, int(coo.shape[0])
    else:
        columns = np.asarray(pairs)
        if columns.ndim == 2 and columns.shape[1] == 3 and not isinstance(pairs, tuple):
            columns = columns.T
        if columns.ndim != 2 or columns.shape[0] != 3:
            raise ValueError(
                "The 'pairs' parameter must be an array of shape (m, 3), three arrays (i, j, relation), or a sparse "
                f"matrix. Got shape {columns.shape} instead."
            )
        if n_points is None:
            raise ValueError("The 'n_points' parameter must be given with an array of pairs.")
        i, j, relation = columns
        if not np.array_equal(i, i.astype(np.int64)) or not np.array_equal(j, j.astype(np.int64)):
            raise ValueError("The first two columns of 'pairs' must be integers, the numbers of two points.")
        i, j = i.astype(np.int64), j.astype(np.int64)
    _refuse_nan(relation)
    for end in (i, j):
        if len(end) and not (end.min() >= 0 and end.max() < n_points):
            raise ValueError(
                f"The 'pairs' parameter must name points from 0 to {n_points - 1}. "
                f"Got {end.min()} to {end.max()} instead."
            )
    off_diagonal = i != j
    return i[off_diagonal], j[off_diagonal], relation[off_diagonal], n_points


def _refuse_nan(values: NDArray[Any]) -> None:
    if values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise ValueError("Labels, tags and pairs must be finite. Got NaN or infinity.")


def _seed(random_state: Any) -> np.uint64:
    return np.uint64(check_random_state(random_state).randint(2**31))
