"""Batching: queries that wait are answered together, by one pass over the codes.

A scan compares each code of the index with all queries of a pass while the code is in a register, so a pass with many
queries costs little more than one with a single query. One thread makes the passes. The next pass
takes all queries that arrived during the last one: none waits for others to come, and passes grow with the load.
Results do not depend on what else is in a pass, because there is exactly one right result (`hashgrove.index.Index`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index import Index
from hashgrove.index.rerank import Order

__all__ = ["Batcher", "Full", "Query", "search_together"]

PASS_ROWS = 1024  # queries in one pass, so that none waits long for the others in it


class Full(Exception):
    """Too many queries wait already."""


@dataclass(frozen=True, eq=False)
class Query:
    """The queries of one request.

    Attributes
    ----------
    codes : uint8 array of shape (n_queries, n_bytes)
    k : int
    allowed : array of ids, optional
        Only these items are searched.
    group : hashable
        Queries with equal groups have the same ``allowed``.
    order : Order, optional
        Another order than that by Hamming distance. Queries that share a pass have the same object.
    features : array of shape (n_queries, n_features), optional
        The features of the queries, for ``order``.
    weights : array of shape (n_queries, n_bits), optional
        Weight of each bit of each query.
    """

    codes: NDArray[np.uint8]
    k: int
    allowed: NDArray[Any] | None = None
    group: Hashable = None
    order: Order | None = None
    features: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None

    @property
    def kind(self) -> Hashable:
        """The key of queries that can share a pass: the same filter, and about the same k.

        The candidates of another order depend on k, so there it has to be the same.
        """
        if self.order is not None:
            return self.order, self.group, self.k
        return "weights" if self.weights is not None else "plain", self.group, max(self.k, 16).bit_length()


Results = tuple[NDArray[Any], NDArray[Any]]


def search_together(index: Index, queries: Sequence[Query]) -> list[Results]:
    """Search for queries of one kind in one pass; return the distances and ids of each, as `Index.search` does.

    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[1], [3], [7]], np.uint8))
    >>> one, two = (Query(np.array([[code]], np.uint8), k) for code, k in ((1, 1), (7, 2)))
    >>> [ids.tolist() for _, ids in search_together(index, [one, two])]
    [[[0]], [[2, 1]]]
    """
    first = queries[0]
    codes = first.codes if len(queries) == 1 else np.concatenate([query.codes for query in queries])
    k = max(query.k for query in queries)
    options: dict[str, Any] = {"allowed": first.allowed, "model": index.model}  # the model was checked before
    if first.order is not None:
        options |= {"rerank": first.order, "features": np.concatenate([query.features for query in queries])}
    if first.weights is not None:
        options["weights"] = np.concatenate([query.weights for query in queries])
    distances, ids = index.search(codes, k, **options)
    results, start = [], 0
    for query in queries:
        stop = start + len(query.codes)
        results.append((distances[start:stop, : query.k], ids[start:stop, : query.k]))
        start = stop
    return results


@dataclass(eq=False)
class _Waiting:
    query: Query
    answer: asyncio.Future[tuple[Results, float, float]]
    since: float = field(default_factory=time.perf_counter)


class Batcher:
    """One thread that searches an index for all queries that wait.

    Parameters
    ----------
    index : Index
    max_waiting : int
        Rows of queries that may wait; `search` raises `Full` beyond that.
    on_pass : function
        Called with the number of rows of each pass.
    """

    def __init__(self, index: Index, *, max_waiting: int, on_pass: Callable[[int], None]) -> None:
        self._index, self._max_waiting, self._on_pass = index, max_waiting, on_pass
        self._waiting: deque[_Waiting] = deque()
        self._n_rows = 0  # of what waits
        self._change = threading.Condition()
        self._will_wake = False  # of the event loop only
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="hashgrove-search", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Rows of queries that wait."""
        return self._n_rows

    async def search(self, query: Query) -> tuple[Results, float, float]:
        """Search; return distances and ids, the seconds that the query waited, and those that its pass took."""
        waiting = _Waiting(query, asyncio.get_running_loop().create_future())
        with self._change:
            if self._closed or self._n_rows + len(query.codes) > self._max_waiting:
                raise Full
            self._waiting.append(waiting)
            self._n_rows += len(query.codes)
        if not self._will_wake:  # after the requests that the event loop has read already, so that they share a pass
            self._will_wake = True
            waiting.answer.get_loop().call_soon(self._wake)
        try:
            return await waiting.answer
        except asyncio.CancelledError:  # its time is over, or the client has gone
            self._forget(waiting)
            raise

    def _wake(self) -> None:
        self._will_wake = False
        with self._change:
            self._change.notify()

    def _forget(self, waiting: _Waiting) -> None:
        with self._change:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._n_rows -= len(waiting.query.codes)

    def close(self) -> None:
        """Answer the queries that wait, and end the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            started = time.perf_counter()
            found = self._outcomes([waiting.query for waiting in batch])
            seconds = time.perf_counter() - started
            self._on_pass(sum(len(waiting.query.codes) for waiting in batch))
            outcomes = [
                (waiting.answer, result, started - waiting.since, seconds)
                for waiting, result in zip(batch, found, strict=True)
            ]
            batch[0].answer.get_loop().call_soon_threadsafe(_resolve, outcomes)

    def _outcomes(self, queries: Sequence[Query]) -> list[Results | Exception]:
        """Results of queries of one kind, or errors; an error of one query does not affect the others."""
        try:
            return [*search_together(self._index, queries)]
        except Exception as error:  # of any type: the clients that wait must get it
            if len(queries) == 1:
                return [error]
            return [outcome for query in queries for outcome in self._outcomes([query])]

    def _next(self) -> list[_Waiting]:
        """The queries of the next pass: the first that waits and all others of its kind; none when it is closed."""
        with self._change:
            while not self._waiting and not self._closed:
                self._change.wait()
            batch: list[_Waiting] = []
            others: deque[_Waiting] = deque()
            n_rows = 0
            for waiting in self._waiting:
                more = len(waiting.query.codes)
                fits = not batch or (waiting.query.kind == batch[0].query.kind and n_rows + more <= PASS_ROWS)
                (batch if fits else others).append(waiting)
                n_rows += more if fits else 0
            self._waiting, self._n_rows = others, self._n_rows - n_rows
            return batch


def _resolve(outcomes: Sequence[tuple[asyncio.Future[Any], Any, float, float]]) -> None:
    for answer, result, waited, seconds in outcomes:
        if answer.done():
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result((result, waited, seconds))
