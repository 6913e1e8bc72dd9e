"""The search for splits: values, leaves, the work of threads, and the shortcuts for small nodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashgrove import BoostedTrees
from hashgrove.trees.histogram import HISTOGRAM, SMALL, OpenNodes, gathered_bins, room_for_gathered
from hashgrove.trees.splitting import SignRule, best_stumps, newton_rule, pack, write_leaf_values
from tree_makers import packed

NO_ROWS = np.empty((0, 0), np.uint8)
RULES = {
    "sign": SignRule(0),
    "newton": newton_rule(200.0, 600.0, 1.0, 0),
    "newton without limits": newton_rule(0.0, 0.0, 1.0, 0),
    "newton with 32 thresholds": newton_rule(200.0, 600.0, 1.0, 3),
}


def test_steps_are_limited():
    totals = np.array([pack(500, 1), pack(-500, 1), pack(0, 0), pack(7, 0)])
    steps = np.empty(4)
    write_leaf_values(totals, steps, newton_rule(0.0, 0.0, 1.0, 0))
    assert steps.tolist() == [4.0, -4.0, 0.0, 4.0]


def level_of(kind, sizes, rng):
    """A level whose nodes have these sizes, and values as the rule defines them; some values are equal or 0."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    n = int(starts[-1])
    values = rng.integers(-3, 4, n).astype(np.int32) * np.int32(50)
    if kind != "sign":
        values = packed(values, rng.integers(0, 200, n))
    totals = np.array([values[a:b].sum(dtype=np.int64) for a, b in pairwise(starts)])
    nodes = np.arange(len(sizes))
    return OpenNodes(rng.permutation(n).astype(np.uint32), values, nodes, starts, totals, np.zeros_like(nodes))


@pytest.mark.parametrize("kind", RULES)
@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 5 * SMALL), min_size=1, max_size=5),
    highest=st.sampled_from([0, 1, 5, 255]),
    lowest=st.sampled_from([0, 1, 250]),
    by_row=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_stumps_of_small_nodes_are_those_of_the_plain_search(kind, sizes, highest, lowest, by_row, seed):
    rng = np.random.default_rng(seed)
    level = level_of(kind, sizes, rng)
    bins = np.minimum(lowest + rng.integers(0, highest + 1, (20, len(level.examples))), 255).astype(np.uint8)
    rows = np.ascontiguousarray(bins.T) if by_row else NO_ROWS
    features = rng.integers(0, 20, (len(sizes), 48)).astype(np.uint32)
    kept = np.empty((len(sizes), 6, HISTOGRAM), level.values.dtype)  # keeping them means that every node needs one
    found = best_stumps(bins, rows, level, features, kept[:0], kept[:0], RULES[kind])
    plain = best_stumps(bins, NO_ROWS, level, features, kept[:0], kept, RULES[kind])
    for name, values, expected in zip(found._fields, found, plain, strict=True):
        np.testing.assert_array_equal(values, expected, err_msg=name)


@pytest.mark.parametrize("n_features", [20, 200])
def test_gathered_bins_are_those_of_the_examples(n_features):
    rng = np.random.default_rng(0)
    sizes = [3, 1, 1800, 40, 60]
    level = level_of("sign", sizes, rng)
    rows = rng.integers(0, 256, (sum(sizes), n_features)).astype(np.uint8)
    features = rng.integers(0, n_features, (len(sizes), 24)).astype(np.uint32)
    room, current = room_for_gathered(rows, level, features), np.full(1, -1)
    found = set()
    for node, group in [(0, 0), (0, 2), (1, 1), (2, 0), (0, 1), (3, 0), (3, 1), (4, 2)]:
        gathered = gathered_bins(rows, level, features, node, group, room, current)
        if len(gathered):
            found.add(node)
            examples = level.examples[level.starts[node] : level.starts[node + 1]]
            expected = rows[np.ix_(examples, features[node, 8 * group : 8 * group + 8])]
            np.testing.assert_array_equal(gathered, expected)
    assert found == {0, 1, 3, 4}, "the bins of a large node are read feature by feature"


@pytest.mark.parametrize("leaves", ["sign", "newton"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_copy_of_the_bins_row_by_row_changes_no_tree(leaves, n_jobs):
    rng = np.random.default_rng(0)
    X = rng.random((2000, 12))
    z = np.where((X[:, :3] > 0.5).sum(axis=1) % 2, 1, -1).astype(np.int8)
    learner = BoostedTrees.paper(n_trees=3, max_depth=12, features_per_node=6)
    learner.set_params(leaves=leaves, min_hessian=0.1, min_points=0)
    data = learner.prepare(X, rng, n_jobs=n_jobs)
    assert data.binned.rows.shape == (2000, 12)
    plain = data._replace(binned=type(data.binned)(data.binned.bins, data.binned.low, data.binned.scale, n_jobs))
    found, expected = (learner.learn(part, z, None, np.random.default_rng(1))[0].arrays() for part in (data, plain))
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
