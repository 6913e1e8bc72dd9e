"""Calibration: temperature, sigmoids and logistic regression against the optimum that others find."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import naive
from hashgrove.numerics.calibration import LOG_TEMPERATURES, fit_logistic, fit_sigmoids, fit_temperature


def classes_and_scores(n=300, n_classes=5, *, sharpness=1.0, seed=0):
    """Scores, and labels that were drawn with the probabilities softmax(sharpness x scores)."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_classes))
    odds = np.exp(sharpness * scores)
    drawn = [rng.choice(n_classes, p=row / row.sum()) for row in odds]
    return scores, np.eye(n_classes)[drawn]


class TestTemperature:
    @pytest.mark.parametrize("sharpness", [0.3, 1.0, 6.0])
    def test_is_where_the_cross_entropy_is_least(self, sharpness):
        scores, labels = classes_and_scores(sharpness=sharpness)
        found = fit_temperature(scores, labels)
        exact = minimize(lambda log: naive.cross_entropy(np.exp(log[0]) * scores, labels), [0.0], tol=1e-10).x[0]
        assert np.log(found) == pytest.approx(exact, abs=1e-3)

    def test_finds_the_temperature_that_the_labels_were_drawn_with(self):
        assert fit_temperature(*classes_and_scores(5000, sharpness=3.0)) == pytest.approx(3.0, rel=0.1)

    def test_scores_that_are_always_right_are_certain_and_always_wrong_ones_say_nothing(self):
        labels = np.eye(3)[np.arange(9) % 3]
        lowest, highest = np.exp(LOG_TEMPERATURES)
        assert 20 < fit_temperature(labels, labels) <= highest
        assert fit_temperature(-labels, labels) == pytest.approx(lowest, rel=0.01)

    def test_rows_count_by_their_weights(self):
        scores, labels = classes_and_scores()
        times = np.random.default_rng(1).integers(0, 4, len(scores))
        repeated = fit_temperature(np.repeat(scores, times, axis=0), np.repeat(labels, times, axis=0))
        assert fit_temperature(scores, labels, times.astype(float)) == pytest.approx(repeated, rel=1e-3)

    def test_of_large_scores_is_finite(self):
        scores, labels = classes_and_scores()
        assert np.isfinite(fit_temperature(1e6 * scores, labels))


def platt_targets(labels):
    n = labels.sum()
    return np.where(labels > 0, (n + 1) / (n + 2), 1 / (len(labels) - n + 2))


class TestSigmoids:
    def test_every_column_is_at_its_optimum(self):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(200, 4)) * [1, 0.01, 100, 1] + [0, 3, -50, 0]
        labels = (rng.random((200, 4)) < expit((scores - scores.mean(axis=0)) / scores.std(axis=0))).astype(float)
        labels[:, 3] = np.arange(200) == 7  # a tag that one row has
        slopes, shifts = fit_sigmoids(scores, labels)
        for j in range(4):
            targets = platt_targets(labels[:, j])
            spread = scores[:, j].std()

            def loss(c, column=scores[:, j], targets=targets, spread=spread):
                return naive.logistic_loss((column - column.mean()) / spread * c[0] + c[1], targets)

            best = minimize(loss, np.zeros(2), tol=1e-12)
            found = naive.logistic_loss(slopes[j] * scores[:, j] + shifts[j], targets)
            assert found == pytest.approx(best.fun, abs=1e-6)
            assert slopes[j] == pytest.approx(best.x[0] / spread, rel=1e-2)

    def test_a_column_that_a_threshold_separates_has_a_finite_slope(self):
        scores = np.linspace(-1, 1, 20)[:, None]
        labels = (scores > 0.85).astype(float)
        slopes, shifts = fit_sigmoids(scores, labels)
        p = expit(slopes * scores + shifts)
        assert 0 < slopes[0] < 1000
        assert p[labels > 0].min() > p[labels == 0].max()
        assert p.sum() == pytest.approx(platt_targets(labels[:, 0]).sum(), rel=1e-3), "calibrated"

    def test_rows_count_by_their_weights(self):
        rng = np.random.default_rng(0)
        scores, times = rng.normal(size=(100, 2)), rng.integers(0, 4, 100)
        labels = (rng.random((100, 2)) < expit(2 * scores - 1)).astype(float)
        repeated = fit_sigmoids(np.repeat(scores, times, axis=0), np.repeat(labels, times, axis=0))
        np.testing.assert_allclose(fit_sigmoids(scores, labels, times.astype(float)), repeated, rtol=1e-4)

    def test_scores_the_wrong_way_round_have_a_negative_slope(self):
        labels = (np.arange(30) % 3 == 0).astype(float)[:, None]
        assert fit_sigmoids(-labels, labels)[0] < 0

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_a_tag_that_none_or_all_have_gets_that_probability(self, value):
        scores = np.random.default_rng(0).normal(size=(50, 1))
        slopes, shifts = fit_sigmoids(scores, np.full((50, 1), value))
        np.testing.assert_allclose(expit(slopes * scores + shifts), (51 if value else 1) / 52, rtol=1e-3)

    def test_a_score_that_says_nothing_gives_the_share_of_the_tag(self):
        labels = (np.arange(40) % 4 == 0).astype(float)[:, None]
        slopes, shifts = fit_sigmoids(np.full((40, 1), 3.0), labels)
        np.testing.assert_allclose(expit(3 * slopes + shifts), platt_targets(labels[:, 0]).mean(), rtol=1e-4)


def noisy_bits(n=150, *, seed=0):
    rng = np.random.default_rng(seed)
    columns = np.hstack([rng.normal(size=(n, 2)) * [1, 50], np.ones((n, 1))])
    return columns, (rng.random(n) < expit(columns @ [1.5, -0.02, 0.4])).astype(float)


class TestLogistic:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_equals_scikit_learn_without_a_penalty(self, weighted):
        columns, labels = noisy_bits()
        weights = np.random.default_rng(1).uniform(0, 3, len(labels)) if weighted else None
        found = fit_logistic(columns, labels, weights)
        peer = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000)
        scale = columns.std(axis=0) + (columns.std(axis=0) == 0)
        expected = peer.fit(columns / scale, labels, sample_weight=weights).coef_[0] / scale
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)

    def test_weights_count_like_repeated_rows(self):
        columns, labels = noisy_bits()
        times = np.random.default_rng(2).integers(0, 4, len(labels))
        repeated = fit_logistic(np.repeat(columns, times, axis=0), np.repeat(labels, times))
        np.testing.assert_allclose(fit_logistic(columns, labels, times.astype(float)), repeated, rtol=1e-4)

    def test_the_gradient_is_zero_for_targets_between_0_and_1(self):
        columns, _ = noisy_bits()
        targets = np.random.default_rng(3).random(len(columns))
        c = fit_logistic(columns, targets)
        gradient = naive.gradient(lambda c: naive.logistic_loss(columns @ c, targets), c)
        assert np.abs(gradient).max() < 1e-4

    def test_separable_rows_give_a_finite_result_on_the_right_side(self):
        columns = np.stack([np.linspace(-1, 1, 20), np.ones(20)], axis=1)
        labels = (columns[:, 0] > 0).astype(float)
        c = fit_logistic(columns, labels)
        assert np.isfinite(c).all()
        assert ((columns @ c > 0) == (labels > 0)).all()

    def test_columns_that_depend_on_each_other(self):
        columns, labels = noisy_bits()
        doubled = np.hstack([columns, columns[:, :1], np.zeros((len(columns), 1))])
        c = fit_logistic(doubled, labels)
        np.testing.assert_allclose(doubled @ c, columns @ fit_logistic(columns, labels), rtol=1e-3, atol=1e-3)
        assert c[0] == pytest.approx(c[3], rel=1e-3)

    def test_rows_of_weight_zero_do_not_count(self):
        columns, labels = noisy_bits()
        weights = (np.arange(len(labels)) % 2).astype(float)
        np.testing.assert_allclose(
            fit_logistic(columns, labels, weights), fit_logistic(columns[1::2], labels[1::2]), rtol=1e-3, atol=1e-4
        )
