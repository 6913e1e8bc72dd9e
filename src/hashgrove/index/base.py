"""`Index`: the contract of every index, whether its items are in memory, in a folder or in a database."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.changes import Changes
from hashgrove.index.ids import check_allowed, check_ids
from hashgrove.index.pairs import Pairs
from hashgrove.runtime.parameters import Integer, ParameterError

if TYPE_CHECKING:
    from hashgrove.index.rerank import Rerank

__all__ = ["Index"]


class Index(Changes, Pairs):
    """Packed codes with ids, which can be searched by Hamming distance.

    This is the contract of every index; ``tests/contract/test_index_contract.py`` checks each point for all of them.

    **Items.** An item is a code with an id. Ids are unique, and either all int64 or all text (str, not empty, at most
    1,024 bytes in UTF-8); the first items decide which. Without ids an item gets the next integer after the largest
    id, so a new index has the ids 0, 1, 2, ... `codes` and `ids` list all items in ascending order of their ids;
    texts are ordered by code points.

    **Search.**

    - The distance is the number of bits that differ. It is counted over whole bytes, padding bits included.
    - `search` returns the ``k`` nearest items, sorted by distance and then by id. Which of several items at the same
      distance are among the ``k`` follows the same order, so there is exactly one right result. It does not depend on
      the number of threads.
    - Results are never padded. If fewer than ``k`` items can be found, all of them are returned and the arrays have
      fewer than ``k`` columns.
    - `search_radius` returns all items whose distance is less than *or equal to* the radius, in the same order.
    - ``allowed`` restricts a search to some items, for all queries: ids in any order, of which those that are not in
      the index are ignored; or a mask, bool, with one entry per item in the order of `ids`. The result is that of an
      index with only these items.
    - An empty index and an empty array of queries are valid and give empty results.
    - Codes of the wrong dtype or length raise ValueError. Nothing is converted.

    **Change.** `add`, `remove` and `update` do all of what they were asked or, if they raise an error, nothing.

    - Several threads may search and change an index at the same time. A search sees the items of one moment: all of
      a change that has returned before, and all or nothing of one that is still running.

    **Models.** Codes of different models cannot be compared. An index that knows its `model` refuses items and queries
    that are said to be of another one.

    **Near items.** `pairs_within` finds all pairs of items within a radius, `groups` sets of items that are all within
    a radius of each other, and `suggest_radius` a radius from pairs that are known to be similar or not.

    **A new index** is a subclass with the methods of `hashgrove.index.hooks.Hooks`, and one line in
    `hashgrove.index.INDEXES`. Everything else follows; arguments have been checked when those methods are called.

    Parameters
    ----------
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes: an encoder, a hasher, or its digest.
    """

    def __repr__(self) -> str:
        width = "" if self.n_bytes is None else f" of {self.n_bytes} bytes"
        return f"{type(self).__name__}({len(self)} codes{width})"

    def __contains__(self, item: object) -> bool:
        """Whether there is an item with this id."""
        try:
            return bool(self._known(check_ids(np.array([item], type(item) if type(item) is str else None)))[0])
        except (ValueError, OverflowError):  # this can be no id
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_changing"}  # a lock has no copy

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _changing=threading.Lock())

    def close(self) -> None:
        """Release what the index holds outside of memory. A ``with`` statement does this at its end."""

    def search(
        self,
        codes: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        rerank: Rerank | None = None,
        features: ArrayLike | None = None,
        model: Any = None,
        n_jobs: int | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Find the ``k`` nearest items of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        k : int
            At least 1. If it is larger than the number of items, all items are returned.
        allowed : array-like, optional
            Ids, or a mask over `ids`: only these items are searched.
        rerank : Rerank, optional
            Order the nearest items by their features instead; see `Rerank`.
        features : array of shape (n_queries, n_features), optional
            The features of the queries, for ``rerank``.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes of the queries. It is refused if it is not that of the index.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : uint16 array of shape (n_queries, min(k, n)), or float32 with ``rerank``
        ids : int64 or str array of shape (n_queries, min(k, n))

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[7], [1]], np.uint8), ids=["seven", "one"])
        >>> index.search(np.array([[0]], np.uint8), 10)
        (array([[1, 3]], dtype=uint16), array([['one', 'seven']], dtype='<U5'))
        """
        queries = self._check_queries(codes, model, n_jobs)
        k = int(Integer(1).check("k", k))
        only = check_allowed(allowed)
        if rerank is not None:
            return rerank.search(self, queries, k, features, allowed=only, n_jobs=n_jobs)
        if features is not None:
            raise ParameterError("features", "must be given together with 'rerank'. Got it alone instead.")
        return self._search(queries, k, only, n_jobs)

    def search_radius(
        self,
        codes: ArrayLike,
        radius: int,
        *,
        allowed: ArrayLike | None = None,
        model: Any = None,
        n_jobs: int | None = None,
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        """Find all items within ``radius`` (inclusive) of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        radius : int
            At least 0; 0 finds equal codes.
        allowed, model, n_jobs
            As for `search`.

        Returns
        -------
        distances : list of n_queries uint16 arrays
        ids : list of n_queries int64 or str arrays

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[0], [1], [3]], np.uint8))
        >>> distances, ids = index.search_radius(np.array([[0]], np.uint8), 1)
        >>> distances[0], ids[0]
        (array([0, 1], dtype=uint16), array([0, 1]))
        """
        queries = self._check_queries(codes, model, n_jobs)
        return self._search_radius(queries, int(Integer(0).check("radius", radius)), check_allowed(allowed), n_jobs)
