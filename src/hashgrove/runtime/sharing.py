"""Work that several fits of the same rows have in common, done once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

__all__ = ["is_sharing", "shared", "sharing"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class _Call:
    """One call of a shared function: its arguments, whose identity no other object has as long as they are kept here,
    and its result. Whoever holds the lock makes the call, and others wait.
    """

    arguments: list[Any]
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_done: bool = False
    result: Any = None
    states: list[Any] = field(default_factory=list)  # in which the call left its random generators


# The calls so far in the innermost block of `sharing`, by function and arguments.
_calls: ContextVar[dict[Hashable, _Call] | None] = ContextVar("calls", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Inside this block, functions marked by `shared` are called once for the same arguments, by whatever thread.

    >>> @shared
    ... def squares(x):
    ...     print("computing")
    ...     return x * x
    >>> x = np.arange(3)
    >>> with sharing():
    ...     squares(x) is squares(x)
    computing
    True
    """
    token = _calls.set({})
    try:
        yield
    finally:
        _calls.reset(token)


def is_sharing() -> bool:
    """Whether this is inside a block of `sharing`.

    >>> is_sharing()
    False
    """
    return _calls.get() is not None


def shared(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result depends on its arguments only and is never changed; see `sharing`.

    Arguments are the same if they are the same object or equal plain values (numbers, strings, None), whether they are
    given by position, by name or as a default. Random generators are the same if they are in the same state; they are
    left in the state in which the first call left its own. ``n_jobs`` does not count, because results do not depend on
    it.
    """

    form = signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        calls = _calls.get()
        if calls is None:
            return function(*args, **kwargs)
        given = form.bind(*args, **kwargs)
        given.apply_defaults()
        values = [value for name, value in given.arguments.items() if name != "n_jobs"]
        known = calls.setdefault((function, *map(_identity, values)), _Call(values))
        generators = [value for value in values if isinstance(value, np.random.Generator)]
        with known.lock:
            if not known.is_done:
                known.result = function(*args, **kwargs)
                known.states = [generator.bit_generator.state for generator in generators]
                known.is_done = True
        for generator, state in zip(generators, known.states, strict=True):
            generator.bit_generator.state = state
        return known.result

    return call


def _identity(value: Any) -> Hashable:
    """Equal for arguments that are the same."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    return "object", id(value)
