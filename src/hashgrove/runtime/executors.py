"""Who carries out the independent pieces of work of a fit: threads of this process, or other machines.

Threads do (`hashgrove.runtime.threads`), except in a block of `carried_out_by`, which `hashgrove.distributed` opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["Executor", "carried_out_by", "current_executor"]


class Executor(Protocol):
    """Carries out pieces of work in other processes, on this machine or on others."""

    def map(
        self, function: Callable[[Any, Any], Any], pieces: Iterable[Any], *, prepare: Callable[..., Any], rows: Any
    ) -> Iterator[Any]:
        """``function(data, piece)`` for each piece, in the order of the pieces.

        ``data`` is ``prepare(rows, n_jobs=k)``, which each process computes once, on k threads. All of it must depend
        on the arguments only, since a piece is carried out again if the process that had it dies.
        """


_executor: ContextVar[Executor | None] = ContextVar("executor", default=None)


def current_executor() -> Executor | None:
    """The executor of the innermost block of `carried_out_by`; None outside, where threads carry out the pieces."""
    return _executor.get()


@contextmanager
def carried_out_by(executor: Executor) -> Iterator[None]:
    """A block whose fits give their independent pieces of work to an executor."""
    token = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(token)
