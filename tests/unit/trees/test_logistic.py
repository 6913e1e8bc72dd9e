"""Logistic boosting with Newton leaves, compared with a naive version; and unusual data."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove import BoostedTrees
from hashgrove.trees.logistic import MASS, _gradients, _trim
from hashgrove.trees.prediction import MAX_SUM
from hashgrove.trees.splitting import unpack
from tree_makers import problem


def test_gradients_against_the_formula():
    rng = np.random.default_rng(0)
    n = 3000  # more than a block
    y, F = rng.choice([-1, 1], n).astype(np.int8), (rng.normal(size=n) * 4).astype(np.float32)
    w = rng.lognormal(size=n).astype(np.float32)
    g, half = np.empty(n, np.float32), np.empty(n, np.float32)
    _gradients(y, w, F, g, half)
    p = 1 / (1 + np.exp(2 * y * F.astype(np.float64)))
    np.testing.assert_allclose(g, w * p, rtol=1e-5)
    np.testing.assert_allclose(half, w * p * (1 - p), rtol=1e-5)


def test_gradients_of_extreme_margins_are_finite():
    F = np.array([0, 1e-30, 1e5, -1e5, 3e38, -3e38], np.float32)
    g, half = np.empty(6, np.float32), np.empty(6, np.float32)
    _gradients(np.ones(6, np.int8), np.ones(6, np.float32), F, g, half)
    assert g[0] == 0.5
    assert half[0] == 0.25
    assert (g > 0).all()
    assert (g <= 1).all()
    assert (half > 0).all()
    assert (half <= g).all()


@pytest.mark.parametrize("trimming", [0.0, 0.1, 0.5])
def test_packed_values(trimming):
    rng = np.random.default_rng(0)
    g = rng.lognormal(sigma=2, size=500).astype(np.float32)
    half = (g * rng.random(500)).astype(np.float32)
    y = rng.choice([-1, 1], 500).astype(np.int8)
    index, values = np.empty(501, np.uint32), np.empty(501, np.int64)
    scale, kept = _trim(y, g, g.view(np.int32), half, trimming, index, values)
    index, values = index[:kept], values[:kept]
    assert index.tolist() == (naive.trimmed(g, trimming) if trimming else list(range(500)))
    gradients, halves = np.transpose([unpack(value) for value in values])
    np.testing.assert_allclose(gradients, y[index] * g[index] * scale, atol=0.51)
    np.testing.assert_allclose(halves, half[index] * scale, atol=0.51)
    assert np.abs(gradients).sum() == pytest.approx(MASS, rel=1e-5)
    assert unpack(values.sum()) == (gradients.sum(), halves.sum())


@pytest.mark.parametrize("n_thresholds", [256, 32])
@pytest.mark.parametrize("trimming", [0.0, 0.1])
def test_booster_against_naive_boosting(trimming, n_thresholds):
    X, z, rng = problem(5)
    weights = rng.lognormal(size=len(z))
    rule = {"regularisation": 1.0, "min_hessian": 0.5, "n_thresholds": n_thresholds}
    learner = BoostedTrees(leaves="newton", n_trees=6, max_depth=2, features_per_node=None,
                           trimming=trimming, learning_rate=0.4, **rule)  # fmt: skip
    prepared = learner.prepare(X, rng)
    encoder, bit = learner.learn(prepared, z, weights, rng)
    margin = naive.logistic_boosting(
        prepared.binned.bins, z.astype(int), weights, n_trees=6, depth=2, trimming=trimming, rate=0.4, **rule
    )
    rounding = 6 * encoder.unit[0] / 2
    np.testing.assert_allclose(encoder.scores(X)[:, 0], margin, atol=rounding + 1e-4)
    decided = np.abs(margin) > rounding + 1e-4
    assert decided.mean() > 0.8
    assert (bit == np.sign(margin))[decided].all()


def test_models_are_the_same_at_any_number_of_threads():
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 16))
    z = np.where(X[:, :4].sum(axis=1) + rng.normal(size=20_000) > 2, 1, -1).astype(np.int8)
    learner = BoostedTrees(leaves="newton", n_trees=4)
    found = []
    for n_jobs in (1, 2, 5):
        data = learner.prepare(X, rng, n_jobs=n_jobs)
        found.append(learner.learn(data, z, None, np.random.default_rng(0))[0].arrays())
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(array, other[name])


def test_sums_of_many_large_leaves_fit_into_16_bits():
    """Without regularisation and with a large rate, steps are as large as they may be, and there are many."""
    X, z, rng = problem(0, n=60)
    learner = BoostedTrees(leaves="newton", n_trees=4096, max_depth=1, learning_rate=9.0,
                           regularisation=0.0, min_hessian=0.0, features_per_node=1)  # fmt: skip
    encoder, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
    encoder.check()
    assert np.abs(encoder.value.astype(int)).max() > 5
    sums = encoder.scores(X)[:, 0] / encoder.unit[0]
    assert np.abs(sums).max() <= MAX_SUM
    np.testing.assert_array_equal(np.where(sums > 0, 1, -1), bit)


class TestUnusualData:
    def learn(self, X, z, weights=None, **parameters):
        rng = np.random.default_rng(0)
        learner = BoostedTrees(leaves="newton", **{"n_trees": 20, **parameters})
        encoder, bit = learner.learn(learner.prepare(X, rng), np.asarray(z, np.int8), weights, rng)
        encoder.check()
        np.testing.assert_array_equal(np.where(encoder.scores(X)[:, 0] > 0, 1, -1), bit)
        return encoder, bit

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_one_class(self, sign):
        encoder, bit = self.learn(problem(0)[0], np.full(80, sign))
        assert (bit == sign).all()
        assert len(encoder.bit_ptr) == 2
        assert (np.sign(encoder.scores(np.random.default_rng(1).random((9, 4)))) == sign).all()

    def test_constant_features_give_the_heavier_class(self):
        _, bit = self.learn(np.ones((40, 2)), [1] * 15 + [-1] * 25, np.array([2.0] * 15 + [1.0] * 25))
        assert (bit == 1).all()

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_rows(self, n):
        X = np.arange(n, dtype=float)[:, None]
        _, bit = self.learn(X, [1, -1, 1][:n], min_hessian=0.0, regularisation=0.1, max_depth=3)
        assert bit.tolist() == [1, -1, 1][:n]

    def test_equal_features(self):
        X, z, _ = problem(0)
        encoder, bit = self.learn(np.repeat(X[:, :1], 40, axis=1), z)
        alone, same = self.learn(X[:, :1], z)
        np.testing.assert_array_equal(bit, same)
        assert encoder.unit == alone.unit

    @pytest.mark.parametrize("weights", [np.logspace(-30, 30, 80), np.zeros(80), np.eye(80)[3], np.full(80, 1e308)])
    def test_extreme_weights(self, weights):
        X, z, _ = problem(0)
        encoder, bit = self.learn(X, z, weights)
        assert np.isfinite(encoder.scores(X)).all()
        assert bit[np.argmax(weights)] == z[np.argmax(weights)]

    def test_heavy_examples_are_fitted_better(self):
        rng = np.random.default_rng(0)
        X, z = rng.random((400, 1)), rng.choice([-1, 1], 400)  # noise, which trees can only memorise
        heavy = rng.random(400) < 0.2
        _, bit = self.learn(X, z, np.where(heavy, 50.0, 0.1), n_trees=5, max_depth=5, min_hessian=0.0)
        assert (bit == z)[heavy].mean() > (bit == z)[~heavy].mean() + 0.1

    def test_scale_of_weights_does_not_matter(self):
        X, z, rng = problem(0)
        weights = rng.integers(1, 9, 80).astype(float)
        a, b = (self.learn(X, z, w)[0].arrays() for w in (weights, weights * 1024))
        for name, array in a.items():
            np.testing.assert_array_equal(array, b[name])

    def test_early_stopping_at_zero_error(self):
        X = np.random.default_rng(0).random((300, 2)).round(1)
        z = np.where(X[:, 0] > 0.55, 1, -1)
        for early_stopping, trees in ((True, 1), (False, 20)):
            encoder, bit = self.learn(X, z, early_stopping=early_stopping)
            assert (bit == z).all()
            assert encoder.bit_ptr[-1] == trees

    def test_learning_rate_depends_on_the_number_of_rows(self, monkeypatch):
        X, z, _ = problem(0)
        small = self.learn(X, z, learning_rate=0.3)[0]
        np.testing.assert_array_equal(self.learn(X, z)[0].unit, small.unit)
        monkeypatch.setattr("hashgrove.functions.boosting.MANY_ROWS", 80)
        large = self.learn(X, z, learning_rate=0.7)[0]
        np.testing.assert_array_equal(self.learn(X, z)[0].unit, large.unit)
        assert BoostedTrees(start="linear")._rate(80) == 0.5
