"""Binning, the tree kernels, the booster and the Trees encoder, each compared with a naive version."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashgrove import BoostedTrees
from hashgrove.encoders import Trees
from hashgrove.trees.adaboost import _trim
from hashgrove.trees.binning import BinnedData, bin_features, fit_bins
from hashgrove.trees.grower import BoostingSettings, Workspace, grow
from hashgrove.trees.prediction import MAX_SUM, join_trees
from hashgrove.trees.splitting import SEARCH_COST, _equal_shares, sign_rule
from naive import adaboost, equal_shares, stump, tree_predictions, trees_scores, trimmed


def data(seed, n=60, d=5, n_bins=256):
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (d, n)).astype(np.uint8)
    y = np.where(bins[0].astype(int) + bins[1] > n_bins, 1, -1) * np.where(rng.random(n) < 0.15, -1, 1)
    return bins, y.astype(np.int8), rng


def sign_tree(bins, index, signed, *, min_points, seed, max_depth, n_features, subset="node", n_jobs=1):
    data = BinnedData(bins, np.zeros(len(bins)), np.ones(len(bins)), n_jobs)
    settings = BoostingSettings(max_depth, n_features, subset, trimming=0.0, early_stopping=False)
    return grow(
        data,
        index,
        signed,
        rule=sign_rule(min_points),
        settings=settings,
        seed=np.uint64(seed),
        workspace=Workspace(bins.shape[1], np.int32),
    )[0]


def forest(tree, n_features, *, weights=(1,)):
    binning = {"low": np.zeros(n_features), "scale": np.ones(n_features)}
    return Trees(weights=np.array(weights, np.int16), **binning, **join_trees([tree])._asdict())


def leaves(tree, bins):
    return np.where(forest(tree, len(bins)).bits_of_bins(bins)[0], 1, -1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_bins_are_linear(dtype):
    rng = np.random.default_rng(0)
    X = (rng.random((300, 3)) * 200).astype(dtype)
    X[:, 1] = 7  # constant
    low, scale = fit_bins(X)
    bins = bin_features(X, low, scale, n_jobs=2)
    x = X.astype(float)
    span = np.ptp(x, axis=0)
    share = np.divide(x - (x.min(axis=0) - span / 1000), span * 1.002, out=np.zeros_like(x), where=span > 0)
    assert (np.abs(bins.T - share * 255) <= 0.5 + 1e-6).all()
    assert bins[0].max() == 255
    assert bins[0].min() == 0
    outside = np.array([[-1e30, 5, 1e30]]).astype(np.float64)
    assert bin_features(outside, low, scale)[:, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("d", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("n", [1, 63, 64, 130])
def test_bins_of_any_shape_against_numpy(dtype, d, n):
    X = (np.random.default_rng(d * n).random((n, d)) * 300 - 20).clip(0, 255).astype(dtype)
    low, scale = np.linspace(-3, 40, d), np.linspace(0, 3, d)
    expected = ((X.astype(float) - low) * scale + 0.5).clip(0, 255).astype(np.uint8)
    np.testing.assert_array_equal(bin_features(X, low, scale), expected.T)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "feature"), [(0, 0), (63, 15), (64, 16), (129, 19)])
def test_a_value_that_is_not_finite_is_refused_at_any_position(dtype, value, row, feature):
    rng = np.random.default_rng(0)
    X = rng.random((130, 20)).astype(dtype)
    learner = BoostedTrees.paper(n_trees=3)
    encoder, _ = learner.learn(learner.prepare(X, rng), np.where(X[:, 0] > 0.5, 1, -1).astype(np.int8), None, rng)
    encoder.encode(X)
    X[row, feature] = value
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        encoder.encode(X)


def test_bins_of_extreme_ranges_are_finite():
    X = np.array([[-1e308, 1e-320, 5.0], [1e308, 0.0, 5.0]])
    assert np.isfinite(fit_bins(X)).all()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([2, 5, 256]),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["node", "level", "tree"]),
)
def test_tree_against_recursion(seed, n_bins, depth, min_points, subset):
    bins, y, rng = data(seed, n=40, d=4, n_bins=n_bins)
    index = np.sort(rng.permutation(40)[:35]).astype(np.uint32)
    signed = (y[index] * rng.integers(1, 1000, 35)).astype(np.int32)
    tree = sign_tree(
        bins,
        index,
        signed,
        max_depth=depth,
        n_features=4,
        subset=subset,
        min_points=min_points,
        seed=0,
    )
    expected = tree_predictions(
        bins, index.tolist(), signed.tolist(), depth=depth, min_points=min_points, columns=range(40)
    )
    assert leaves(tree, bins).tolist() == [expected[c] for c in range(40)]


def test_stump_of_least_error_among_the_drawn_features():
    bins, y, rng = data(1, n=200, d=30)
    signed = (y * rng.integers(1, 1000, 200)).astype(np.int32)
    index = np.arange(200, dtype=np.uint32)
    best_gain, *best_stump = stump(bins, index, signed, range(30))
    used = set()
    for seed in range(20):
        tree = sign_tree(bins, index, signed, max_depth=1, n_features=3, subset="node", min_points=0, seed=seed)
        assert int(leaves(tree, bins).astype(int) @ signed) <= best_gain
        used.add(int(tree.feature[0]))
    assert len(used) > 3, "another seed draws other features"
    whole = sign_tree(bins, index, signed, max_depth=1, n_features=30, subset="node", min_points=0, seed=0)
    assert [whole.feature[0], whole.threshold[0]] == best_stump


def test_deep_trees_fit_better_and_stay_within_their_size():
    bins, _, _ = data(2, n=3000, d=6)
    y = np.where(bins[0].astype(int) + bins[1] > 256, 1, -1)
    index, signed = np.arange(3000, dtype=np.uint32), y.astype(np.int32) * 1000
    errors, sizes = [], []
    for depth in (1, 4, 16, 40):
        tree = sign_tree(bins, index, signed, max_depth=depth, n_features=6, subset="node", min_points=0, seed=0)
        errors.append((leaves(tree, bins) != y).mean())
        sizes.append(len(tree.value))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < errors[0] / 2
    assert sizes[3] <= 2 * 3000 + 1


@pytest.mark.parametrize("subset", ["node", "level", "tree"])
def test_trees_are_the_same_at_any_number_of_threads(subset):
    bins, y, rng = data(3, n=4000, d=64)
    index = np.arange(4000, dtype=np.uint32)
    signed = (y * rng.integers(1, 1000, 4000)).astype(np.int32)
    one, two = (
        sign_tree(bins, index, signed, max_depth=6, n_features=40, subset=subset, min_points=5, seed=9, n_jobs=n)
        for n in (1, 2)
    )
    for a, b in zip(one, two, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n_shares", [1, 2, 3, 8])
def test_threads_get_equal_shares_of_a_level(shared, n_shares):
    costs, n_groups = np.array([3, 50_000, 700, 1]), 5
    of_items = (np.tile(costs, n_groups) if shared else np.repeat(costs, n_groups)) + SEARCH_COST
    cuts = _equal_shares(costs, n_groups, shared, n_shares)
    assert cuts.tolist() == equal_shares(of_items, n_shares)
    assert max(of_items[a:b].sum() for a, b in pairwise(cuts)) <= of_items.sum() / n_shares + of_items.max()


@pytest.mark.parametrize("trimming", [0.0, 0.1, 0.5])
def test_trimming_keeps_the_heaviest(trimming):
    w = np.random.default_rng(0).lognormal(sigma=2, size=500).astype(np.float32)
    y = np.random.default_rng(1).choice([-1, 1], 500).astype(np.int8)
    index, signed = _trim(w, w.view(np.int32), y, trimming)
    assert index.tolist() == (trimmed(w, trimming) if trimming else list(range(500)))
    assert w[index].sum() >= (1 - trimming) * w.sum() * (1 - 1e-5)
    assert (np.sign(signed) == y[index])[np.abs(signed) > 0].all()
    np.testing.assert_allclose(np.abs(signed) / 2**30, w[index] / w[index].sum(), atol=1e-8)


@pytest.mark.parametrize("trimming", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_booster_against_naive_adaboost(trimming, seed):
    rng = np.random.default_rng(seed)
    X = rng.random((80, 4))
    z = np.where(X[:, 0] + X[:, 1] > 1, 1, -1) * np.where(rng.random(80) < 0.1, -1, 1)
    z = z.astype(np.int8)
    learner = BoostedTrees.paper(
        n_trees=8, max_depth=2, features_per_node=None, trimming=trimming, min_points=2, early_stopping=True
    )
    prepared = learner.prepare(X, rng)
    encoder, bit = learner.learn(prepared, z, None, rng)
    margin = adaboost(prepared.binned.bins, z.astype(int), n_trees=8, depth=2, min_points=2, trimming=trimming)
    decided = np.abs(margin) > 0.01 * np.abs(margin).max()  # rounding the votes to integers may change the closest ones
    assert decided.mean() > 0.9
    assert (bit == np.sign(margin))[decided].all()
    scores = encoder.scores(X)[:, 0]
    np.testing.assert_allclose(scores / np.abs(scores).max(), margin / np.abs(margin).max(), atol=0.01)


def test_the_bit_is_what_the_encoder_gives():
    rng = np.random.default_rng(0)
    X = rng.random((500, 10)).astype(np.float32)
    z = rng.choice([-1, 1], 500).astype(np.int8)
    learner = BoostedTrees.paper(n_trees=5, max_depth=2)
    encoder, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
    assert ((encoder.scores(X)[:, 0] > 0) == (bit > 0)).all()
    assert 0 < (bit != z).mean() < 0.5


def test_heavy_examples_are_fitted_better():
    rng = np.random.default_rng(0)
    X = rng.random((400, 1))
    z = rng.choice([-1, 1], 400).astype(np.int8)  # noise, which trees can only memorise
    heavy = rng.random(400) < 0.2
    learner = BoostedTrees.paper(n_trees=3, max_depth=5, min_points=0)
    _, bit = learner.learn(learner.prepare(X, rng), z, np.where(heavy, 50.0, 0.1), np.random.default_rng(0))
    assert (bit == z)[heavy].mean() > (bit == z)[~heavy].mean() + 0.1


def test_early_stopping_at_zero_error():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2)).round(1)
    z = np.where(X[:, 0] > 0.55, 1, -1).astype(np.int8)
    for early_stopping, trees in ((True, 1), (False, 30)):
        learner = BoostedTrees.paper(n_trees=30, early_stopping=early_stopping)
        encoder, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
        assert (bit == z).all()
        assert len(encoder.weights) == trees


@pytest.mark.parametrize("sign", [-1, 1])
def test_one_class_gives_a_constant(sign):
    rng = np.random.default_rng(0)
    X, learner = rng.random((20, 3)), BoostedTrees.paper(n_trees=5)
    encoder, bit = learner.learn(learner.prepare(X, rng), np.full(20, sign, np.int8), None, rng)
    assert (bit == sign).all()
    assert (encoder.scores(rng.random((9, 3))) == sign).all()


def test_constant_features_give_the_heavier_class():
    """There is nothing to split on."""
    rng = np.random.default_rng(0)
    X, z = np.ones((40, 2)), np.array([1] * 25 + [-1] * 15, np.int8)
    learner = BoostedTrees.paper(n_trees=4, min_points=0)
    _, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
    assert (bit == 1).all()


def an_encoder(n_bits=3):
    rng = np.random.default_rng(0)
    X = rng.random((200, 6))
    learner = BoostedTrees.paper(n_trees=4, max_depth=3)
    prepared = learner.prepare(X, rng)
    parts = [learner.learn(prepared, rng.choice([-1, 1], 200).astype(np.int8), None, rng)[0] for _ in range(n_bits)]
    return Trees.concatenate(parts), parts, X


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_encoder_against_walking_each_row(depth, n):
    """Compiled trees (up to depth 6) and deeper trees, on complete and on incomplete tiles of 64 rows."""
    bins, y, rng = data(depth, n=500, d=9)
    index = np.arange(500, dtype=np.uint32)
    tables = []
    for seed in range(3):
        signed = (y * rng.integers(1, 1000, 500)).astype(np.int32)
        tables.append(
            sign_tree(
                bins,
                index,
                signed,
                max_depth=depth,
                n_features=3,
                subset="node",
                min_points=0,
                seed=seed,
            )
        )
    weights = [5, 3, 3]
    parts = [forest(tree, 9, weights=[w]) for tree, w in zip(tables, weights, strict=True)]
    encoder = Trees.concatenate(parts)
    joined = dataclasses.replace(encoder, bit_ptr=np.array([0, 3], np.int32))
    chosen = np.ascontiguousarray(bins[:, :n])
    rows = chosen.T.astype(float)  # bins as features: low 0, scale 1
    expected = trees_scores(rows, **joined.arrays())[:, 0]
    assert (joined.bits_of_bins(chosen)[0] == (expected > 0)).all()
    assert (joined.scores(rows)[:, 0] == expected).all()
    assert (joined.encode(rows)[:, 0] == (expected > 0)).all()
    assert (encoder.bits_of_bins(chosen) == (encoder.scores(rows) > 0).T).all()


def test_concatenated_trees_give_the_bits_of_their_parts():
    encoder, parts, X = an_encoder()
    assert (encoder.scores(X) == np.concatenate([p.scores(X) for p in parts], axis=1)).all()
    for b in range(3):
        assert 1 <= encoder.weights[encoder.bit_ptr[b] : encoder.bit_ptr[b + 1]].sum() <= MAX_SUM
    assert (
        encoder.scores(X.astype(np.float32)[::-1]) == encoder.scores(np.asfortranarray(X.astype(np.float32)))[::-1]
    ).all()


POINTERS_THAT_WRAP = [0, 2**31 - 1, -(2**31), -1]  # the differences are positive if they are taken in int32


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("feature", lambda a: a + np.uint32(6), "'feature' must be below the number of features, 6"),
        ("child", lambda a: np.where(a > 0, a + np.uint32(1000), a).astype(np.uint32), "'child' must point to two"),
        ("child", lambda a: np.where(a > 0, np.uint32(1), a).astype(np.uint32), "'child' must point to two"),
        ("value", lambda a: (a * 2).astype(np.int8), "'value' must be -1 or"),
        ("value", lambda a: a[:-1], "'value' must be int8 of shape .*, with n_nodes = "),
        ("weights", lambda a: -a, "'weights' must be 12 numbers that are not negative"),
        ("weights", lambda a: (a * 0).astype(np.int16), "sum to between 1 and 32767"),
        ("weights", lambda a: np.full_like(a, 20000), "sum to between 1 and 32767"),
        ("weights", lambda a: a.astype(np.int32), r"'weights' must be int16 of shape \(n_trees,\)"),
        ("bit_ptr", lambda a: a[::-1].copy(), "'bit_ptr' must increase strictly from 0 to 12"),
        ("bit_ptr", lambda a: np.array([*POINTERS_THAT_WRAP, 12], np.int32), "'bit_ptr' must increase strictly"),
        ("bit_ptr", lambda a: np.array([0], np.int32), "'bit_ptr' must increase strictly"),
        ("tree_ptr", lambda a: a[:-1], "'tree_ptr' must increase strictly"),
        ("tree_ptr", lambda a: np.delete(a, 1), "'bit_ptr' must increase strictly from 0 to 11"),
        ("weights", lambda a: a[:-1], "'weights' must be 12 numbers"),
        ("scale", lambda a: a * np.nan, "'scale' must be finite"),
        ("low", lambda a: a[:2], "with n_features = 2"),
    ],
)
def test_hostile_tables_are_refused(name, change, message):
    arrays = an_encoder()[0].arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=message):
        Trees.from_arrays(arrays)


def test_pointers_that_wrap_allocate_nothing():
    """Four trees with three nodes in total; with the tree sizes computed in int32, 16 GiB would be allocated."""
    arrays = an_encoder()[0].arrays()
    arrays |= {name: arrays[name][:3] for name in ("feature", "threshold", "child", "value")}
    arrays |= {"bit_ptr": np.array([0, 4], np.int32), "weights": np.ones(4, np.int16)}
    arrays["tree_ptr"] = np.array([*POINTERS_THAT_WRAP, 3], np.int32)
    with pytest.raises(ValueError, match="'tree_ptr' must increase strictly from 0 to 3"):
        Trees.from_arrays(arrays)


def test_concatenate_refuses_another_binning():
    encoder = an_encoder()[0]
    with pytest.raises(ValueError, match="must have the same 'low' and 'scale'"):
        Trees.concatenate([encoder, dataclasses.replace(encoder, low=encoder.low + 1)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0), ("n_trees", 5000), ("n_trees", 2.5), ("max_depth", 0), ("features_per_node", 0),
        ("subset", "forest"),
        ("trimming", 1.0), ("trimming", -0.1), ("trimming", "a"), ("min_points", -1),
    ],
)  # fmt: skip
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be"):
        BoostedTrees(**{name: value}).prepare(np.zeros((2, 2)), np.random.default_rng(0))
