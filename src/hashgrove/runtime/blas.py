"""BLAS on one thread: results that do not depend on the number of threads, and no threads within threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import threadpoolctl  # type: ignore[import-untyped, unused-ignore]

__all__ = ["single_threaded_blas"]

_lock = threading.Lock()
_users = 0
_limit: Any = None


@lru_cache(maxsize=2)
def _controller(has_scipy: bool) -> Any:
    """The BLAS libraries of this process: numpy's, and that of scipy once it is loaded.

    Looking for them takes time, so this is done at most twice.
    """
    return threadpoolctl.ThreadpoolController()


def _take_control() -> None:
    """Let any thread set or lift the limit.

    From version 3.8 on, threadpoolctl ignores all threads but the first one that sets a limit until that one has lifted
    it, because the limit is global to the process. Here the thread that lifts it may be another one.
    """
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


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
            _take_control()
            _limit = _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _take_control()
                _limit.restore_original_limits()
                _take_control()
