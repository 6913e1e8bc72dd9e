"""From the name and settings of a method in tables.toml to an object that learns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from hashgrove.baselines import BASELINES
from hashgrove.fasthash import FastHash
from hashgrove.functions import HASH_FUNCTIONS
from hashgrove.functions.directions import DIRECTIONS
from hashgrove.inference import SOLVERS
from hashgrove.storage.formats import FileError, listed

__all__ = ["QUANTISER", "SLOTS", "build", "check_method", "method_class", "missing_package", "parameters"]

QUANTISER = "pq"  # not a hasher: it ranks by real distances
SLOTS: dict[str, Mapping[str, Any]] = {
    "hash_function": HASH_FUNCTIONS,
    "inference": SOLVERS,
    "directions": DIRECTIONS,
}


def method_class(name: str) -> Any:
    """The class of a method; None for the quantiser."""
    if name == QUANTISER:
        return None
    return FastHash if name == "fasthash" else BASELINES[name]


def parameters(method: str) -> set[str]:
    """Names of the parameters of a method that a row may set."""
    if method_class(method) is None:
        return set()
    own = {"self", "n_bits", "random_state", "n_jobs", "verbose", "callbacks", "warm_start"}
    return set(inspect.signature(method_class(method).__init__).parameters) - own


def check_method(method: str, bits: Any, params: Mapping[str, Any], where: str) -> None:
    """Refuse a method, a parameter or a slot that there is not."""
    known = ["fasthash", QUANTISER, *BASELINES]
    if method not in known:
        raise FileError(f"{where}: 'method' must be one of {known}. Got {method!r} instead.")
    if type(bits) is not int or bits < 1 or (method == QUANTISER and bits % 8):
        raise FileError(f"{where}: 'bits' must be a positive integer (for {QUANTISER} of whole bytes). Got {bits!r}.")
    for name in params:
        if name not in parameters(method):
            raise FileError(f"{where}: {method} takes {listed(sorted(parameters(method)))}. Got {name!r} instead.")
    try:
        build(method, bits, params, seed=0, n_jobs=1)
    except (KeyError, TypeError) as error:
        raise FileError(f"{where}: {method} cannot be made of these parameters: {error}") from error


def build(method: str, bits: int, params: Mapping[str, Any], *, seed: int, n_jobs: int | None) -> Any:
    """The object that learns, with ``fit`` and ``transform``; None for the quantiser, which has a way of its own."""
    kind = method_class(method)
    if kind is None:
        return None
    made = {name: _slot(name, value) if name in SLOTS else value for name, value in params.items()}
    if "n_jobs" in inspect.signature(kind.__init__).parameters:
        made["n_jobs"] = n_jobs
    return kind(bits, random_state=seed, **made)


def _slot(name: str, value: Any) -> Any:
    """A learner, solver or directions: by its name, or by a table of ``kind`` and settings."""
    if isinstance(value, str):
        return SLOTS[name][value]()
    settings = dict(value)
    return SLOTS[name][settings.pop("kind")](**settings)


def missing_package(method: str) -> str | None:
    """A package that the method needs and that is not installed."""
    return "faiss" if method == QUANTISER and find_spec("faiss") is None else None
