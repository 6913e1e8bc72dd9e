"""Kernels for texts of different lengths that lie one after the other: comparison, look-up and copies.

``data`` is uint8 and holds the texts in UTF-8, whose order by bytes is that of code points. ``ends`` is int64: text i
is ``data[ends[i - 1] : ends[i]]``, and the first one begins at 0.
"""

from __future__ import annotations

from typing import Any

from hashgrove.runtime.compiling import kernel

__all__ = ["compare_neighbours", "copy_texts", "find_texts"]


@kernel
def _compare(a: Any, i: int, a_end: int, b: Any, j: int, b_end: int) -> int:
    """-1, 0 or 1, as the text ``a[i:a_end]`` is less than, equal to or greater than ``b[j:b_end]``."""
    while i < a_end and j < b_end:
        if a[i] != b[j]:
            return -1 if a[i] < b[j] else 1
        i += 1
        j += 1
    return int(i < a_end) - int(j < b_end)


@kernel
def compare_neighbours(data: Any, ends: Any, first: int, out: Any) -> None:
    """Write -1, 0 or 1 to ``out``, int8, as texts from ``first`` on are less than, equal to, or above the next one."""
    start = ends[first - 1] if first else 0
    for i in range(out.size):
        end = ends[first + i]
        out[i] = _compare(data, start, end, data, end, ends[first + i + 1])
        start = end


@kernel
def find_texts(data: Any, ends: Any, wanted: Any, wanted_ends: Any, positions: Any, known: Any) -> None:
    """Write the last place of each wanted text among ascending ones, of which there is one, and whether it is there.

    ``positions`` is int64 and ``known`` bool, both (n_wanted,). O(n_wanted log n) comparisons.
    """
    start = 0
    for i in range(wanted_ends.size):
        stop = wanted_ends[i]
        low, high, order = 0, ends.size, 1  # the first text that is greater is from low to high
        while low < high:
            middle = (low + high) // 2
            first = ends[middle - 1] if middle else 0
            order = _compare(data, first, ends[middle], wanted, start, stop)
            if order <= 0:
                low = middle + 1
            else:
                high = middle
        positions[i] = max(low - 1, 0)
        first = ends[low - 2] if low > 1 else 0
        known[i] = low > 0 and _compare(data, first, ends[low - 1], wanted, start, stop) == 0
        start = stop


@kernel
def copy_texts(data: Any, ends: Any, positions: Any, out: Any, out_ends: Any) -> None:
    """Copy the texts at some positions to ``out``, uint8, and write where they end to ``out_ends``, int64."""
    size = 0
    for i in range(positions.size):
        position = positions[i]
        for place in range(ends[position - 1] if position else 0, ends[position]):
            out[size] = data[place]
            size += 1
        out_ends[i] = size
