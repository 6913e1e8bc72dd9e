"""Groups of rows that belong together, such as those of one writer or of one album, when some rows are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.parameters import ParameterError

__all__ = ["draw_groups", "read_groups"]


def read_groups(groups: Any, *, n_rows: int) -> NDArray[np.intp]:
    """The number of the group of each row, from names or numbers of groups.

    >>> read_groups(["ann", "bob", "ann"], n_rows=3)
    array([0, 1, 0])
    """
    given = np.asarray(groups)
    if given.ndim != 1 or len(given) != n_rows:
        raise ParameterError("groups", f"must have one group for each of the {n_rows} rows. Got shape {given.shape}.")
    is_missing = given != given  # as NaN is
    if given.dtype == object:
        is_missing = np.array([name is None or name != name for name in given.tolist()], bool)
        given = given.astype(str)
    if np.any(is_missing):
        row = int(np.flatnonzero(is_missing)[0])
        raise ParameterError("groups", f"must have a group for each row. Got none in row {row}.")
    names, numbers = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise ParameterError("groups", "must have at least two groups, so that one can be held out. Got one.")
    return numbers.astype(np.intp, copy=False)


def draw_groups(groups: NDArray[np.intp], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The rows of randomly drawn groups, at least one and not all, that have about this share of the rows; as a mask.

    Groups are drawn until they would have more than the share. Of a single group no row is drawn.

    >>> groups = np.repeat([0, 1, 2, 3], [10, 20, 30, 40])
    >>> np.unique(groups[draw_groups(groups, 0.3, np.random.default_rng(1))])
    array([2])
    """
    names, sizes = np.unique(groups, return_counts=True)
    order = rng.permutation(len(names))
    wanted, n_drawn = share * len(groups), 0
    drawn: list[int] = []
    for place in order[: len(names) - 1]:
        if not drawn or n_drawn + sizes[place] <= wanted:
            drawn.append(names[place])
            n_drawn += sizes[place]
    return np.isin(groups, drawn)
