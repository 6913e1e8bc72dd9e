"""Checks of parameters, with one wording for all errors: "The 'x' parameter must be ... Got ... instead."

An estimator (hasher, learner, solver, extractor) declares the allowed values of its parameters in the class attribute
``constraints``, and `check_parameters` checks them all. For the arguments of a function, call a constraint directly:
``Integer(1).check("k", k)``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from hashgrove.runtime.credentials import hide_credentials

__all__ = [
    "Constraint",
    "FilePath",
    "Flag",
    "Integer",
    "Number",
    "OneOf",
    "ParameterError",
    "Several",
    "Text",
    "check_parameters",
    "declared_constraints",
]


class ParameterError(ValueError):
    """A parameter has a value that is not allowed: "The 'k' parameter must be an integer of at least 1. Got 0 instead."

    Attributes
    ----------
    parameter : str
        The name of the parameter.
    reason : str
        The message after the name: what the parameter must be, and what it is instead.

    Examples
    --------
    >>> error = ParameterError("k", "must be an integer of at least 1. Got 0 instead.")
    >>> error.parameter, error.reason
    ('k', 'must be an integer of at least 1. Got 0 instead.')
    """

    def __init__(self, parameter: str, reason: str) -> None:
        reason = hide_credentials(reason)
        super().__init__(parameter, reason)  # both are arguments, so that the error can be pickled
        self.parameter, self.reason = parameter, reason

    def __str__(self) -> str:
        return f"The {self.parameter!r} parameter {self.reason}"


ParameterError.__module__ = "hashgrove"  # where it is public, and what a traceback calls it


class Constraint(ABC):
    """The allowed values of a parameter."""

    @abstractmethod
    def allows(self, value: Any) -> bool:
        """Whether ``value`` is allowed."""

    @abstractmethod
    def __str__(self) -> str:
        """The allowed values in words, such as "an integer of at least 1", for the error message."""

    def check(self, name: str, value: Any) -> Any:
        """Return the value; raise `ParameterError` if it is not allowed."""
        if not self.allows(value):
            raise ParameterError(name, f"must be {self}. Got {value!r} instead.")
        return value


@dataclass(frozen=True)
class Integer(Constraint):
    """An integer from ``low`` to ``high``, both included. A bool is not an integer here.

    >>> Integer(1).check("k", 0)
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'k' parameter must be an integer of at least 1. Got 0 instead.
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
    """A finite number above ``above``, or of at least ``low``, and below ``below``, or of at most ``high``.

    >>> Number(above=0, below=1).check("share", 1.5)
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'share' parameter must be a number above 0 and below 1. Got 1.5 instead.
    """

    above: float | None = None
    low: float | None = None
    below: float | None = None
    high: float | None = None
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
            and (self.high is None or number <= self.high)
        )

    def __str__(self) -> str:
        limits = {"above": self.above, "of at least": self.low, "below": self.below, "of at most": self.high}
        said = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if limit is not None)
        return f"a number {said or 'that is finite'}" + " or None" * self.or_none


@dataclass(frozen=True)
class OneOf(Constraint):
    """One of several values.

    >>> OneOf(("mean", "max")).check("pooling", "sum")
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'pooling' parameter must be one of ['mean', 'max']. Got 'sum' instead.
    """

    choices: tuple[Any, ...]

    def allows(self, value: Any) -> bool:
        """Whether ``value`` equals one of the choices and has the same type, so that 1 does not count as True."""
        return any(type(value) is type(choice) and value == choice for choice in self.choices)

    def __str__(self) -> str:
        return f"one of {list(self.choices)}"


@dataclass(frozen=True)
class Flag(Constraint):
    """True or False."""

    or_none: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a bool, or None where that is allowed."""
        return self.or_none if value is None else isinstance(value, bool | np.bool_)

    def __str__(self) -> str:
        return "True, False or None" if self.or_none else "True or False"


@dataclass(frozen=True)
class Text(Constraint):
    """A string that is not empty."""

    or_none: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a string, or None where that is allowed."""
        return self.or_none if value is None else isinstance(value, str) and value != ""

    def __str__(self) -> str:
        return "text" + " or None" * self.or_none


@dataclass(frozen=True)
class FilePath(Constraint):
    """The path of a file, as text or as a path object."""

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a path."""
        return isinstance(value, str | os.PathLike) and os.fspath(value) != ""

    def __str__(self) -> str:
        return "the path of a file"


@dataclass(frozen=True)
class Several(Constraint):
    """``low`` to ``high`` values that each meet ``each``, as tuple, list or array; with ``or_one`` also a single value.

    >>> Several(Integer(1), low=2, high=2, or_one=True).check("size", (16, 0))
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'size' parameter must be an integer of at least 1, or a tuple of 2 of them. Got (16, 0) instead.
    """  # noqa: E501

    each: Constraint
    low: int
    high: int
    or_one: bool = False
    or_none: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is a tuple, list or array of allowed values, or one of the other allowed forms."""
        if value is None:
            return self.or_none
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, tuple | list):
            return self.low <= len(value) <= self.high and all(map(self.each.allows, value))
        return self.or_one and self.each.allows(value)

    def __str__(self) -> str:
        length = str(self.low) if self.low == self.high else f"{self.low} to {self.high}"
        several = f"a tuple of {length} of them" if self.or_one else f"a tuple of {length} values, each {self.each}"
        return (f"{self.each}, or {several}" if self.or_one else several) + ", or None" * self.or_none


def declared_constraints(estimator: type) -> dict[str, Constraint]:
    """The ``constraints`` of a class together with those of the classes above it, by parameter."""
    declared: dict[str, Constraint] = {}
    for kind in reversed(estimator.__mro__):
        declared.update(vars(kind).get("constraints", {}))
    return declared


def check_parameters(estimator: Any) -> None:
    """Check the parameters of an estimator against the ``constraints`` of its class and all base classes."""
    for name, constraint in declared_constraints(type(estimator)).items():
        constraint.check(name, getattr(estimator, name))
