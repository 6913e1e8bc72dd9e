"""Rows that are made when they are needed, and exact sums over them.

What a regression needs of many rows are sums of products. Rows rounded to integers of 15 bits have exact ones: float64
holds every sum over a block of rows, and int64 the total. So a sum is the same for all sizes and orders of blocks and
for any number of threads, and the rows are never in memory all at once, unless they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.runtime.executors import current_executor
from hashgrove.runtime.threads import chunks, in_order, run_tasks

__all__ = ["ROWS_PER_CHUNK", "ExactSums", "Numbers", "Rows", "integer_counts", "stratified_rows"]

ROWS_PER_CHUNK = 4096  # the grid on which rows are made; scores in float32 belong to it
PART_ROWS = 2**17  # of a task for another machine; a multiple of the sizes of blocks
KEPT_VALUES = 2**24  # rows with fewer values in all are made once and kept
KEPT_COSTLY_VALUES = 2**27  # the same for rows that take long to make; half a gigabyte
LEVELS = 2**15 - 1  # of positive integers
LARGEST_COUNT = 2**13  # of a weighted row, so that a sum over WEIGHTED_ROWS rows is below 2^53
WEIGHTED_ROWS = 1024
LARGEST_TOTAL = 2**32  # of all counts, so that sums stay below 2^63

Numbers = slice | NDArray[np.intp]  # which rows


class Rows:
    """The rows of a matrix, made of those of a source when they are needed.

    Some rows are ``make(source[numbers], *(values[numbers] for values in aligned))``. Up to `KEPT_VALUES` they are made
    once and kept; if they are costly, up to `KEPT_COSTLY_VALUES`. What is computed from all of them goes to the
    executor of the fit (`hashgrove.runtime.executors`), if there is one, unless they are kept.

    Parameters
    ----------
    source : array or StoredRows
    make : function, optional
        It may be sent to another process, and depends on its arguments only. Without it, rows are those of the source.
    n_columns : int, optional
        Of the rows that are made; by default as many as the source has.
    aligned : tuple
        Arrays, sparse matrices or rows, with one row for each of the source.
    n_jobs : int, optional
        Number of threads.
    is_costly, is_kept : bool
        Whether rows take long to make, and whether they may be kept.

    Examples
    --------
    >>> rows = Rows(np.arange(6.0).reshape(3, 2), np.negative)
    >>> rows.take(slice(1, 3)).tolist()
    [[-2.0, -3.0], [-4.0, -5.0]]
    """

    def __init__(
        self,
        source: Any,
        make: Callable[..., NDArray[Any]] = np.asarray,
        *,
        n_columns: int | None = None,
        aligned: tuple[Any, ...] = (),
        n_jobs: int | None = 1,
        is_costly: bool = False,
        is_kept: bool = True,
    ) -> None:
        self.shape = source.shape[0], source.shape[1] if n_columns is None else n_columns
        self.n_jobs, self._source, self._make, self._aligned = n_jobs, source, make, aligned
        limit = KEPT_COSTLY_VALUES if is_costly else KEPT_VALUES
        self._is_kept = is_kept and self.shape[0] * self.shape[1] <= limit
        if self._is_kept:
            parts = [(numbers,) for numbers in self.chunks()]
            self._source = np.concatenate(run_tasks(self.take, parts, n_jobs=n_jobs))
            self._make, self._aligned = np.asarray, ()

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, numbers: Numbers) -> NDArray[Any]:
        """Some of the rows."""
        return self._make(self._source[numbers], *(values[numbers] for values in self._aligned))

    def __getitem__(self, numbers: Numbers) -> NDArray[Any]:
        return self.take(numbers)

    def then(
        self, function: Callable[..., NDArray[Any]], *aligned: Any, n_columns: int | None = None, is_kept: bool = True
    ) -> Rows:
        """Rows that ``function(rows, *aligned)`` makes of these."""
        make = partial(_one_after_the_other, self._make, len(self._aligned), function)
        return Rows(
            self._source,
            make,
            n_columns=self.shape[1] if n_columns is None else n_columns,
            aligned=(*self._aligned, *aligned),
            n_jobs=self.n_jobs,
            is_kept=is_kept,
        )

    def chunks(self, size: int = ROWS_PER_CHUNK) -> list[slice]:
        """All rows, as slices of at most ``size`` rows."""
        return [slice(*limits) for limits in chunks(len(self), size)]

    def apply(self, function: Callable[..., Any], *aligned: Any) -> Any:
        """``function(rows, *aligned)`` for all rows, chunk by chunk; their results one after the other."""
        if (executor := self._executor()) is not None:
            return np.concatenate([*executor(partial(_apply_part, function), ROWS_PER_CHUNK, aligned)])

        def of_chunk(numbers: slice) -> Any:
            return function(self.take(numbers), *(values[numbers] for values in aligned))

        return np.concatenate(run_tasks(of_chunk, [(numbers,) for numbers in self.chunks()], n_jobs=self.n_jobs))

    def sums(
        self,
        function: Callable[..., tuple[NDArray[np.float64], ...]],
        *aligned: Any,
        size: int = ROWS_PER_CHUNK,
        chosen: NDArray[np.intp] | None = None,
    ) -> list[NDArray[np.int64]]:
        """The sums of the arrays of whole numbers that ``function(rows, *aligned)`` gives for blocks of ``size`` rows.

        ``chosen`` are the rows that are added up; all of them if it is None.
        """
        if chosen is None and (executor := self._executor()) is not None:
            return _total(executor(partial(_sum_part, function), size, aligned))

        def of_block(numbers: Numbers) -> tuple[NDArray[np.float64], ...]:
            return function(self.take(numbers), *(values[numbers] for values in aligned))

        blocks: list[Numbers] = [*self.chunks(size)]
        if chosen is not None:
            blocks = [chosen[start:stop] for start, stop in chunks(len(chosen), size)]
        return _total(in_order(of_block, blocks, n_jobs=self.n_jobs))

    def _executor(self) -> Callable[..., Iterator[Any]] | None:
        """A function that gives parts of the rows to the executor of the fit; None if this process does the work."""
        executor = None if self._is_kept else current_executor()
        if executor is None:
            return None

        def carry_out(function: Callable[[Any, _Part], Any], size: int, aligned: tuple[Any, ...]) -> Iterator[Any]:
            arrays = (*self._aligned, *aligned)
            parts = (
                _Part(start, stop, size, self._make, len(self._aligned), tuple(values[start:stop] for values in arrays))
                for start, stop in chunks(len(self), PART_ROWS)
            )
            return executor.map(function, parts, prepare=_as_it_is, rows=self._source)

        return carry_out


class _Part(NamedTuple):
    """Consecutive rows of a source, what they are made by and with, and the arrays for a function of them."""

    start: int
    stop: int
    size: int
    make: Callable[..., NDArray[Any]]
    n_aligned: int
    arrays: tuple[Any, ...]

    def results(self, function: Callable[..., Any], source: Any) -> Iterator[Any]:
        """``function(rows, *arrays)`` for blocks of ``size`` rows."""
        for start, stop in chunks(self.stop - self.start, self.size):
            arrays = [values[start:stop] for values in self.arrays]
            rows = self.make(source[self.start + start : self.start + stop], *arrays[: self.n_aligned])
            yield function(rows, *arrays[self.n_aligned :])


def _apply_part(function: Callable[..., Any], source: Any, part: _Part) -> NDArray[Any]:
    return np.concatenate([*part.results(function, source)])


def _sum_part(function: Callable[..., Any], source: Any, part: _Part) -> list[NDArray[np.int64]]:
    return _total(part.results(function, source))


def _total(results: Iterable[Any]) -> list[NDArray[np.int64]]:
    """Sums of arrays of whole numbers, which are the same in any order."""
    total: list[NDArray[np.int64]] = []
    for arrays in results:
        whole = [np.asarray(values).astype(np.int64, copy=False) for values in arrays]
        if not total:
            total = [values.copy() for values in whole]
            continue
        for values, more in zip(total, whole, strict=True):
            values += more
    return total


def _as_it_is(source: Any, *, n_jobs: int | None) -> Any:
    return source


def _one_after_the_other(
    first: Callable[..., Any], n_aligned: int, second: Callable[..., Any], rows: Any, *aligned: Any
) -> Any:
    return second(first(rows, *aligned[:n_aligned]), *aligned[n_aligned:])


def stratified_rows(n: int, size: int) -> NDArray[np.intp]:
    """``size`` row numbers, ascending: a random one of each of so many equal parts; all of them if there are fewer.

    The same for the same numbers. Rows at equal distances would all be of one class where classes take turns.

    >>> stratified_rows(3, 5).tolist(), (stratified_rows(6, 3) // 2).tolist()
    ([0, 1, 2], [0, 1, 2])
    """
    if n <= size:
        return np.arange(n)
    limits = np.arange(size + 1) * n // size
    return limits[:-1] + np.random.default_rng([n, size]).integers(np.diff(limits))


def integer_counts(weights: NDArray[np.float64] | None) -> NDArray[np.int64] | None:
    """The number of rows that each row counts as: its weight, rounded to 1 / 8,192 of the largest weight.

    >>> integer_counts(np.array([1.0, 2.0, 0.5])).tolist()
    [4096, 8192, 2048]
    """
    if weights is None:
        return None
    unit = max(weights.max() / LARGEST_COUNT, weights.sum() / LARGEST_TOTAL)
    return np.rint(weights / unit).astype(np.int64)


class ExactSums:
    """Sums over some rows, rounded to multiples of ``largest`` / 32,767.

    Parameters
    ----------
    rows : Rows
    counts : int64 array of shape (n_rows,), optional
        See `integer_counts`.
    chosen : array of row numbers, optional
        The rows that are added up; all of them if it is None.
    largest : float
        Values beyond it count as it.

    Examples
    --------
    >>> rows = Rows(np.array([[1.0, 0.0], [1.0, 1.0]]))
    >>> total, products = ExactSums(rows).moments()
    >>> total.tolist(), products.round(6).tolist()
    ([2.0, 1.0], [[2.0, 1.0], [1.0, 1.0]])
    """

    def __init__(
        self,
        rows: Rows,
        counts: NDArray[np.int64] | None = None,
        *,
        chosen: NDArray[np.intp] | None = None,
        largest: float = 1.0,
    ) -> None:
        self.unit, self._chosen = largest / LEVELS, chosen
        self._rows = rows.then(partial(_rounded, unit=self.unit))
        self._counts = () if counts is None else (counts,)
        self._size = ROWS_PER_CHUNK if counts is None else WEIGHTED_ROWS

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum of the rows x, and that of x x'."""
        total, products = self._rows.sums(_moments, *self._counts, size=self._size, chosen=self._chosen)
        return total.astype(np.float64) * self.unit, products.astype(np.float64) * self.unit**2

    def with_targets(self, targets: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """The sums of t and of t x' over the rows x and their targets t.

        Targets are small integers in a dense array or a sparse matrix, one row for each of the rows.
        """
        total, products = self._rows.sums(_with_targets, targets, *self._counts, size=self._size, chosen=self._chosen)
        return total.astype(np.float64), products * self.unit


def _rounded(rows: NDArray[Any], *, unit: float) -> NDArray[np.int16]:
    levels = rows * rows.dtype.type(1 / unit)
    np.rint(levels, out=levels)
    return np.clip(levels, -LEVELS, LEVELS, out=levels).astype(np.int16)


def _moments(rows: NDArray[np.int16], counts: NDArray[np.int64] | None = None) -> tuple[NDArray[np.float64], ...]:
    block, counted = _counted(rows, counts)
    return counted.sum(axis=0), block.T @ counted


def _with_targets(
    rows: NDArray[np.int16], targets: Any, counts: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float64], ...]:
    known = targets if sparse.issparse(targets) else targets.astype(np.float64)
    block, counted = _counted(rows, counts)
    ones = np.ones(len(block)) if counts is None else counts.astype(np.float64)
    return np.asarray(known.T @ ones), np.asarray(known.T @ counted)


def _counted(
    rows: NDArray[np.int16], counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows as integers in float64, and the same times their counts."""
    block = rows.astype(np.float64)
    return block, block if counts is None else block * counts[:, None]
