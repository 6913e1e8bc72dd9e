"""BLAS on one thread: results that do not depend on the number of threads, and no threads within threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, unused-ignore]

__all__ = ["single_threaded_blas"]

_lock = threading.Lock()
_users = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # it looks through all loaded libraries, which takes time: do it once


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread, in a ``with`` statement or, as a decorator, in a function.

    The number of BLAS threads is global to the process. Uses that overlap in time, in any threads, therefore share one
    limit, and the last of them lifts it. (If each restored what it found, the first to end would lift the limit of the
    others.)

    >>> with single_threaded_blas():
    ...     pass
    """
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
