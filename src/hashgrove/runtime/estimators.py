"""Checks, copies, seeds and descriptions of estimators that users pass as parameters."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier

from hashgrove.runtime.parameters import ParameterError

__all__ = ["check_classifier", "describe", "seeded_clone"]


def check_classifier(name: str, value: Any) -> None:
    """Raise `ParameterError` unless ``value``, of the parameter ``name``, is an instance of a scikit-learn classifier.

    >>> check_classifier("estimator", "svm")
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'estimator' parameter must be a scikit-learn classifier. Got 'svm' instead.
    """
    if not (isinstance(value, BaseEstimator) and is_classifier(value)):
        raise ParameterError(name, f"must be a scikit-learn classifier. Got {value!r} instead.")


def seeded_clone(estimator: Any, rng: np.random.Generator) -> Any:
    """An unfitted copy of an estimator, with a seed from ``rng`` for every ``random_state`` in it.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> isinstance(seeded_clone(DecisionTreeClassifier(), np.random.default_rng(0)).random_state, int)
    True
    """
    copy = clone(estimator)
    seeds = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    return copy.set_params(**{name: int(rng.integers(2**31 - 1)) for name in sorted(seeds)})


def describe(estimator: Any) -> str:
    """An estimator as the call that makes it, with the parameters that are not the defaults.

    Unlike its ``repr``, the text does not depend on scikit-learn's settings.

    >>> from sklearn.linear_model import Ridge
    >>> describe(Ridge(alpha=2.0))
    'Ridge(alpha=2.0)'
    """
    if not hasattr(estimator, "get_params"):
        return type(estimator).__name__
    defaults = {name: item.default for name, item in inspect.signature(type(estimator)).parameters.items()}
    values = estimator.get_params(deep=False)
    changed = [f"{name}={value!r}" for name, value in values.items() if not _equal(value, defaults.get(name))]
    return f"{type(estimator).__name__}({', '.join(changed)})"


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, bool | int | float | str) and one == other)
