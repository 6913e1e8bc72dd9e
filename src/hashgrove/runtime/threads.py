"""How work is shared out among threads: fixed chunks, so that results do not depend on the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

__all__ = ["available_threads", "chunks", "run_tasks"]


def available_threads(n_jobs: int | None = None) -> int:
    """Number of threads that ``n_jobs`` stands for: ``None`` or -1 is every core this process may use.

    >>> available_threads(2)
    2
    """
    if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs == 0):
        raise ValueError(f"The 'n_jobs' parameter must be None or a non-zero integer. Got {n_jobs!r} instead.")
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if n_jobs is None else max(1, cores + 1 + n_jobs)


def chunks(length: int, size: int) -> list[tuple[int, int]]:
    """Split ``range(length)`` into half-open intervals of at most ``size``.

    >>> chunks(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + size, length)) for start in range(0, length, size)]


@lru_cache(maxsize=4)
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="hashgrove")


if hasattr(os, "register_at_fork"):  # a forked child has the pool object but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_tasks(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *, n_jobs: int | None = None
) -> list[Any]:
    """Call ``function(*task)`` for each task, on ``n_jobs`` threads; the results come in the order of the tasks.

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
        for number in open_tasks:  # shared: whoever is free takes the next one
            results[number] = function(*tasks[number])

    helpers = [_pool(n_threads - 1).submit(work) for _ in range(n_threads - 1)]
    try:
        work()  # the calling thread works, too: to wake another one costs more than a small task
    finally:
        for helper in helpers:
            if not helper.cancel():  # one that never started has nothing left to do
                helper.result()
    return results
