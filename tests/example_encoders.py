"""A small encoder of every class in ENCODERS, with random arrays: for tests, and for the fuzz loop to start from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hashgrove.encoders import ENCODERS, UNIT, Lifted, Mixed, Spread, Sum
from hashgrove.encoders.base import declared_arrays
from hashgrove.encoders.decodable import as_bytes
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.storage import modelfile

N_FEATURES = 5


def tables_of_trees(n_bits, rng):
    """Two trees per bit, with nodes in this order: root, inner node on the left, and three leaves."""
    n_trees = 2 * n_bits
    return {
        "low": np.full(N_FEATURES, -3.0),
        "scale": np.full(N_FEATURES, 40.0),
        "bit_ptr": np.arange(0, n_trees + 1, 2, dtype=np.int32),
        "weights": np.tile([3, 2], n_bits).astype(np.int16),
        "tree_ptr": np.arange(0, 5 * n_trees + 1, 5, dtype=np.int32),
        "feature": rng.integers(N_FEATURES, size=5 * n_trees).astype(np.uint32),
        "threshold": rng.integers(60, 200, size=5 * n_trees).astype(np.uint8),
        "child": np.tile([1, 3, 0, 0, 0], n_trees).astype(np.uint32),
        "value": np.tile([0, 0, 1, -1, 1], n_trees).astype(np.int8),
    }


def tables_of_leaf_trees(n_bits, rng):
    """The same trees with leaves that are numbers."""
    tables = tables_of_trees(n_bits, rng)
    value = np.where(tables["child"] > 0, 0, rng.integers(-128, 128, size=len(tables["child"]))).astype(np.int8)
    return tables | {"value": value, "unit": rng.random(n_bits) + 0.1}


VARIANTS = {"linear of unit rows": "linear"}  # further examples, by encoder
EXAMPLES = {  # arrays that must be other than random floats, by encoder
    "linear": lambda n_bits, rng: {"unit": np.array(0, np.uint8)},
    "kernel": lambda n_bits, rng: {"gamma": np.array(0.3), "scale": np.linspace(0, 2, N_FEATURES)},
    "trees": tables_of_trees,
    "leaf-trees": tables_of_leaf_trees,
    "class-scores": lambda n_bits, rng: {"exclusive": np.array(1, np.uint8)},
    "posterior": lambda n_bits, rng: {"power": np.array(0.35, np.float32), "exclusive": np.array(1, np.uint8)},
    "decodable": lambda n_bits, rng: {
        "words": rng.choice([-1, 1], (n_bits, 7)).astype(np.int8),
        "temperature": np.array(0.8, np.float32),
        "names": as_bytes([f"class {c}" for c in range(6)] + [6]),
    },
    "unit-kernel": lambda n_bits, rng: {
        "anchors": unit_rows(rng.normal(size=(n_bits, N_FEATURES))),
        "gamma": np.array(0.3, np.float32),
    },
}


def example(name, n_bits=3, *, seed=0, n_features=N_FEATURES):
    """An encoder with random arrays; only those with the axis "bits" depend on the seed, so examples can be joined."""
    if name == "linear of unit rows":
        linear = example("linear", n_bits, seed=seed, n_features=n_features)
        narrow = {field: getattr(linear, field).astype(np.float32) for field in ("weights", "bias")}
        return replace(linear, **narrow, unit=UNIT)
    if name == "lifted":
        lift = example("kernel", 4, n_features=n_features)
        return Lifted(lift=lift, bits=example("linear", n_bits, seed=seed, n_features=4))
    if name == "spread":
        counts = {"kernel": n_bits - n_bits // 3 or 1, "linear": n_bits // 3}
        learned, generic = (example(part, n or 1, seed=seed, n_features=n_features) for part, n in counts.items())
        return Spread(learned=learned, generic=generic)
    if name == "sum":
        return Sum(
            parts=tuple(example(part, n_bits, seed=seed, n_features=n_features) for part in ("linear", "kernel"))
        )
    if name == "mixed":  # the second bit, if there is one, comes from another encoder
        counts = {"linear": n_bits - (n_bits > 1), "kernel": n_bits > 1}
        parts = (example(part, int(n), seed=seed, n_features=n_features) for part, n in counts.items() if n)
        return Mixed(parts=tuple(parts), source=(np.arange(n_bits) == 1).astype(np.uint8))
    special = EXAMPLES.get(name, lambda n_bits, rng: {})(n_bits, np.random.default_rng([seed, 1]))
    return random_encoder(ENCODERS[name], special, n_bits, seed=seed, n_features=n_features)


def random_encoder(encoder_class, special, n_bits, *, seed, n_features=N_FEATURES):
    """An encoder whose arrays are normally distributed, except for the ``special`` ones, which are given."""
    sizes = {"bits": n_bits, "features": n_features}
    arrays = {}
    for field, (dtypes, axes) in declared_arrays(encoder_class).items():
        rng = np.random.default_rng([seed if "bits" in axes else 0, 2])
        shape = [axis if isinstance(axis, int) else sizes.get(axis, 7) for axis in axes]
        arrays[field] = special[field] if field in special else rng.normal(size=shape).astype(dtypes[0])
    return encoder_class(**arrays)


def some_rows(n, *, seed=1, n_features=N_FEATURES):
    return np.random.default_rng(seed).normal(size=(n, n_features))


def save_and_load(encoder, path):
    modelfile.write(path, kind="encoder", header={}, arrays=encoder.arrays())
    return type(encoder).from_arrays(modelfile.read(path, kind="encoder")[1])
