"""From the name and the settings of a method in tables.toml to an object with ``fit`` and ``transform``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from hashgrove.baselines import BASELINES
from hashgrove.fasthash import FastHash
from hashgrove.functions import HASH_FUNCTIONS, LabelDirections
from hashgrove.inference import SOLVERS
from hashgrove.storage.formats import FileError, listed

__all__ = [
    "FASTHASH",
    "PARTS",
    "QUANTISER",
    "build",
    "check_method",
    "default_of",
    "method_class",
    "missing_package",
    "parameters",
]

FASTHASH = "fasthash"
QUANTISER = "pq"  # product quantisation is not a hasher: it ranks by real distances
DIRECTIONS = {"linear": partial(LabelDirections, n_anchors=None), "kernel": LabelDirections}
# Parts of FastHash that are objects. A row names one, or gives a table of its ``kind`` and settings. Directions are
# no parameter of FastHash: they wrap its hash function.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "hash_function": HASH_FUNCTIONS,
    "inference": SOLVERS,
    "directions": DIRECTIONS,
}
SET_BY_THE_RUN = {"self", "n_bits", "random_state", "n_jobs", "verbose", "callbacks", "warm_start"}


def method_class(method: str) -> Any:
    """Return the class of a method; None for the quantiser."""
    if method == QUANTISER:
        return None
    return FastHash if method == FASTHASH else BASELINES[method]


def parameters(method: str) -> set[str]:
    """Return the names of the parameters that a row may set."""
    kind = method_class(method)
    if kind is None:
        return set()
    named = set(inspect.signature(kind.__init__).parameters) - SET_BY_THE_RUN
    return named | set(PARTS) if method == FASTHASH else named


def default_of(method: str, parameter: str) -> Any:
    """Return the default of a parameter; None where the class does not have it."""
    found = inspect.signature(method_class(method).__init__).parameters.get(parameter)
    return None if found is None else found.default


def check_method(method: str, bits: Any, params: Mapping[str, Any], where: str) -> None:
    """Refuse a method, a number of bits or a parameter that cannot be used; ``where`` starts the message."""
    known = [FASTHASH, QUANTISER, *BASELINES]
    if method not in known:
        raise FileError(f"{where}: 'method' must be one of {known}. Got {method!r} instead.")
    if type(bits) is not int or bits < 1 or (method == QUANTISER and bits % 8):
        raise FileError(
            f"{where}: 'bits' must be a positive integer, for {QUANTISER} a multiple of 8. Got {bits!r} instead."
        )
    for name in params:
        if name not in parameters(method):
            raise FileError(
                f"{where}: a parameter of {method} must be one of {listed(sorted(parameters(method)))}. "
                f"Got {name!r} instead."
            )
    try:
        build(method, bits, params, seed=0, n_jobs=1)
    except (KeyError, TypeError) as error:
        raise FileError(f"{where}: {method} cannot be made from these parameters: {error}") from error


def build(method: str, bits: int, params: Mapping[str, Any], *, seed: int, n_jobs: int | None) -> Any:
    """Make the object that learns; None for the quantiser, which `quantiser` runs."""
    kind = method_class(method)
    if kind is None:
        return None
    settings = _fasthash_settings(params) if method == FASTHASH else dict(params)
    if "n_jobs" in inspect.signature(kind.__init__).parameters:
        settings["n_jobs"] = n_jobs
    return kind(bits, random_state=seed, **settings)


def _fasthash_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the parts that a row names into objects, with directions around the hash function."""
    settings = {name: _part(PARTS[name], value) if name in PARTS else value for name, value in params.items()}
    directions = settings.pop("directions", None)
    if directions is not None:
        settings["hash_function"] = directions.set_params(learner=settings.get("hash_function", "trees"))
    return settings


def _part(kinds: Mapping[str, Any], value: Any) -> Any:
    """Make a part from its name, or from a table of ``kind`` and settings."""
    settings = {"kind": value} if isinstance(value, str) else dict(value)
    return kinds[settings.pop("kind")](**settings)


def missing_package(method: str) -> str | None:
    """Return the package that a method needs, if it is not installed."""
    return "faiss" if method == QUANTISER and find_spec("faiss") is None else None
