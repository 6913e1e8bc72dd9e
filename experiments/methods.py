"""Make a hasher from the name and the settings of a method in tables.toml."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from experiments.baselines import BASELINES
from hashgrove.fasthash import AUTO, FastHash
from hashgrove.functions import HASH_FUNCTIONS, BoostedTrees
from hashgrove.inference import SOLVERS, BlockGraphCut
from hashgrove.storage.formats import FileError, listed

__all__ = [
    "FASTHASH",
    "PAPER",
    "QUANTISER",
    "REAL_VALUED",
    "VECTORS",
    "build",
    "check_method",
    "default_of",
    "method_class",
    "missing_package",
    "parameters",
    "parts_of",
]

FASTHASH, PAPER = "fasthash", "fasthash-paper"  # with our defaults, and with the paper's settings
QUANTISER, VECTORS = "pq", "cosine"  # no hashers: product quantisation and the vectors themselves have real distances
REAL_VALUED = (QUANTISER, VECTORS)
# Parts of FastHash that are objects. A row names one, or gives a table of its ``kind`` and settings.
PARTS: Mapping[str, Mapping[str, Any]] = {"hash_function": HASH_FUNCTIONS, "inference": SOLVERS}
PAPER_PARTS: Mapping[str, Mapping[str, Any]] = {
    "hash_function": {**HASH_FUNCTIONS, "trees": BoostedTrees.paper},
    "inference": {**SOLVERS, "block-gc": partial(BlockGraphCut, start="ones")},
}
SET_BY_THE_RUN = {"self", "n_bits", "random_state", "n_jobs", "verbose", "callbacks", "warm_start"}


def method_class(method: str) -> Any:
    """Return the class of a method; None if it is no hasher."""
    if method in REAL_VALUED:
        return None
    return FastHash if method in (FASTHASH, PAPER) else BASELINES[method]


def parts_of(method: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the parts that a row of this method may name, by parameter."""
    return {FASTHASH: PARTS, PAPER: PAPER_PARTS}.get(method, {})


def parameters(method: str) -> set[str]:
    """Return the names of the parameters that a row may set."""
    kind = method_class(method)
    if kind is None:
        return set()
    return set(inspect.signature(kind.__init__).parameters) - SET_BY_THE_RUN


def default_of(method: str, parameter: str) -> Any:
    """Return the default of a parameter; None where the class does not have it."""
    if method == PAPER and parameter in PAPER_PARTS:
        return {"hash_function": "trees", "inference": "block-gc"}[parameter]
    found = inspect.signature(method_class(method).__init__).parameters.get(parameter)
    return None if found is None else found.default


def check_method(method: str, bits: Any, params: Mapping[str, Any], where: str) -> None:
    """Refuse a method, a number of bits or a parameter that cannot be used; ``where`` starts the message."""
    known = [FASTHASH, PAPER, *REAL_VALUED, *BASELINES]
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
    """Make the object that learns; None for methods that are no hashers, which `quantiser` runs."""
    kind, parts = method_class(method), parts_of(method)
    if kind is None:
        return None
    settings = {name: _part(parts[name], value) if name in parts else value for name, value in params.items()}
    if "n_jobs" in inspect.signature(kind.__init__).parameters:
        settings["n_jobs"] = n_jobs
    return (kind.paper if method == PAPER else kind)(bits, random_state=seed, **settings)


def _part(kinds: Mapping[str, Any], value: Any) -> Any:
    """Make a part from its name, or from a table of ``kind`` and settings."""
    if value == AUTO:
        return value
    settings = {"kind": value} if isinstance(value, str) else dict(value)
    return kinds[settings.pop("kind")](**settings)


def missing_package(method: str) -> str | None:
    """Return the package that a method needs, if it is not installed."""
    return "faiss" if method == QUANTISER and find_spec("faiss") is None else None
