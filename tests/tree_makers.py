"""Makers of trees that tests share: examples with a known structure, and trees grown on them."""

from __future__ import annotations

import numpy as np

from hashgrove.encoders import Trees
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.boosting import BoostingSettings, Workspace
from hashgrove.trees.grower import grow
from hashgrove.trees.prediction import join_trees
from hashgrove.trees.splitting import newton_rule, pack, sign_rule

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


def grown(bins, index, values, rule, *, max_depth, n_features=99, subset="node", seed=0, by_row=False, n_jobs=1):
    """A tree on some columns of ``bins``, and the leaves of all columns if it is deep."""
    rows = np.ascontiguousarray(bins.T) if by_row else np.empty((0, 0), np.uint8)
    return grow(
        BinnedData(bins, np.zeros(len(bins)), np.ones(len(bins)), n_jobs, rows),
        index.astype(np.uint32),
        values,
        rule=rule,
        settings=BoostingSettings(max_depth, n_features, subset, trimming=0.0, early_stopping=False),
        seed=np.uint64(seed),
        workspace=Workspace(bins.shape[1], values.dtype),
    )


def sign_tree(bins, index, signed, *, min_points, **settings):
    """A tree with sign leaves, on labels x weights."""
    return grown(bins, index, signed, sign_rule(min_points), **settings)[0]


def newton_tree(bins, index, g, h, *, regularisation, min_hessian, **settings):
    """A tree with Newton leaves, on gradients and curvatures in fixed point."""
    rule = newton_rule(regularisation, min_hessian, scale=SCALE)
    return grown(bins, index, packed(g, h // 2), rule, **settings)[0]


def encoder_of(tree, n_features, *, weights=(1,)):
    """An encoder of one tree with sign leaves, whose features are bins."""
    binning = {"low": np.zeros(n_features), "scale": np.ones(n_features)}
    return Trees(weights=np.array(weights, np.int16), **binning, **join_trees([tree])._asdict())


def problem(seed, n=80, d=4):
    """Rows, values of a bit that depend on two features, with noise; and a generator."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    z = np.where(X[:, 0] + X[:, 1] > 1, 1, -1) * np.where(rng.random(n) < 0.1, -1, 1)
    return X, z.astype(np.int8), rng
