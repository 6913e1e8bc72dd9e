"""`SearchResult`: what a search returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SearchResult"]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The items that a search has found, which can be unpacked: ``distances, ids = index.search(...)``.

    Attributes
    ----------
    distances : array of shape (n_queries, n_found), or list of n_queries arrays
        Of each query, ascending. A list after `Index.search_radius`, which finds a different number for each query.
    ids : array of shape (n_queries, n_found), or list of n_queries arrays
        The ids of these items; int64 or str.
    truncated : bool array of shape (n_queries,)
        Whether a radius search has left out items because of its ``limit``.
    """

    distances: Any
    ids: Any
    truncated: NDArray[np.bool_]

    def __iter__(self) -> Iterator[Any]:
        """Distances and ids."""
        return iter((self.distances, self.ids))
