"""Checks of parameters: one home and one wording, "The 'x' parameter must be ... Got ... instead.".

An estimator (hasher, learner, solver, extractor) declares what each of its parameters may be in the class attribute
``constraints``, and `check_parameters` checks them all. Arguments of functions are checked by a constraint directly:
``Integer(1).check("k", k)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["Constraint", "Flag", "Integer", "Number", "OneOf", "check_parameters"]


class Constraint(ABC):
    """What a parameter may be."""

    @abstractmethod
    def allows(self, value: Any) -> bool:
        """Whether ``value`` will do."""

    @abstractmethod
    def __str__(self) -> str:
        """What the parameter must be, for the message."""

    def check(self, name: str, value: Any) -> Any:
        """The value, or ValueError that names the parameter, what it must be and what it was."""
        if not self.allows(value):
            raise ValueError(f"The {name!r} parameter must be {self}. Got {value!r} instead.")
        return value


@dataclass(frozen=True)
class Integer(Constraint):
    """An integer within limits, which belong to the range; a bool is none.

    >>> Integer(1).check("k", 0)
    Traceback (most recent call last):
        ...
    ValueError: The 'k' parameter must be an integer of at least 1. Got 0 instead.
    """

    low: int
    high: int | None = None
    or_none: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is an integer within the limits."""
        if value is None:
            return self.or_none
        is_integer = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
        return is_integer and self.low <= value and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        limits = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return f"an integer {limits}" + " or None" * self.or_none


@dataclass(frozen=True)
class Number(Constraint):
    """A finite number above ``above``, or of at least ``low``, and below ``below``.

    >>> Number(above=0, below=1).check("share", 1.5)
    Traceback (most recent call last):
        ...
    ValueError: The 'share' parameter must be a number above 0 and below 1. Got 1.5 instead.
    """

    above: float | None = None
    low: float | None = None
    below: float | None = None
    or_none: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a number within the limits."""
        if value is None:
            return self.or_none
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        number = float(value)
        return (
            bool(np.isfinite(number))
            and (self.above is None or number > self.above)
            and (self.low is None or number >= self.low)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        limits = {"above": self.above, "of at least": self.low, "below": self.below}
        said = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if limit is not None)
        return f"a number {said or 'that is finite'}" + " or None" * self.or_none


@dataclass(frozen=True)
class OneOf(Constraint):
    """One of several values.

    >>> OneOf(("mean", "max")).check("pooling", "sum")
    Traceback (most recent call last):
        ...
    ValueError: The 'pooling' parameter must be one of ['mean', 'max']. Got 'sum' instead.
    """

    choices: tuple[Any, ...]

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is one of the choices, and of its type: 1 is not True."""
        return any(type(value) is type(choice) and value == choice for choice in self.choices)

    def __str__(self) -> str:
        return f"one of {list(self.choices)}"


@dataclass(frozen=True)
class Flag(Constraint):
    """True or False."""

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a bool."""
        return isinstance(value, bool | np.bool_)

    def __str__(self) -> str:
        return "True or False"


def check_parameters(estimator: Any) -> None:
    """Check the parameters of an estimator by the ``constraints`` of its class and of the classes above it."""
    declared: dict[str, Constraint] = {}
    for kind in reversed(type(estimator).__mro__):
        own: Mapping[str, Constraint] = vars(kind).get("constraints", {})
        declared.update(own)
    for name, constraint in declared.items():
        constraint.check(name, getattr(estimator, name))
