"""Rows that are made when they are needed, and exact sums over them.

What a regression needs of many rows are sums of products. Rows rounded to integers of 15 bits have exact ones: float64
holds every sum over a block of rows, and int64 the total. So a sum is the same for all sizes and orders of blocks and
for any number of threads, and the rows are never in memory all at once, unless they are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.runtime.threads import chunks, in_order, run_tasks

__all__ = ["ROWS_PER_CHUNK", "ExactSums", "Numbers", "Rows", "integer_counts", "stratified_rows"]

ROWS_PER_CHUNK = 4096  # the grid on which rows are made; scores in float32 belong to it
KEPT_VALUES = 2**24  # rows with fewer values in all are made once and kept
KEPT_COSTLY_VALUES = 2**27  # the same for rows that take long to make; half a gigabyte
LEVELS = 2**15 - 1  # of positive integers
LARGEST_COUNT = 2**13  # of a weighted row, so that a sum over WEIGHTED_ROWS rows is below 2^53
WEIGHTED_ROWS = 1024
LARGEST_TOTAL = 2**32  # of all counts, so that sums stay below 2^63

Numbers = slice | NDArray[np.intp]  # which rows


class Rows:
    """The rows of a matrix, which ``make(numbers)`` gives for a slice or an array of row numbers.

    Up to `KEPT_VALUES` they are made once and kept; if they are costly, up to `KEPT_COSTLY_VALUES`.

    >>> rows = Rows(lambda numbers: np.arange(6.0).reshape(3, 2)[numbers], (3, 2))
    >>> rows.take(slice(1, 3)).tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(
        self,
        make: Callable[[Numbers], NDArray[Any]],
        shape: tuple[int, int],
        *,
        n_jobs: int | None = 1,
        is_costly: bool = False,
    ) -> None:
        self.shape, self.n_jobs, self._make = shape, n_jobs, make
        if shape[0] * shape[1] <= (KEPT_COSTLY_VALUES if is_costly else KEPT_VALUES):
            parts = [(numbers,) for numbers in self.chunks()]
            kept = np.concatenate(run_tasks(make, parts, n_jobs=n_jobs))
            self._make = kept.__getitem__

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, numbers: Numbers) -> NDArray[Any]:
        """Some of the rows."""
        return self._make(numbers)

    def chunks(self, size: int = ROWS_PER_CHUNK) -> list[slice]:
        """All rows, as slices of at most ``size`` rows."""
        return [slice(*limits) for limits in chunks(len(self), size)]

    def apply(self, function: Callable[[Numbers], Any]) -> Any:
        """``function(numbers)`` for all rows, chunk by chunk; their results one after the other."""
        return np.concatenate(run_tasks(function, [(numbers,) for numbers in self.chunks()], n_jobs=self.n_jobs))


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
    >>> rows = Rows(lambda numbers: np.array([[1.0, 0.0], [1.0, 1.0]])[numbers], (2, 2))
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
        self.unit, self._counts = largest / LEVELS, counts
        self._rows = Rows(lambda numbers: self._rounded(rows.take(numbers)), rows.shape, n_jobs=rows.n_jobs)
        size = ROWS_PER_CHUNK if counts is None else WEIGHTED_ROWS
        self._blocks: list[Numbers] = [*self._rows.chunks(size)]
        if chosen is not None:
            self._blocks = [chosen[start:stop] for start, stop in chunks(len(chosen), size)]

    def _rounded(self, rows: NDArray[Any]) -> NDArray[np.int16]:
        levels = rows * rows.dtype.type(1 / self.unit)
        np.rint(levels, out=levels)
        return np.clip(levels, -LEVELS, LEVELS, out=levels).astype(np.int16)

    def _block(self, numbers: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows as integers in float64, and the same times their counts."""
        block = self._rows.take(numbers).astype(np.float64)
        return block, block if self._counts is None else block * self._counts[numbers, None]

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum of the rows x, and that of x x'."""

        def add_up(numbers: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            block, counted = self._block(numbers)
            return counted.sum(axis=0), block.T @ counted

        n_columns = self._rows.shape[1]
        total, products = np.zeros(n_columns, np.int64), np.zeros((n_columns, n_columns), np.int64)
        for of_rows, of_products in in_order(add_up, self._blocks, n_jobs=self._rows.n_jobs):
            total += of_rows.astype(np.int64)
            products += of_products.astype(np.int64)
        return total.astype(np.float64) * self.unit, products.astype(np.float64) * self.unit**2

    def with_targets(self, targets: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """The sums of t and of t x' over the rows x and their targets t.

        Targets are small integers in a dense array or a sparse matrix, one row for each of the rows.
        """

        def add_up(numbers: Numbers) -> tuple[NDArray[Any], NDArray[Any]]:
            known = targets[numbers]
            known = known if sparse.issparse(known) else known.astype(np.float64)
            block, counted = self._block(numbers)
            counts = np.ones(len(block)) if self._counts is None else self._counts[numbers].astype(np.float64)
            return np.asarray(known.T @ counts), np.asarray(known.T @ counted)

        total = np.zeros(targets.shape[1], np.int64)
        products = np.zeros((targets.shape[1], self._rows.shape[1]), np.int64)
        for of_targets, of_products in in_order(add_up, self._blocks, n_jobs=self._rows.n_jobs):
            total += of_targets.astype(np.int64)
            products += of_products.astype(np.int64)
        return total.astype(np.float64), products * self.unit
