"""AdaBoost with sign leaves, compared with a naive version; and unusual data."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove import BoostedTrees
from hashgrove.trees.adaboost import _trim


@pytest.mark.parametrize("trimming", [0.0, 0.1, 0.5])
def test_trimming_keeps_the_heaviest(trimming):
    w = np.random.default_rng(0).lognormal(sigma=2, size=500).astype(np.float32)
    y = np.random.default_rng(1).choice([-1, 1], 500).astype(np.int8)
    index, signed = np.empty(501, np.uint32), np.empty(501, np.int32)
    kept = _trim(w, w.view(np.int32), y, trimming, index, signed)
    index, signed = index[:kept], signed[:kept]
    assert index.tolist() == (naive.trimmed(w, trimming) if trimming else list(range(500)))
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
    margin = naive.adaboost(prepared.binned.bins, z.astype(int), n_trees=8, depth=2, min_points=2, trimming=trimming)
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
