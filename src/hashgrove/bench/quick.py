"""Every cell in small: the embedded digits, few rows, bits and trees, so that all experiments run in two minutes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hashgrove.bench.methods import SLOTS, method_class
from hashgrove.bench.tables import Spec
from hashgrove.datasets import DATASETS

__all__ = ["quick_spec", "small_params"]

N_TRAIN, N_ALL, N_QUERY = 200, 400, 100  # training rows of a cell that has a limit, and of one that has none; queries
BITS = {64: 16, 128: 16, 256: 24, 512: 24, 1024: 32}
SMALL = {
    "n_trees": 10, "n_anchors": 64, "anchors_per_bit": 10, "n_labelled": 200, "n_support": 64, "max_samples": 400,
    "n_pairs": 1000, "n_iter": 5, "max_iter": 20, "n_rounds": 3,
}  # fmt: skip
WITHOUT = {"n_anchors"}  # None of these is none; of the others it is all


def quick_spec(spec: Spec) -> Spec:
    """The same cell on digits, with classes or with tags as its own data have.

    >>> quick_spec(Spec("cifar10-gist", "ksh", params={"n_anchors": 3000}, pca=500)).bits
    16
    """
    has_tags = "tags" in DATASETS[spec.dataset].labels
    return replace(
        spec,
        dataset="digits-tags" if has_tags else "digits",
        options={},
        bits=BITS.get(spec.bits, min(spec.bits, 16)),
        n_train=N_ALL if spec.n_train is None else N_TRAIN,
        n_query=N_QUERY,
        pca=None if spec.pca is None else 20,
        params=small_params(spec.method, spec.params),
    )


def small_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """``params`` with every size cut down, those that are left at their defaults, too.

    >>> small_params("fasthash", {"loss": "ksh", "hash_function": {"kind": "trees", "max_depth": 6}})
    {'loss': 'ksh', 'hash_function': {'kind': 'trees', 'max_depth': 6, 'n_trees': 10}}
    """
    kind = method_class(method)
    if kind is None:
        return dict(params)
    small = {**params, **_cut(kind, params)}
    for name, choices in SLOTS.items():
        if name in inspect.signature(kind.__init__).parameters:
            value = small.get(name, inspect.signature(kind.__init__).parameters[name].default)
            if value is None:  # a slot that is empty
                continue
            slot = {"kind": value} if isinstance(value, str) else dict(value)
            cut = _cut(choices[slot["kind"]], slot)
            if name in small or cut:
                small[name] = {**slot, **cut}
    return small


def _cut(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of ``kind`` that are above those of `SMALL`."""
    cut = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        value = given.get(name, parameter.default)
        if name in SMALL and (name not in WITHOUT if value is None else value > SMALL[name]):
            cut[name] = SMALL[name]
    return cut
