"""`Index`: the contract of every index, whether its items are in memory, in a folder or in a database."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import Codes, check_codes, check_model, digest_of
from hashgrove.index.changes import Change
from hashgrove.index.ids import MAX_ID, are_ascending, check_allowed, check_ids, refuse_duplicates
from hashgrove.index.rerank import Int8Rows, Order
from hashgrove.index.results import SearchResult
from hashgrove.index.weighted import check_weights
from hashgrove.runtime.html import html_table
from hashgrove.runtime.parameters import Flag, Integer, ParameterError
from hashgrove.runtime.threads import available_threads

__all__ = ["Index"]


class Index(ABC):
    """Packed codes with ids, which can be searched by Hamming distance.

    This is the contract of every index; ``tests/contract/test_index_contract.py`` checks each point for all of them.

    **Items.** An item is a code with an id. Ids are unique, and either all int64 or all text (str, not empty, at most
    1,024 bytes in UTF-8); the first items decide which. Without ids an item gets the next integer after the largest
    id, so a new index has the ids 0, 1, 2, ...

    **Order.** `ids` and `codes` list the items in the order in which they were added. So does everything that is given
    per item: labels, features and masks. An item keeps its place when its code is updated, and the others keep their
    order when it is removed. Saving, loading and compacting do not change the order.

    **Search.**

    - The distance is the number of bits that differ. It is counted over whole bytes, padding bits included.
    - `search` returns the ``k`` nearest items, sorted by distance and then by id (texts by code points). Which of
      several items at the same distance are among the ``k`` follows the same order, so there is exactly one right
      result. It does not depend on the number of threads.
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

    **Models.** Codes of different models cannot be compared. Hashers and encoders return `Codes`, which know their
    model. An index of such codes knows its `model` too: it refuses codes of another one, and arrays that do not say
    which model made them unless ``model`` is given with them. An index that does not know its model takes any codes;
    while it is empty, it adopts the model of the first ones.

    **A new index** is a subclass with the abstract methods below, and one line in `hashgrove.index.INDEXES`. Everything
    else follows; arguments have been checked when those methods are called.

    Parameters
    ----------
    model : str, or an object with the attribute ``digest``, optional
        The model that makes the codes: an encoder, a hasher, or its digest.
    """

    accepts_weights: ClassVar[bool] = False  # whether `search` accepts ``weights``; then there is `_search_weighted`
    accepts_features: ClassVar[bool] = False  # whether `add` and `update` accept ``features``

    def __init__(self, *, model: Any = None) -> None:
        self._changing = threading.Lock()
        self._model = digest_of(model)

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    @property
    @abstractmethod
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""

    @abstractmethod
    def _contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Ids, int64 or str, and codes of all items of one moment, in the order of `ids`; read-only."""

    @abstractmethod
    def _known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of these ids, int64 or str, is in the index."""

    @abstractmethod
    def _change(self, change: Change) -> None:
        """Make a change, as a whole or not at all. It is called inside `_exclusively`."""

    @abstractmethod
    def _search(
        self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """Distances and ids for `search` with checked arguments; ``allowed`` is a mask, ascending ids, or None."""

    @abstractmethod
    def _search_radius(
        self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        """Distances and ids for `search_radius` with checked arguments; ``allowed`` as for `_search`."""

    def _search_weighted(
        self,
        codes: NDArray[np.uint8],
        weights: NDArray[np.float64],
        k: int,
        allowed: NDArray[Any] | None,
        n_jobs: int | None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Distances and ids for `search` with ``weights``, as `check_weights` returns them."""
        raise NotImplementedError

    @abstractmethod
    def _search_reranked(
        self, rerank: Order, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, **options: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Distances and ids for `search` with ``rerank``; candidates, their codes and features are of one moment.

        ``options`` are ``features`` and ``n_jobs`` of `hashgrove.index.rerank.Order.search`.
        """

    def _exclusively(self) -> AbstractContextManager[Any]:
        """A context for a change and all that it reads before: no other change runs at the same time."""
        return self._changing

    def __repr__(self) -> str:
        width = "" if self.n_bytes is None else f" of {self.n_bytes} bytes"
        return f"{type(self).__name__}({len(self)} codes{width})"

    def _repr_html_(self) -> str:
        rows = [("items", f"{len(self):,}"), ("bytes per code", self.n_bytes), ("model", self.model)]
        return html_table(type(self).__name__, [row for row in rows if row[1] is not None])

    def __contains__(self, item: object) -> bool:
        """Whether there is an item with this id."""
        try:
            return bool(self.contains(np.array([item], type(item) if type(item) is str else None))[0])
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

    def prepare(self, *, wait: bool = True) -> None:  # noqa: B027 (most indexes have nothing to prepare)
        """Make ready what later searches use, so that none of them is slower than others; see `MultiIndex.prepare`.

        Parameters
        ----------
        wait : bool
            Whether to return only when that is done. Otherwise a thread does it, and searches do not wait for it.
        """

    def close(self) -> None:  # noqa: B027 (an index in memory holds nothing)
        """Release what the index holds outside of memory. A ``with`` statement does this at its end."""

    @property
    def ids(self) -> NDArray[Any]:
        """All ids in the order in which the items were added: int64 or str (n,), read-only."""
        return self._contents()[0]

    @property
    def codes(self) -> Codes:
        """All codes in the order of `ids`: uint8 (n, n_bytes), read-only."""
        return self.items()[1]

    def items(self) -> tuple[NDArray[Any], Codes]:
        """`ids` and `codes` of one moment, which two calls would not guarantee while other threads change the index.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> ids, codes = FlatIndex(np.array([[5], [7]], np.uint8)).items()
        >>> ids.tolist(), codes.tolist()
        ([0, 1], [[5], [7]])
        """
        ids, codes = self._contents()
        known = codes.view(Codes)
        known.model = self.model
        return ids, known

    @property
    def model(self) -> str | None:
        """Digest of the model that made the codes; None if it is not known."""
        return self._model

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Whether there is an item with each of these ids: bool, shape (n,).

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> FlatIndex(np.array([[5], [7]], np.uint8)).contains([1, 2])
        array([ True, False])
        """
        return self._known(check_ids(ids))

    def next_ids(self, count: int) -> NDArray[np.int64]:
        """The ids that the next ``count`` items get without ``ids``: the integers after the largest id.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> FlatIndex(np.array([[5], [7]], np.uint8)).next_ids(3)
        array([2, 3, 4])
        """
        if count and self._has_texts():
            raise ParameterError("ids", "must be given, as the ids of the index are texts. Got None instead.")
        start = self._largest_id() + 1 if count else 0
        if start + count - 1 > MAX_ID:
            raise ParameterError("ids", f"must be given: no int64 is left above the id {start - 1}.")
        return np.arange(count, dtype=np.int64) + start

    @property
    def id_kind(self) -> str | None:
        """The type of the ids, "int" or "text"; None if there are no items."""
        texts = self._has_texts()
        return None if texts is None else "text" if texts else "int"

    def _has_texts(self) -> bool | None:
        """Whether the ids are texts; None if there are none."""
        return self.ids.dtype.kind == "U" if len(self) else None

    def _largest_id(self) -> int:
        """The largest id of an index with integers; -1 if there is none."""
        return int(max(self.ids, default=-1))

    def add(
        self,
        codes: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        features: ArrayLike | None = None,
        replace: bool = False,
        model: Any = None,
    ) -> None:
        """Add items. If anything is wrong with them, none is added.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int or str, shape (n,), optional
            The ids of these codes, in any order and without duplicates.
        features : array of shape (n, n_features), optional
            The features of the items, which an index in memory or in a folder keeps for `Rerank`, in one byte each.
        replace : bool
            Whether items that are in the index already get the new codes and features; otherwise they are refused.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes, if these are a plain array.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex()
        >>> index.add(np.array([[1], [2]], np.uint8), ids=[10, 20])
        >>> index.add(np.array([[7], [8]], np.uint8), ids=[20, 30], replace=True)
        >>> index.ids, index.codes.tolist()
        (array([10, 20, 30]), [[1], [7], [8]])
        """
        Flag().check("replace", replace)
        with self._exclusively():
            change = self._checked(codes, ids, features, model)
            if change.replaces.any() and not replace:
                known = change.ids[change.replaces][0]
                raise ParameterError(
                    "ids",
                    f"must have ids that are new to the index. Got {known} instead, which is already in it; "
                    "use the 'replace' parameter to replace such items.",
                )
            self._change(change)

    def remove(self, ids: ArrayLike, *, missing_ok: bool = False) -> int:
        """Remove items. If anything is wrong with the ids, none is removed.

        Parameters
        ----------
        ids : array-like of int or str
            In any order; an id may occur twice.
        missing_ok : bool
            Whether ids that are not in the index are ignored; otherwise they are refused.

        Returns
        -------
        n_removed : int

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[1], [2], [3]], np.uint8))
        >>> index.remove([0, 2])
        2
        >>> index.ids, 2 in index
        (array([1]), False)
        """
        Flag().check("missing_ok", missing_ok)
        wanted = np.unique(check_ids(ids))
        with self._exclusively():
            known = self._known(wanted)
            if not missing_ok:
                _refuse_missing(wanted[~known])
            nothing = np.empty((0, self.n_bytes or 0), np.uint8), wanted[:0], known[:0]
            self._change(Change(*nothing, removed=wanted[known], features=None, model=self.model))
        return int(known.sum())

    def update(self, codes: ArrayLike, *, ids: ArrayLike, features: ArrayLike | None = None, model: Any = None) -> None:
        """Give items of the index new codes, in one step. If anything is wrong, nothing is changed.

        `add` with ``replace=True`` adds those that are not in the index.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int or str, shape (n,)
            The items, in any order and without duplicates.
        features : array of shape (n, n_features), optional
            New features of the items. Without them, features that the index keeps of these items are removed.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes, if these are a plain array.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[1], [2]], np.uint8))
        >>> index.update(np.array([[7]], np.uint8), ids=[0])
        >>> index.codes.tolist()
        [[7], [2]]
        """
        with self._exclusively():
            change = self._checked(codes, ids, features, model)
            _refuse_missing(change.ids[~change.replaces])
            self._change(change)

    def _checked(self, codes: ArrayLike, ids: ArrayLike | None, features: ArrayLike | None, model: Any) -> Change:
        """New items as a change; without ids, they get the next integers."""
        digest = check_model(codes, model, of_index=self.model)
        checked = check_codes(codes, n_bytes=self.n_bytes)
        new = self.next_ids(len(checked)) if ids is None else check_ids(ids, length=len(checked))
        texts = self._has_texts()
        if len(new) and texts is not None and texts != (new.dtype.kind == "U"):
            kinds = "texts", "integers"
            raise ParameterError("ids", f"must be {kinds[not texts]}, as in the index. Got {kinds[texts]} instead.")
        if not are_ascending(new):  # sorting copies them
            refuse_duplicates(np.sort(new))
        adopted = digest if self.model is None and len(self) == 0 else self.model
        kept = None if features is None else self._check_features(features, len(checked))
        return Change(checked, new, self._known(new), removed=new[:0], features=kept, model=adopted)

    def _check_features(self, features: ArrayLike, length: int) -> Int8Rows:
        if not self.accepts_features:
            raise ParameterError("features", f"must be None for {type(self).__name__}, which keeps no features.")
        rows = Int8Rows.of(features, name="features")
        if len(rows) != length:
            raise ParameterError("features", f"must have {length} rows, one per code. Got {len(rows)} instead.")
        return rows

    def _check_queries(self, codes: ArrayLike, model: Any, n_jobs: int | None) -> NDArray[np.uint8]:
        check_model(codes, model, of_index=self.model)
        available_threads(n_jobs)
        return check_codes(codes, n_bytes=self.n_bytes)

    def search(
        self,
        codes: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        rerank: Order | None = None,
        features: ArrayLike | None = None,
        model: Any = None,
        n_jobs: int | None = None,
    ) -> SearchResult:
        """Find the ``k`` nearest items of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        k : int
            At least 1. If it is larger than the number of items, all items are returned.
        allowed : array-like, optional
            Ids, or a mask over `ids`: only these items are searched.
        weights : array of shape (n_queries, n_bits), optional
            Each bit that differs counts with its weight, which is not negative; for example
            ``abs(hasher.decision_function(X))``. This ranks better than the Hamming distance and needs no more bytes
            per item, but it takes several times as long. Weights are rounded to multiples of about 1 / 32,768 of their
            sum over the query, and so are the distances. Engines do not offer it.
        rerank : Rerank, Decoded or BreakTies, optional
            Order the nearest items by their features instead (`Rerank`), by the classes that their codes state
            (`Decoded`), or only those at the same distance, by margins (`BreakTies`).
        features : array of shape (n_queries, n_features), optional
            The features of the queries, for ``rerank``.
        model : str, or an object with the attribute ``digest``, optional
            The model that made the codes of the queries, if these are a plain array.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        result : SearchResult
            ``distances``, uint16 of shape (n_queries, min(k, n)), and ``ids``, int64 or str of the same shape.
            Distances are float32 with ``rerank`` (but for `BreakTies`) and with ``weights``, whose unit they have
            then; infinity or 0 where float32 cannot hold them.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[7], [1]], np.uint8), ids=["seven", "one"])
        >>> distances, ids = index.search(np.array([[0]], np.uint8), 10)
        >>> distances.tolist(), ids.tolist()
        ([[1, 3]], [['one', 'seven']])

        With weights:

        >>> index = FlatIndex(np.array([[0b00], [0b01], [0b10]], np.uint8))
        >>> distances, ids = index.search(np.array([[0b11]], np.uint8), 3, weights=[[3.0, 1.0]])
        >>> distances.round(3).tolist(), ids.tolist()
        ([[1.0, 3.0, 4.0]], [[1, 2, 0]])
        """
        queries = self._check_queries(codes, model, n_jobs)
        k = int(Integer(1).check("k", k))
        only = check_allowed(allowed)
        if weights is not None:
            if not self.accepts_weights or rerank is not None:
                why = "together with 'rerank'" if rerank is not None else f"for {type(self).__name__}"
                raise ParameterError("weights", f"must be None {why}. Got weights instead.")
            found: tuple[NDArray[Any], NDArray[Any]]
            found = self._search_weighted(queries, check_weights(weights, queries), k, only, n_jobs)
        elif rerank is not None:
            if self.model is not None and rerank.model not in (None, self.model):
                raise ParameterError(
                    "rerank",
                    f"must be of the model of the index, {self.model[:12]}. Got one of {rerank.model[:12]} instead: "
                    "codes of a model can only be decoded by that model.",
                )
            found = self._search_reranked(rerank, queries, k, only, features=features, n_jobs=n_jobs)
        elif features is not None:
            raise ParameterError("features", "must be given together with 'rerank'. Got it alone instead.")
        else:
            found = self._search(queries, k, only, n_jobs)
        return SearchResult(found[0], found[1], truncated=np.zeros(len(queries), np.bool_))

    def search_radius(
        self,
        codes: ArrayLike,
        radius: int,
        *,
        limit: int | None = None,
        allowed: ArrayLike | None = None,
        model: Any = None,
        n_jobs: int | None = None,
    ) -> SearchResult:
        """Find all items within ``radius`` (inclusive) of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        radius : int
            At least 0; 0 finds equal codes.
        limit : int, optional
            Return at most this many items per query, the first ones; ``truncated`` of the result says for which queries
            there are more.
        allowed, model, n_jobs
            As for `search`.

        Returns
        -------
        result : SearchResult
            ``distances`` and ``ids``, lists of one array per query, and ``truncated``.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex(np.array([[0], [1], [3]], np.uint8))
        >>> distances, ids = index.search_radius(np.array([[0]], np.uint8), 1)
        >>> distances[0], ids[0]
        (array([0, 1], dtype=uint16), array([0, 1]))
        >>> index.search_radius(np.array([[0]], np.uint8), 8, limit=2).truncated
        array([ True])
        """
        queries = self._check_queries(codes, model, n_jobs)
        Integer(1, or_none=True).check("limit", limit)
        radius = int(Integer(0).check("radius", radius))
        distances, ids = self._search_radius(queries, radius, check_allowed(allowed), n_jobs)
        truncated = np.array([limit is not None and len(part) > limit for part in ids], np.bool_)
        return SearchResult([part[:limit] for part in distances], [part[:limit] for part in ids], truncated)


def _refuse_missing(ids: NDArray[Any]) -> None:
    if len(ids):
        raise ParameterError("ids", f"must have ids of items of the index. Got {ids[0]} instead.")
