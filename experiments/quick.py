"""A small version of every cell, on the embedded digits with few rows, bits and trees, to see that everything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.datasets import DATASETS
from experiments.methods import default_of, method_class, parts_of
from experiments.specs import Spec
from hashgrove.fasthash import AUTO

__all__ = ["quick_spec", "small_params"]

N_TRAIN_LIMITED, N_TRAIN_ALL, N_QUERY = 200, 400, 100  # rows of a cell with and without a limit; queries
BITS = {64: 16, 128: 16, 256: 24, 512: 24, 1024: 32}
LARGEST = {
    "n_trees": 10, "n_anchors": 64, "anchors_per_bit": 10, "n_labelled": 200, "n_support": 64, "max_samples": 400,
    "n_pairs": 1000, "generic_bits": 4, "n_iter": 5, "max_iter": 20, "n_rounds": 3,
}  # fmt: skip
NONE_MEANS_NONE = {"n_anchors", "generic_bits"}  # for the other sizes, None means all


def quick_spec(spec: Spec) -> Spec:
    """Return the same cell on digits, with tags if its own data have tags.

    >>> quick_spec(Spec("cifar10-gist", "ksh", params={"n_anchors": 3000}, pca=500)).bits
    16
    """
    has_tags = "tags" in DATASETS[spec.dataset].labels
    return replace(
        spec,
        dataset="digits-tags" if has_tags else "digits",
        options={},
        bits=BITS.get(spec.bits, min(spec.bits, 16)),
        n_train=N_TRAIN_ALL if spec.n_train is None else N_TRAIN_LIMITED,
        n_query=N_QUERY,
        pca=None if spec.pca is None else 20,
        params=small_params(spec.method, _without_trial(spec)),
    )


def _without_trial(spec: Spec) -> dict[str, Any]:
    """Return the parameters with posterior bits for "auto": a trial of all hash functions takes too long."""
    params = dict(spec.params)
    if "hash_function" in parts_of(spec.method):
        chosen = params.get("hash_function", default_of(spec.method, "hash_function"))
        params |= {"hash_function": "posterior"} if chosen == AUTO else {}
    return params


def small_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``params`` with every size cut down, including sizes that are large by default.

    >>> small_params("fasthash", {"loss": "ksh", "hash_function": {"kind": "trees", "max_depth": 6}})
    {'loss': 'ksh', 'hash_function': {'kind': 'trees', 'max_depth': 6, 'n_anchors': 64, 'n_trees': 10}}
    """
    kind = method_class(method)
    if kind is None:
        return dict(params)
    small = {**params, **_cut_sizes(kind, params)}
    for name, kinds in parts_of(method).items():
        value = small.get(name, default_of(method, name))
        if value == AUTO:
            continue
        part = {"kind": value} if isinstance(value, str) else dict(value)
        cut = _cut_sizes(kinds[part["kind"]], part)
        if name in small or cut:
            small[name] = {**part, **cut}
    return small


def _cut_sizes(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of ``kind`` that exceed `LARGEST`, cut down to it."""
    cut = {}
    for name, default in kind().get_params(deep=False).items():
        value = given.get(name, default)
        if name in LARGEST and (name not in NONE_MEANS_NONE if value is None else value > LARGEST[name]):
            cut[name] = LARGEST[name]
    return cut
