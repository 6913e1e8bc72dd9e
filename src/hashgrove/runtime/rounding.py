"""Rows of features in one byte per number, and marks by which such rows are recognised."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["marked_places", "marks_of", "share_seen", "to_bytes", "training_marks"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_MARKS = 1000  # of the rows of a fit, which a model file remembers


def to_bytes(rows: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from -127 to 127, and the scale of each row.

    >>> values, scales = to_bytes(np.array([[1.0, -2.0]]))
    >>> values.tolist(), scales.round(4).tolist()
    ([[64, -127]], [0.015699999406933784])
    """
    part = np.asarray(rows, np.float32)
    scales: NDArray[np.float32] = np.abs(part).max(axis=1, initial=0.0) / np.float32(127)
    unit = np.where(scales > 0, scales, np.float32(1))
    return np.rint(part / unit[:, None]).astype(np.int8), scales


def marks_of(rows: NDArray[Any]) -> list[int]:
    """One number of 32 bits per row; rows that are equal in one byte per number have the same.

    >>> marks_of(np.array([[1.0, -2.0], [2.0, -4.0], [1.0, 1.0]]))
    [723512908, 723512908, 700717931]
    """
    if rows.dtype == np.float64:  # float32 would overflow, with a warning
        largest = np.abs(rows).max(axis=1, initial=0.0)
        rows = rows / np.where(largest > FLOAT32_MAX, largest, 1.0)[:, None]
    return [zlib.crc32(row) for row in to_bytes(rows)[0]]


def training_marks(rows: NDArray[Any]) -> list[int]:
    """Marks of at most 1,000 evenly spaced rows, ascending."""
    return sorted(marks_of(rows[marked_places(len(rows))]))


def marked_places(n_rows: int) -> NDArray[np.int64]:
    """The rows that `training_marks` takes.

    >>> marked_places(3).tolist()
    [0, 1, 2]
    """
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, MAX_MARKS)).astype(np.int64))


def share_seen(marks: Sequence[int], pieces: Iterable[NDArray[Any]]) -> float:
    """Share of the ``marks`` that some of the rows in these matrices have.

    >>> share_seen(marks_of(np.array([[1.0, -2.0], [3.0, 3.0]])), [np.array([[1.0, -2.0]])])
    0.5
    """
    there = {mark for rows in pieces for mark in marks_of(rows)}
    return sum(mark in there for mark in marks) / max(len(marks), 1)
