"""Groups of rows that belong together, such as those of one writer or of one album, when some rows are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.parameters import ParameterError
from hashgrove.supervision.reading import is_null

__all__ = ["draw_groups", "read_groups"]


def read_groups(groups: Any, *, n_rows: int) -> NDArray[np.intp]:
    """The number of the group of each row, from names or numbers of groups.

    >>> read_groups(["ann", "bob", "ann"], n_rows=3)
    array([0, 1, 0])
    """
    given = np.asarray(groups)
    if given.ndim != 1 or len(given) != n_rows:
        raise ParameterError("groups", f"must have one group for each of the {n_rows} rows. Got shape {given.shape}.")
    if given.dtype == object:
        is_missing = np.array([is_null(name) for name in given.tolist()], bool)
        given = given.astype(str)
    else:
        is_missing = given != given  # as NaN is
    if np.any(is_missing):
        row = int(np.flatnonzero(is_missing)[0])
        raise ParameterError("groups", f"must have a group for each row. Got none in row {row}.")
    names, numbers = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise ParameterError("groups", "must have at least two groups, so that one can be held out. Got one.")
    return numbers.astype(np.intp, copy=False)


def draw_groups(groups: NDArray[np.intp], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of the rows of randomly drawn groups, which have about this share of the rows.

    Groups are drawn as long as they fit into the share; if none does, it is the smallest one. A single group is never
    drawn.

    >>> groups = np.repeat([0, 1, 2, 3], [10, 20, 30, 40])
    >>> np.unique(groups[draw_groups(groups, 0.3, np.random.default_rng(1))])
    array([0, 1])
    """
    names, sizes = np.unique(groups, return_counts=True)
    order = rng.permutation(len(names))
    wanted, n_drawn = share * len(groups), 0
    drawn: list[int] = []
    for place in order:
        if n_drawn + sizes[place] <= wanted:
            drawn.append(names[place])
            n_drawn += sizes[place]
    if not drawn and len(names) > 1:
        drawn.append(names[order[np.argmin(sizes[order])]])
    return np.isin(groups, drawn)
