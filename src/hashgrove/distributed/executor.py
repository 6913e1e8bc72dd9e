"""Pieces of work as tasks of a Dask cluster."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hashgrove.distributed.cluster import clear_errors, naming_worker
from hashgrove.distributed.rows import by_reference, opened
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.threads import as_piece

__all__ = ["DaskExecutor"]

PIECES_AHEAD = 2  # per thread of the cluster, so that no worker waits for the coordinator
LARGE = "distributed.admin.large-graph-warning-threshold"


class DaskExecutor:
    """An `Executor` that makes a task of each piece.

    The scheduler keeps the arguments of a task until it is done, so that it can give it to another worker.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._held: tuple[Any, Any, Any] = None, None, None  # what was sent last: a function, its rows, and their task

    def map(
        self, function: Callable[[Any, Any], Any], pieces: Iterable[Any], *, prepare: Callable[..., Any], rows: Any
    ) -> Iterator[Any]:
        """``function(data, piece)`` for each piece, in order; see `Executor.map`."""
        waiting: deque[Any] = deque()
        with clear_errors():
            try:
                for piece in pieces:
                    waiting.append(self._submit(_carry_out, function, self._data(prepare, rows), piece))
                    while waiting and (waiting[0].done() or len(waiting) >= self._limit()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                self._client.cancel(list(waiting))

    def _data(self, prepare: Callable[..., Any], rows: Any) -> Any:
        """The task that holds what the workers prepare; the same one as long as these stay the same."""
        if self._held[0] is not prepare or self._held[1] is not rows:
            self._held = prepare, rows, self._submit(_hold, _Once(prepare, by_reference(rows)))
        return self._held[2]

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        import dask

        with dask.config.set({LARGE: "10GB"}):  # the values of a bit are as many as the rows
            return self._client.submit(function, *arguments, pure=False)

    def _limit(self) -> int:
        return PIECES_AHEAD * max(sum(self._client.nthreads().values()), 1)


class _Once:
    """Data that a process prepares for all of its pieces, when the first of them asks for it."""

    def __init__(self, prepare: Callable[..., Any], reference: Any) -> None:
        self._prepare, self._reference, self._lock = prepare, reference, threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Once, (self._prepare, self._reference)

    def get(self, *, n_jobs: int) -> Any:
        with self._lock:
            if not hasattr(self, "_data"):
                self._data = self._prepare(opened(self._reference), n_jobs=n_jobs)
            return self._data


def _hold(once: _Once) -> _Once:
    return once


def _carry_out(function: Callable[[Any, Any], Any], once: _Once, piece: Any) -> Any:
    from distributed import get_worker

    with naming_worker(), single_threaded_blas():
        data = once.get(n_jobs=get_worker().state.nthreads)
        with as_piece():
            return function(data, piece)
