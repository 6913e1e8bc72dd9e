"""Division of work among threads: in fixed chunks, so that results do not depend on the number of threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache, partial
from numbers import Integral
from typing import Any

__all__ = [
    "as_piece",
    "available_threads",
    "beside",
    "chunks",
    "has_abandoned_calls",
    "in_order",
    "run_tasks",
    "run_within",
]

LIMITED = "hashgrove-limited"  # name of the threads of `run_within`
GRACE_SECONDS = 2.0  # time that a call has to end after it was asked to stop
PIECES_AHEAD = 2  # pieces of work per thread that `in_order` takes before there is a result

_thread = threading.local()  # ``is_piece``: whether this thread carries out a piece of work; see `as_piece`
_failed: ContextVar[tuple[threading.Event, ...]] = ContextVar("failed", default=())  # of the blocks of `beside` around


def available_threads(n_jobs: int | None = None) -> int:
    """Number of threads for a value of ``n_jobs``.

    ``None`` and -1 mean all cores that this process may use, -2 means all but one, and so on. Inside a piece of work
    (`in_order`, `as_piece`) there is one thread, whatever ``n_jobs`` is.

    >>> available_threads(2)
    2
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        from hashgrove.runtime.parameters import ParameterError  # imports numpy, which the command line's help need not

        raise ParameterError("n_jobs", f"must be a non-zero integer or None. Got {n_jobs!r} instead.")
    if getattr(_thread, "is_piece", False):
        return 1
    if n_jobs is not None and n_jobs > 0:
        return int(n_jobs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if n_jobs is None else max(1, cores + 1 + int(n_jobs))


def chunks(length: int, size: int) -> list[tuple[int, int]]:
    """Split ``range(length)`` into half-open intervals (start, stop) of at most ``size`` numbers.

    >>> chunks(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + size, length)) for start in range(0, length, size)]


@lru_cache(maxsize=4)
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="hashgrove")


if hasattr(os, "register_at_fork"):  # a forked child process gets the pool object but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_tasks(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *, n_jobs: int | None = None
) -> list[Any]:
    """Call ``function(*task)`` for each task, on ``n_jobs`` threads, and return the results in the order of the tasks.

    >>> run_tasks(pow, [(2, 3), (3, 2)], n_jobs=2)
    [8, 9]
    """
    tasks = list(tasks)
    n_threads = min(available_threads(n_jobs), len(tasks))
    if n_threads <= 1:
        return [function(*task) for task in tasks]
    results: list[Any] = [None] * len(tasks)
    open_tasks = iter(range(len(tasks)))

    def work() -> None:
        for number in open_tasks:  # the threads share this iterator: one that is free takes the next task
            results[number] = function(*tasks[number])

    helpers = [_pool(n_threads - 1).submit(work) for _ in range(n_threads - 1)]
    try:
        work()  # the calling thread works too: waking another one costs more than a small task
    finally:
        for helper in helpers:
            if not helper.cancel():  # a helper that has not started yet has nothing left to do
                helper.result()
    return results


@contextmanager
def beside(*, n_jobs: int | None = None) -> Iterator[Callable[..., Callable[[], Any]]]:
    """A block with a function that starts calls beside it: it returns at once, with a function that waits for a result.

    With one thread a call is made when its result is asked for. The block ends when the calls that have begun have. If
    it fails, these begin no other piece of work (`in_order`), so that it ends soon.

    >>> with beside(n_jobs=2) as start:
    ...     power = start(pow, 2, 3)
    ...     power()
    8
    """
    if available_threads(n_jobs) == 1:
        yield lambda function, *arguments, **named: cache(partial(function, *arguments, **named))
        return
    failed = threading.Event()
    token = _failed.set((*_failed.get(), failed))
    with ThreadPoolExecutor(thread_name_prefix="hashgrove-beside") as pool:
        try:
            yield lambda *call, **named: pool.submit(copy_context().run, *call, **named).result
        except BaseException:
            failed.set()
            raise
        finally:
            _failed.reset(token)


@contextmanager
def as_piece() -> Iterator[None]:
    """A block in which this thread carries out one of several pieces of work, so that it starts no threads of its own.

    >>> with as_piece():
    ...     available_threads(4)
    1
    """
    before = getattr(_thread, "is_piece", False)
    _thread.is_piece = True
    try:
        yield
    finally:
        _thread.is_piece = before


def in_order(
    function: Callable[[Any], Any], pieces: Iterable[Any], *, n_jobs: int | None = None, ahead: int = 0
) -> Iterator[Any]:
    """Apply a function to pieces of work on ``n_jobs`` threads, and yield the results in the order of the pieces.

    Like `map`, it takes the pieces while the results are consumed, but two per thread, or ``ahead``, before the first
    result is there. If a piece fails, or the consumer stops, those that have begun are finished and no other one is
    begun.

    >>> list(in_order(abs, [-3, 2, -1], n_jobs=2))
    [3, 2, 1]
    """
    n_threads, failed = available_threads(n_jobs), _failed.get()

    def going_on() -> Iterator[Any]:
        for piece in pieces:
            if any(event.is_set() for event in failed):
                raise CancelledError
            yield piece

    if n_threads == 1:
        yield from map(function, going_on())
        return

    def carry_out(piece: Any) -> Any:
        with as_piece():
            return function(piece)

    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="hashgrove-piece") as pool:
        try:
            for piece in going_on():
                waiting.append(pool.submit(carry_out, piece))
                while waiting and (waiting[0].done() or len(waiting) >= max(ahead, PIECES_AHEAD * n_threads)):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def run_within(seconds: float | None, function: Callable[[], Any], *, stop: Callable[[], object] = lambda: None) -> Any:
    """Call ``function`` and return its result; raise TimeoutError if it takes longer than so many seconds.

    Nothing can end a thread from outside, so ``stop`` asks the function to end, and the caller waits shortly for that.
    Ctrl-C works meanwhile, even if the function is compiled and would not notice it. ``None`` means no limit.

    >>> run_within(5.0, lambda: 42)
    42
    """
    if seconds is None:
        return function()
    result: Future[Any] = Future()

    def work() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    try:
        threading.Thread(target=work, name=LIMITED, daemon=True).start()  # it does not keep the process alive
        return result.result(timeout=min(seconds, threading.TIMEOUT_MAX))
    except BaseException:
        stop()
        wait([result], timeout=GRACE_SECONDS)
        raise


def has_abandoned_calls() -> bool:
    """Whether a call that `run_within` gave up is still at work.

    Compiled code that returns while Python exits may abort the process; such a program should end with ``os._exit``.

    >>> has_abandoned_calls()
    False
    """
    return any(thread.name == LIMITED for thread in threading.enumerate())
