"""The leaves of training rows in a deep tree, known from its growth, are those that a walk through the tree finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.grower import BoostingSettings, Workspace, grow
from hashgrove.trees.splitting import newton_rule, pack, sign_rule

N_FEATURES = 5


def grown(kind, max_depth, *, n=300, n_bins=256, share=0.7, by_row=False, seed=0, n_jobs=1):
    """The bins, a tree on a share of the rows, and the numbers of the leaves of all rows."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (N_FEATURES, n)).astype(np.uint8)
    index = np.flatnonzero(rng.random(n) < share).astype(np.uint32)
    values = rng.choice(np.array([-30, -20, 20, 30], np.int32), len(index))
    rule = sign_rule(2)
    if kind == "newton":
        halves = rng.integers(0, 20, len(index))
        values = np.array([pack(*pair) for pair in zip(values, halves, strict=True)], np.int64)
        rule = newton_rule(20.0, 60.0, scale=1.0)
    settings = BoostingSettings(max_depth, n_features=3, subset="node", trimming=0.0, early_stopping=False)
    rows = np.ascontiguousarray(bins.T) if by_row else np.empty((0, 0), np.uint8)
    data = BinnedData(bins, np.zeros(N_FEATURES), np.ones(N_FEATURES), n_jobs, rows)
    seed, workspace = np.uint64(seed), Workspace(n, values.dtype)
    return bins, *grow(data, index, values, rule=rule, settings=settings, seed=seed, workspace=workspace)


@pytest.mark.parametrize("kind", ["sign", "newton"])
@settings(deadline=None, max_examples=30)
@given(
    max_depth=st.integers(7, 20),
    n_bins=st.sampled_from([1, 2, 256]),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    by_row=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_numbers_against_a_walk_through_the_tree(kind, max_depth, n_bins, share, by_row, seed):
    bins, tree, numbers = grown(kind, max_depth, n_bins=n_bins, share=share, by_row=by_row, seed=seed)
    expected = [naive.leaf_of(row, 0, tree.feature, tree.threshold, tree.child) for row in bins.T]
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("kind", ["sign", "newton"])
def test_numbers_are_the_same_at_any_number_of_threads(kind):
    _, tree, numbers = grown(kind, 12, n=40_000, n_jobs=1)
    _, other_tree, other_numbers = grown(kind, 12, n=40_000, n_jobs=3)
    assert len(tree.value) > 127
    np.testing.assert_array_equal(numbers, other_numbers)
    np.testing.assert_array_equal(tree.value, other_tree.value)


def test_the_rows_of_trees_that_are_not_deep_have_no_numbers():
    assert grown("newton", 6)[-1] is None
