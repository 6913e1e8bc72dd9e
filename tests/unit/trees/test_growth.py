"""Trees of both kinds, compared with naive ones; and the leaves that training rows reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove.trees.splitting import SignRule, newton_rule
from tree_makers import SCALE, encoder_of, grown, newton_examples, newton_tree, packed, sign_examples, sign_tree


def signs_of(tree, bins):
    """The sign that a tree gives to each column of bins."""
    return np.where(encoder_of(tree, len(bins)).bits_of_bins(bins)[0], 1, -1)


def values_of(tree, bins):
    """The values of a tree for each column of bins."""
    return tree.value[[naive.leaf_of(column, 0, tree.feature, tree.threshold, tree.child) for column in bins.T]]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([2, 5, 256]),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["node", "level", "tree"]),
)
def test_sign_tree_against_recursion(seed, n_bins, depth, min_points, subset):
    bins, y, rng = sign_examples(seed, n=40, d=4, n_bins=n_bins)
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
    expected = naive.tree_predictions(
        bins, index.tolist(), signed.tolist(), depth=depth, min_points=min_points, columns=range(40)
    )
    assert signs_of(tree, bins).tolist() == [expected[c] for c in range(40)]


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from([2, 5, 256]),
    st.integers(1, 3),
    st.sampled_from([(0.0, 0.5), (0.1, 0.0), (1.0, 0.0), (10.0, 3.0)]),
    st.sampled_from(["node", "level", "tree"]),
    st.sampled_from([256, 64, 16]),
)
def test_newton_tree_against_trying_all_stumps(seed, n_bins, depth, rule, subset, n_thresholds):
    bins, index, g, h = newton_examples(seed, n_bins=n_bins)
    rule = {"regularisation": rule[0], "min_hessian": rule[1], "n_thresholds": n_thresholds}
    tree = newton_tree(bins, index, g, h, max_depth=depth, subset=subset, **rule)
    expected = naive.newton_tree(bins, index, g / SCALE, h / SCALE, depth=depth, columns=range(bins.shape[1]), **rule)
    np.testing.assert_allclose(values_of(tree, bins), [expected[c] for c in range(bins.shape[1])], atol=1e-9)


def test_stump_of_least_error_among_the_drawn_features():
    bins, y, rng = sign_examples(1, n=200, d=30)
    signed = (y * rng.integers(1, 1000, 200)).astype(np.int32)
    index = np.arange(200, dtype=np.uint32)
    best_gain, *best_stump = naive.stump(bins, index, signed, range(30))
    used = set()
    for seed in range(20):
        tree = sign_tree(bins, index, signed, max_depth=1, n_features=3, subset="node", min_points=0, seed=seed)
        assert int(signs_of(tree, bins).astype(int) @ signed) <= best_gain
        used.add(int(tree.feature[0]))
    assert len(used) > 3, "another seed draws other features"
    whole = sign_tree(bins, index, signed, max_depth=1, n_features=30, subset="node", min_points=0, seed=0)
    assert [whole.feature[0], whole.threshold[0]] == best_stump


def test_stump_of_the_largest_gain_among_the_drawn_features():
    bins, index, g, h = newton_examples(1, n=200, d=30)
    rule = {"regularisation": 1.0, "min_hessian": 2.0}
    gains = naive.newton_gains(bins, index, g / SCALE, h / SCALE, **rule)
    used = set()
    for seed in range(20):
        tree = newton_tree(bins, index, g, h, max_depth=1, n_features=3, seed=seed, **rule)
        used.add(int(tree.feature[0]))
        assert gains[int(tree.threshold[0]), int(tree.feature[0])] > 0
    assert len(used) > 3, "another seed draws other features"
    whole = newton_tree(bins, index, g, h, max_depth=1, **rule)
    assert (whole.threshold[0], whole.feature[0]) == max(gains, key=gains.get)


def test_deep_trees_fit_better_and_stay_within_their_size():
    bins, _, _ = sign_examples(2, n=3000, d=6)
    y = np.where(bins[0].astype(int) + bins[1] > 256, 1, -1)
    index, signed = np.arange(3000, dtype=np.uint32), y.astype(np.int32) * 1000
    errors, sizes = [], []
    for depth in (1, 4, 16, 40):
        tree = sign_tree(bins, index, signed, max_depth=depth, n_features=6, subset="node", min_points=0, seed=0)
        errors.append((signs_of(tree, bins) != y).mean())
        sizes.append(len(tree.value))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < errors[0] / 2
    assert sizes[3] <= 2 * 3000 + 1


def test_histograms_that_are_too_large_to_keep_are_computed_again(monkeypatch):
    bins, index, g, h = newton_examples(3, n=3000, d=20)
    rule = {"max_depth": 5, "regularisation": 1.0, "min_hessian": 1.0, "subset": "tree"}
    kept = newton_tree(bins, index, g, h, **rule)
    monkeypatch.setattr("hashgrove.trees.boosting.KEPT_BYTES", 2**17)
    for a, b in zip(kept, newton_tree(bins, index, g, h, **rule), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_node_without_gain_is_a_leaf():
    bins, index, g, h = newton_examples(0, n=200)
    tree = newton_tree(bins * 0, index, g, h, max_depth=4, regularisation=1.0, min_hessian=0.0)
    assert values_of(tree, bins) == pytest.approx(naive.newton_step(g / SCALE, h / SCALE, 1.0))
    assert len(tree.threshold) == 1
    tree = newton_tree(bins, index, g, h, max_depth=4, regularisation=1.0, min_hessian=1e6)
    assert len(set(values_of(tree, bins))) == 1, "no leaf can have that much curvature"


def walked(kind, max_depth, *, n=300, n_bins=256, share=0.7, by_row=False, seed=0):
    """The bins, a tree on a share of the rows, and the numbers of the leaves of all rows."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (5, n)).astype(np.uint8)
    index = np.flatnonzero(rng.random(n) < share)
    values = rng.choice(np.array([-30, -20, 20, 30], np.int32), len(index))
    rule = SignRule(2)
    if kind == "newton":
        values = packed(values, rng.integers(0, 20, len(index)))
        rule = newton_rule(20.0, 60.0, 1.0, 0)
    settings = {"max_depth": max_depth, "n_features": 3, "by_row": by_row, "seed": seed}
    return bins, *grown(bins, index, values, rule, **settings)


@pytest.mark.parametrize("kind", ["sign", "newton"])
@settings(deadline=None, max_examples=30)
@given(
    max_depth=st.integers(1, 20),
    n_bins=st.sampled_from([1, 2, 256]),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    by_row=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_leaves_against_a_walk_through_the_tree(kind, max_depth, n_bins, share, by_row, seed):
    bins, tree, leaves = walked(kind, max_depth, n_bins=n_bins, share=share, by_row=by_row, seed=seed)
    expected = [naive.leaf_of(row, 0, tree.feature, tree.threshold, tree.child) for row in bins.T]
    np.testing.assert_array_equal(leaves, expected)
