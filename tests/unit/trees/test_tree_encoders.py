"""The encoders of trees, compared with a walk through each tree; and tables from untrusted files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import naive
from hashgrove import BoostedTrees
from hashgrove.encoders import LeafTrees, Trees
from hashgrove.trees.prediction import MAX_SUM
from tree_makers import POINTERS_THAT_WRAP, encoder_of, problem, sign_examples, sign_tree


def voting_trees(n_bits=3):
    rng = np.random.default_rng(0)
    X = rng.random((200, 6))
    learner = BoostedTrees.paper(n_trees=4, max_depth=3)
    prepared = learner.prepare(X, rng)
    parts = [learner.learn(prepared, rng.choice([-1, 1], 200).astype(np.int8), None, rng)[0] for _ in range(n_bits)]
    return Trees.concatenate(parts), parts, X


def additive_trees(n_bits=3):
    X, _, rng = problem(0, n=200, d=6)
    learner = BoostedTrees(leaves="newton", n_trees=4, max_depth=3)
    data = learner.prepare(X, rng)
    return [learner.learn(data, rng.choice([-1, 1], 200).astype(np.int8), None, rng)[0] for _ in range(n_bits)], X


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_votes_against_walking_each_row(depth, n):
    """Compiled trees (up to depth 6) and deeper trees, on complete and on incomplete tiles of 64 rows."""
    bins, y, rng = sign_examples(depth, n=500, d=9)
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
    parts = [encoder_of(tree, 9, weights=[w]) for tree, w in zip(tables, weights, strict=True)]
    encoder = Trees.concatenate(parts)
    joined = replace(encoder, bit_ptr=np.array([0, 3], np.int32))
    chosen = np.ascontiguousarray(bins[:, :n])
    rows = chosen.T.astype(float)  # bins as features: low 0, scale 1
    expected = naive.trees_scores(rows, **joined.arrays())[:, 0]
    assert (joined.bits_of_bins(chosen)[0] == (expected > 0)).all()
    assert (joined.scores(rows)[:, 0] == expected).all()
    assert (joined.encode(rows)[:, 0] == (expected > 0)).all()
    assert (encoder.bits_of_bins(chosen) == (encoder.scores(rows) > 0).T).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_sums_of_leaves_against_walking_each_row(depth, n):
    """Small trees by vector code and deep ones row by row, on complete and on incomplete tiles of 64 rows."""
    X, z, rng = problem(depth, n=300, d=9)
    learner = BoostedTrees(leaves="newton", n_trees=5, max_depth=depth, min_hessian=0.01, regularisation=0.1)
    data = learner.prepare(X.astype(np.float32), rng)
    encoder, bit = learner.learn(data, z, None, rng)
    assert type(encoder) is LeafTrees
    encoder.check()
    rows = X[:n].astype(np.float32)
    scores = encoder.scores(rows)[:, 0]
    np.testing.assert_array_equal(np.where(scores > 0, 1, -1), bit[:n])
    np.testing.assert_array_equal(encoder.scores_of_bins(np.ascontiguousarray(data.binned.bins[:, :n]))[0], scores)
    expected = naive.leaf_trees_scores(rows.astype(float), **encoder.arrays())[:, 0]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    assert (bit == z).mean() > 0.75


def test_concatenated_trees_give_the_bits_of_their_parts():
    encoder, parts, X = voting_trees()
    assert (encoder.scores(X) == np.concatenate([p.scores(X) for p in parts], axis=1)).all()
    for b in range(3):
        assert 1 <= encoder.weights[encoder.bit_ptr[b] : encoder.bit_ptr[b + 1]].sum() <= MAX_SUM
    assert (
        encoder.scores(X.astype(np.float32)[::-1]) == encoder.scores(np.asfortranarray(X.astype(np.float32)))[::-1]
    ).all()


def test_voting_trees_of_another_binning_are_refused():
    encoder = voting_trees()[0]
    with pytest.raises(ValueError, match="must have the same 'low' and 'scale'"):
        Trees.concatenate([encoder, replace(encoder, low=encoder.low + 1)])


def test_additive_trees_of_another_binning_are_refused():
    (first, second, _), _ = additive_trees()
    with pytest.raises(ValueError, match="LeafTrees encoders must have the same 'low' and 'scale'"):
        type(first).concatenate([first, replace(second, low=second.low + 1)])


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
def test_hostile_tables_of_voting_trees_are_refused(name, change, message):
    arrays = voting_trees()[0].arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=message):
        Trees.from_arrays(arrays)


def test_pointers_that_wrap_allocate_nothing():
    """Four trees with three nodes in total; with the tree sizes computed in int32, 16 GiB would be allocated."""
    arrays = voting_trees()[0].arrays()
    arrays |= {name: arrays[name][:3] for name in ("feature", "threshold", "child", "value")}
    arrays |= {"bit_ptr": np.array([0, 4], np.int32), "weights": np.ones(4, np.int16)}
    arrays["tree_ptr"] = np.array([*POINTERS_THAT_WRAP, 3], np.int32)
    with pytest.raises(ValueError, match="'tree_ptr' must increase strictly from 0 to 3"):
        Trees.from_arrays(arrays)


HOSTILE = [
    ("unit", lambda a: a * 0, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: -a, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: a * 0 + 1e305, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: a[:2], "'unit' must be 3 positive numbers"),
    ("bit_ptr", lambda a: a[::-1].copy(), "'bit_ptr' must increase strictly from 0 to 12"),
    ("bit_ptr", lambda a: np.array([*POINTERS_THAT_WRAP, 12], np.int32), "'bit_ptr' must increase strictly"),
    ("feature", lambda a: a + np.uint32(6), "'feature' must be below the number of features, 6"),
    ("child", lambda a: np.where(a > 0, a + 1000, a).astype(np.uint32), "'child' must point to two later"),
    ("child", lambda a: np.where(a > 0, 1, a).astype(np.uint32), "'child' must point to two later"),
    ("child", lambda a: np.where(a > 0, 2**32 - 1, a).astype(np.uint32), "'child' must point to two later"),
    ("value", lambda a: np.ones_like(a), "'value' must be 0 in inner nodes"),
    ("tree_ptr", lambda a: a[:-1], "'tree_ptr' must increase strictly"),
    ("tree_ptr", lambda a: np.array([*POINTERS_THAT_WRAP, len(a)], np.int32), "'tree_ptr' must increase"),
]


@pytest.mark.parametrize(("name", "change", "message"), HOSTILE)
def test_hostile_tables_of_additive_trees_are_refused(name, change, message):
    arrays = LeafTrees.concatenate(additive_trees()[0]).arrays()
    LeafTrees.from_arrays(arrays)
    with pytest.raises(ValueError, match=message):
        LeafTrees.from_arrays(arrays | {name: change(arrays[name])})


def test_leaves_whose_sum_could_overflow_are_refused():
    """258 trees with leaves of 127 reach 32,766; one more tree could reach beyond 16 bits."""
    encoder = additive_trees()[0][0]
    largest = replace(encoder, value=np.where(encoder.child > 0, 0, 127).astype(np.int8))
    joined = type(encoder).concatenate([largest] * 65)  # 4 trees each
    for n_trees, fits in ((258, True), (259, False)):
        pointers = np.array([0, n_trees, 260], np.int32)
        changed = replace(joined, bit_ptr=pointers, unit=np.ones(2))
        if fits:
            changed.check()
            assert changed.scores(np.random.default_rng(0).random((70, 6)))[0, 0] == 258 * 127
        else:
            with pytest.raises(ValueError, match="must sum to at most 32767 per bit"):
                changed.check()


def test_a_tree_of_unrepresentable_size_allocates_nothing():
    arrays = LeafTrees.concatenate(additive_trees()[0]).arrays()
    arrays |= {name: arrays[name][:3] for name in ("feature", "threshold", "child", "value")}
    arrays |= {"bit_ptr": np.array([0, 4], np.int32), "unit": np.ones(1)}
    arrays["tree_ptr"] = np.array([*POINTERS_THAT_WRAP, 3], np.int32)
    with pytest.raises(ValueError, match="'tree_ptr' must increase strictly from 0 to 3"):
        LeafTrees.from_arrays(arrays)
