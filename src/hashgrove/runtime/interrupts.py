"""Ctrl-C: end the work with a KeyboardInterrupt, also where Python would lose it."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interruptible"]

REPEAT_SECONDS = 0.1  # time until a lost interrupt is raised again


@contextmanager
def interruptible() -> Iterator[None]:
    """End the block with KeyboardInterrupt if Ctrl-C comes, whatever runs at that moment.

    Python raises it in the Python code that runs next. If that is a callback of compiled code, as numba's compiler has
    them, or a destructor, nobody can catch it: Python reports it to `sys.unraisablehook` and goes on. So it is raised
    again from here. And if Ctrl-C comes while a kernel runs, it ends in a SystemError. Signals reach the main thread
    only; in other threads nothing needs to be done about the first case.

    >>> with interruptible():
    ...     pass
    """
    repeater = _Repeater()
    try:
        with repeater:
            yield
    except Exception as error:
        if repeater.has_lost or _ends_in_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    if repeater.has_lost:
        raise KeyboardInterrupt


class _Repeater:
    """Raises a lost interrupt again."""

    def __init__(self) -> None:
        self.has_lost = False
        self._timer: threading.Timer | None = None
        self._installed = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        self._earlier = sys.unraisablehook
        if self._installed:
            sys.unraisablehook = self._report

    def __exit__(self, *error: object) -> None:
        if self._installed:
            sys.unraisablehook = self._earlier
        if self._timer is not None:
            self._timer.cancel()

    def _report(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._earlier(unraisable)
            return
        self.has_lost = True
        self._timer = threading.Timer(REPEAT_SECONDS, _interrupt_main_thread)  # by then the callback has returned
        self._timer.daemon = True
        self._timer.start()


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):  # unlike the other way, it wakes a thread that waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _ends_in_interrupt(error: BaseException | None) -> bool:
    while isinstance(error, SystemError):
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)
