"""The pairs that a loss is summed over (section 3 of the paper): a sparse, symmetric relation.

A pair is similar (y_ij = +1 in the paper), dissimilar (-1) or undefined (0, not stored). For each point, at most
``n_similar`` of its similar and ``n_dissimilar`` of its dissimilar points are drawn without replacement. Each draw
then counts for both points of a pair, as in the authors' code, so that a point has about twice as many neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from hashgrove.runtime.parameters import Integer
from hashgrove.runtime.threads import chunks, in_order
from hashgrove.supervision.neighbours import (
    count_ends,
    draw_by_class,
    draw_by_tags,
    draw_of_rows,
    join_ends,
    scatter_ends,
)
from hashgrove.supervision.reading import UNLABELLED, read_classes, read_pairs, read_tags

__all__ = ["Affinity"]

ROWS_PER_CHUNK = 512
MOST_CHUNKS = 64  # of many rows, since drawing by tags clears an array of all rows for each
BUCKET_ROWS = 8192  # points whose pairs are put in order together; four times as many places are a uint16
Rows = tuple[NDArray[np.int64], NDArray[np.uint32]]  # (number of entries per row, column indices row by row)
DrawRows = Callable[[int, int], tuple[Rows, Rows]]  # similar and dissimilar neighbours of the rows from start to stop


@dataclass(frozen=True, eq=False)
class Affinity:
    """The pairs that a loss is summed over: the neighbours of each point. The relation is symmetric.

    Create it with `from_labels`, `from_tags` or `from_pairs`, or let `FastHash.fit` do it.

    Attributes
    ----------
    indptr : int64 array of shape (n_points + 1,)
        Row i is ``indices[indptr[i]:indptr[i + 1]]``.
    first_dissimilar : int64 array of shape (n_points,)
        The neighbours in row i are similar up to this position, and dissimilar from it on. Both parts are sorted.
    indices : uint32 array
        The neighbours.
    classes : int32 array of shape (n_points,), or None
        The class of each point if all points have a class label; the classes are then the blocks of Block GraphCut.

    Examples
    --------
    >>> affinity = Affinity.from_labels(["cat", "dog", "cat"], random_state=0)
    >>> affinity
    Affinity(3 points, 1 similar and 2 dissimilar pairs)
    >>> affinity.similar(0), affinity.dissimilar(0)
    (array([2], dtype=uint32), array([1], dtype=uint32))
    """

    indptr: NDArray[np.int64]
    first_dissimilar: NDArray[np.int64]
    indices: NDArray[np.uint32]
    classes: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.first_dissimilar)

    def __repr__(self) -> str:
        n_similar = self.n_similar_entries // 2
        n_dissimilar = (len(self.indices) - self.n_similar_entries) // 2
        return f"Affinity({len(self)} points, {n_similar} similar and {n_dissimilar} dissimilar pairs)"

    @cached_property
    def n_similar_entries(self) -> int:
        """Number of stored similar entries, which is twice the number of similar pairs."""
        return int((self.first_dissimilar - self.indptr[:-1]).sum())

    def similar(self, point: int) -> NDArray[np.uint32]:
        """The points similar to ``point``."""
        return self.indices[self.indptr[point] : self.first_dissimilar[point]]

    def dissimilar(self, point: int) -> NDArray[np.uint32]:
        """The points dissimilar to ``point``."""
        return self.indices[self.first_dissimilar[point] : self.indptr[point + 1]]

    def signs(self) -> sparse.csr_array:
        """The pairs as a sparse matrix of +1 and -1, with sorted rows."""
        lengths = np.diff(self.indptr)
        is_similar = np.arange(len(self.indices)) < np.repeat(self.first_dissimilar, lengths)
        matrix = sparse.csr_array(
            (np.where(is_similar, 1.0, -1.0), self.indices.astype(np.int64), self.indptr), shape=(len(self), len(self))
        )
        matrix.sort_indices()
        return matrix

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
        """Points of the same class are similar, all others are dissimilar.

        At most ``n_similar`` similar and ``n_dissimilar`` dissimilar points are drawn per point; ``None`` means all.
        """
        return cls.from_classes(
            read_classes(y)[0], n_similar=n_similar, n_dissimilar=n_dissimilar, random_state=random_state, n_jobs=n_jobs
        )

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
        """Points that share at least ``min_shared`` tags are similar, all others are dissimilar.

        Parameters
        ----------
        tags : array or scipy sparse matrix of shape (n_points, n_tags), or collections of tags
            A matrix has a non-zero entry for each tag that a point has.
        """
        matrix, missing = read_tags(tags)
        draws = {"n_similar": n_similar, "n_dissimilar": n_dissimilar, "random_state": random_state, "n_jobs": n_jobs}
        return cls.from_tag_matrix(matrix, missing, min_shared=min_shared, **draws)

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
        """Explicit pairs. Nothing is assumed about pairs that are not listed.

        Parameters
        ----------
        pairs : array of shape (m, 3), three arrays (i, j, relation), or scipy sparse matrix of shape (n, n)
            The relation is positive for similar and negative for dissimilar points. (i, j) also means (j, i).
        n_points : int, optional
            Number of points. Required with an array of pairs, since the last points may not be in any pair.
        """
        draws = {"n_similar": n_similar, "n_dissimilar": n_dissimilar, "random_state": random_state, "n_jobs": n_jobs}
        return cls.from_signs(read_pairs(pairs, n_points=n_points), **draws)

    @classmethod
    def from_classes(cls, classes: NDArray[np.int64], *, n_jobs: int | None = None, **draws: Any) -> Affinity:
        """The same as `from_labels`, for class numbers that have been checked; points of class -1 have no pairs."""
        limits, seed = _read_draws(**draws)
        known = np.flatnonzero(classes != UNLABELLED)
        labels = classes[known]
        by_class = np.argsort(labels, kind="stable").astype(np.uint32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(labels))])

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return draw_by_class(labels, by_class, starts, *limits, seed, start, stop)

        blocks = classes.astype(np.int32) if len(known) == len(classes) else None
        return cls._from_draws(draw_rows, known, n_points=len(classes), classes=blocks, n_jobs=n_jobs)

    @classmethod
    def from_tag_matrix(
        cls,
        tags: sparse.csr_array,
        missing: NDArray[np.bool_],
        *,
        min_shared: int,
        n_jobs: int | None = None,
        **draws: Any,
    ) -> Affinity:
        """The same as `from_tags`, for a tag matrix that has been checked; ``missing`` points have no pairs."""
        limits, seed = _read_draws(**draws)
        Integer(1).check("min_shared", min_shared)
        known = np.flatnonzero(~missing)
        tags = tags[known]
        by_tag = tags.tocsc()
        arrays = [a.astype(np.int64) for a in (tags.indptr, tags.indices, by_tag.indptr, by_tag.indices)]

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return draw_by_tags(*arrays, len(known), int(min_shared), *limits, seed, start, stop)

        return cls._from_draws(draw_rows, known, n_points=len(missing), n_jobs=n_jobs)

    @classmethod
    def from_signs(cls, signs: sparse.csr_array, *, n_jobs: int | None = None, **draws: Any) -> Affinity:
        """The same as `from_pairs`, for a symmetric matrix of +1 and -1 that has been checked."""
        limits, seed = _read_draws(**draws)
        n_points = int(signs.shape[0])
        rows = []
        for part in (signs > 0, signs < 0):
            rows += [part.indptr.astype(np.int64), part.indices.astype(np.int64)]

        def draw_rows(start: int, stop: int) -> tuple[Rows, Rows]:
            return (
                draw_of_rows(*rows[:2], limits[0], seed, 0, start, stop),
                draw_of_rows(*rows[2:], limits[1], seed, n_points, start, stop),
            )

        return cls._from_draws(draw_rows, np.arange(n_points), n_points=n_points, n_jobs=n_jobs)

    @classmethod
    def _from_draws(
        cls,
        draw_rows: DrawRows,
        known: NDArray[np.intp],
        *,
        n_points: int,
        classes: NDArray[np.int32] | None = None,
        n_jobs: int | None,
    ) -> Affinity:
        """Draw the neighbours of the ``known`` points among themselves, and make the draws symmetric."""
        limits, ends, places = _scattered(draw_rows, known, n_jobs=n_jobs)
        similar, both = np.zeros((2, n_points), np.int64)
        size = 0
        joined = in_order(lambda bucket: _joined(*bucket), _buckets(limits, ends, places, len(known)), n_jobs=n_jobs)
        for number, (n_similar, n_all, n_left) in enumerate(joined):
            points = known[number * BUCKET_ROWS : (number + 1) * BUCKET_ROWS]
            similar[points], both[points] = n_similar, n_all
            ends[size : size + n_left] = ends[limits[number] : limits[number] + n_left]
            size += n_left
        if not size:
            raise ValueError("The training points must have at least one known pair. Got none.")
        ends.resize(size, refcheck=False)  # gives the room of pairs that were drawn twice back
        indptr = np.append(0, np.cumsum(both))
        return cls(indptr, indptr[:-1] + similar, ends, classes)


def _scattered(
    draw_rows: DrawRows, known: NDArray[np.intp], *, n_jobs: int | None
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint16]]:
    """Where each bucket begins, and the ends of all pairs with their places; see `scatter_ends`.

    Neighbours are drawn twice, once to count them: if they were kept, they would take half as much memory as the ends.
    """
    n_buckets = -(-len(known) // BUCKET_ROWS)
    pieces = chunks(len(known), max(ROWS_PER_CHUNK, len(known) // MOST_CHUNKS))

    def count(piece: tuple[int, int]) -> NDArray[np.int64]:
        totals = np.zeros(n_buckets, np.int64)
        for counts, drawn in draw_rows(*piece):
            count_ends(BUCKET_ROWS, counts, drawn, piece[0], totals)
        return totals

    totals = sum(in_order(count, pieces, n_jobs=n_jobs), start=np.zeros(n_buckets, np.int64))
    limits = np.append(0, np.cumsum(totals))
    ends, places, cursor = np.empty(limits[-1], np.uint32), np.empty(limits[-1], np.uint16), limits[:-1].copy()
    drawn_again = in_order(lambda piece: draw_rows(*piece), pieces, n_jobs=n_jobs)
    for (start, _), draws in zip(pieces, drawn_again, strict=True):
        for kind, (counts, drawn) in zip((0, 2), draws, strict=True):
            scatter_ends(known, BUCKET_ROWS, counts, drawn, start, kind, cursor, ends, places)
    return limits, ends, places


def _buckets(
    limits: NDArray[np.int64], ends: NDArray[np.uint32], places: NDArray[np.uint16], n_rows: int
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint16], int]]:
    """The ends in each bucket, their places, and the number of points."""
    for number, (start, stop) in enumerate(pairwise(limits)):
        yield ends[start:stop], places[start:stop], min(BUCKET_ROWS, n_rows - number * BUCKET_ROWS)


def _joined(
    ends: NDArray[np.uint32], places: NDArray[np.uint16], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Put the ends of a bucket in order; returns how many are left, per point, similar ones and all, and in total."""
    n_similar, n_all = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    return n_similar, n_all, join_ends(ends, places, n_similar, n_all)


def _read_draws(*, n_similar: Any, n_dissimilar: Any, random_state: Any) -> tuple[tuple[int, int], np.uint64]:
    """The two limits, with a number that no row reaches in place of ``None``, and the seed of the draws."""
    limits = []
    for name, value in (("n_similar", n_similar), ("n_dissimilar", n_dissimilar)):
        Integer(1, or_none=True).check(name, value)
        limits.append(int(np.iinfo(np.int64).max if value is None else value))
    return (limits[0], limits[1]), np.uint64(check_random_state(random_state).randint(2**31))
