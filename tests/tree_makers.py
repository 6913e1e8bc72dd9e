"""Makers of trees that tests share: examples with a known structure, and trees grown on them."""

from __future__ import annotations

import numpy as np

from hashgrove.encoders import Trees
from hashgrove.trees.boosting import SUBSETS, BoostingSettings, NodeTables, largest_tree, make_workspace
from hashgrove.trees.grower import grow
from hashgrove.trees.prediction import Forest
from hashgrove.trees.splitting import NewtonRule, SignRule, newton_rule, pack

POINTERS_THAT_WRAP = [0, 2**31 - 1, -(2**31), -1]  # the differences are positive if they are taken in int32
SCALE = 1000  # fixed point of gradients and curvatures


def sign_examples(seed, n=60, d=5, n_bins=256):
    """Bins, and labels -1 and +1 that depend on two features, with noise; and a generator."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (d, n)).astype(np.uint8)
    y = np.where(bins[0].astype(int) + bins[1] > n_bins, 1, -1) * np.where(rng.random(n) < 0.15, -1, 1)
    return bins, y.astype(np.int8), rng


def newton_examples(seed, n=40, d=3, n_bins=256):
    """Bins, numbers of some examples, and their gradients and curvatures in whole thousandths."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (d, n)).astype(np.uint8)
    index = np.sort(rng.permutation(n)[: n - 5])
    noisy = np.where(rng.random(n) < 0.2, -1, 1) * np.where(bins[0].astype(int) + bins[1] > n_bins, 1, -1)
    g = rng.integers(1, 900, len(index)) * noisy[index]
    h = 2 * (rng.random(len(index)) * np.abs(g)).astype(np.int64)
    return bins, index, g, h


def packed(gradients, halves):
    """Values of examples with these gradients and halves of curvatures."""
    return np.array([pack(*pair) for pair in zip(gradients, halves, strict=True)], np.int64)


def grown(bins, index, values, rule, *, max_depth, n_features=99, subset="node", seed=0, by_row=False):
    """A tree on some columns of ``bins``, and the leaves of all columns."""
    rows = np.ascontiguousarray(bins.T) if by_row else np.empty((0, 0), np.uint8)
    settings = BoostingSettings(max_depth, n_features, SUBSETS.index(subset), trimming=0.0, early_stopping=False)
    memory = make_workspace(bins, settings, values.dtype)
    value_type = np.float64 if isinstance(rule, NewtonRule) else np.int8
    size = largest_tree(max_depth, len(index))
    tables = NodeTables(*(np.full(size, 77, each) for each in (np.uint32, np.uint8, np.uint32, np.int64, value_type)))
    n_nodes = grow(bins, rows, index.astype(np.uint32), values, settings, np.uint64(seed), memory, tables, rule)
    return NodeTables(*(table[:n_nodes] for table in tables)), memory.leaves


def sign_tree(bins, index, signed, *, min_points, **settings):
    """A tree with sign leaves, on labels x weights."""
    return grown(bins, index, signed, SignRule(min_points), **settings)[0]


def newton_tree(bins, index, g, h, *, regularisation, min_hessian, n_thresholds=256, **settings):
    """A tree with Newton leaves, on gradients and curvatures in fixed point."""
    rule = newton_rule(regularisation, min_hessian, float(SCALE), (256 // n_thresholds).bit_length() - 1)
    return grown(bins, index, packed(g, h // 2), rule, **settings)[0]


def encoder_of(tree, n_features, *, weights=(1,)):
    """An encoder of one tree with sign leaves, whose features are bins."""
    binning = {"low": np.zeros(n_features), "scale": np.ones(n_features)}
    pointers = np.array([0, 1], np.int32), np.array([0, len(tree.child)], np.int32)
    forest = Forest(*pointers, tree.feature, tree.threshold, tree.child, tree.value)
    return Trees(weights=np.array(weights, np.int16), **binning, **forest._asdict())


def problem(seed, n=80, d=4):
    """Rows, values of a bit that depend on two features, with noise; and a generator."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    z = np.where(X[:, 0] + X[:, 1] > 1, 1, -1) * np.where(rng.random(n) < 0.1, -1, 1)
    return X, z.astype(np.int8), rng
