"""Work that several fits of the same rows have in common, done once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

__all__ = ["shared", "sharing"]

P = ParamSpec("P")
R = TypeVar("R")

# The results so far of the innermost block of `sharing`, by function and arguments. Each is kept with its arguments,
# which are compared by identity: as long as they are kept, no other object has their identity.
_results: ContextVar[dict[Hashable, tuple[Any, list[Any], Any]] | None] = ContextVar("results", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Inside this block, functions marked by `shared` are called once for the same arguments.

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
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def shared(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result depends on its arguments only and is never changed; see `sharing`.

    Arguments are the same if they are the same object or equal plain values (numbers, strings, None). Random generators
    are the same if they are in the same state; they are left in the state in which the first call left its own.
    ``n_jobs`` does not count, because results do not depend on it.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        results = _results.get()
        if results is None:
            return function(*args, **kwargs)
        values = [*args, *(value for name, value in sorted(kwargs.items()) if name != "n_jobs")]
        names = tuple(name for name in sorted(kwargs) if name != "n_jobs")
        key = (function, names, *map(_identity, values))
        generators = [value for value in values if isinstance(value, np.random.Generator)]
        if key not in results:
            result = function(*args, **kwargs)
            results[key] = values, [generator.bit_generator.state for generator in generators], result
        _, states, result = results[key]
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state
        return result

    return call


def _identity(value: Any) -> Hashable:
    """Equal for arguments that are the same."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    return "object", id(value)
