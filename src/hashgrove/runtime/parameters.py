"""Checks of parameters that several methods share; every message names the parameter and what it got."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["check_choice", "check_counts", "check_integer", "check_numbers", "check_positive"]


def check_integer(estimator: Any, name: str, *, at_least: int = 1) -> int:
    """The parameter ``name`` as an integer of ``at_least`` so much."""
    value = getattr(estimator, name)
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"The {name!r} parameter must be an integer of at least {at_least}. Got {value!r} instead.")
    return int(value)


def check_positive(estimator: Any, name: str, *, or_none: bool = False, or_zero: bool = False) -> float | None:
    """The parameter ``name`` as a positive, finite number."""
    value = getattr(estimator, name)
    if value is None and or_none:
        return None
    usable = isinstance(value, Real) and not isinstance(value, bool)
    if not usable or not (0 < float(value) < np.inf or (or_zero and value == 0)):
        what = "a number >= 0" if or_zero else "a positive number" + " or None" * or_none
        raise ValueError(f"The {name!r} parameter must be {what}. Got {value!r} instead.")
    return float(value)


def check_counts(estimator: Any, *names: str, or_none: Collection[str] = ()) -> None:
    """Check several parameters at once: positive integers, or None where that is allowed."""
    for name in (*names, *or_none):
        if getattr(estimator, name) is not None or name not in or_none:
            check_integer(estimator, name)


def check_numbers(estimator: Any, *names: str, or_none: Collection[str] = (), zero: Collection[str] = ()) -> None:
    """Check several parameters at once: positive numbers, or None, or 0, where that is allowed."""
    for name in (*names, *or_none, *zero):
        check_positive(estimator, name, or_none=name in or_none, or_zero=name in zero)


def check_choice(estimator: Any, name: str, choices: Collection[Any]) -> Any:
    """The parameter ``name``, which must be one of ``choices``."""
    value = getattr(estimator, name)
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ValueError(f"The {name!r} parameter must be one of {list(choices)}. Got {value!r} instead.")
    return value
