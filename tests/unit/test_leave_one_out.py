"""Leave-one-out ridge regression: the closed form against really leaving each row out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import naive
from hashgrove.numerics import leave_one_out
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge

SHAPES = {"tall": (40, 6), "wide": (12, 30), "square": (9, 9), "one column": (15, 1)}


def problem(shape, *, seed=0, n_targets=3):
    """Rows far from the origin, which an intercept must take care of, and targets that depend on them in part."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=shape) * rng.uniform(0.2, 3, size=shape[1]) + 5
    targets = X @ rng.normal(size=(shape[1], n_targets)) + rng.normal(size=(shape[0], n_targets)) - 7
    return X, targets


def sample_weights(kind, n):
    rng = np.random.default_rng(3)
    return {
        "none": None,
        "any": rng.uniform(0.1, 4, size=n),
        "with zeros": np.where(np.arange(n) % 3 == 1, 0.0, rng.uniform(0.5, 2, size=n)),
    }[kind]


@pytest.mark.parametrize("penalty", [1e-3, 0.5, 100.0])
@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_predictions_are_those_of_models_without_the_row(shape, kind, penalty):
    X, targets = problem(shape)
    weights = sample_weights(kind, len(X))
    found = LeaveOneOutRidge(X, weights).solve(targets, penalty)
    expected = naive.left_out_predictions(X, targets, weights=weights, penalty=penalty)
    np.testing.assert_allclose(found.left_out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_model_of_all_rows_is_that_of_scikit_learn(shape, kind):
    X, targets = problem(shape)
    weights = sample_weights(kind, len(X))
    ridge = LeaveOneOutRidge(X, weights)
    found = ridge.solve(targets, 0.7)
    share = None if weights is None else weights * len(X) / weights.sum()
    expected = Ridge(alpha=0.7).fit(X, targets, sample_weight=share)
    np.testing.assert_allclose(found.weights, expected.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.bias, expected.intercept_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ridge.fitted(targets, 0.7), expected.predict(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_row_of_weight_zero_changes_nothing(shape):
    X, targets = problem(shape)
    weights = sample_weights("with zeros", len(X))
    other = targets.copy()
    other[weights == 0] += 1000
    one, two = (LeaveOneOutRidge(X, weights).solve(values, 0.3) for values in (targets, other))
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.left_out, two.left_out, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rows_of_float32(shape):
    X, targets = problem(shape)
    X = X - X.mean(axis=0)
    exact, found = (LeaveOneOutRidge(rows).solve(targets, 1.0) for rows in (X, X.astype(np.float32)))
    for one, other in zip(exact, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)


def test_rows_in_pieces_give_the_same(monkeypatch):
    X, targets = problem((40, 6))
    weights = sample_weights("any", 40)
    whole = LeaveOneOutRidge(X, weights).solve(targets, 0.2)
    monkeypatch.setattr(leave_one_out, "ROWS_PER_CHUNK", 7)
    pieces = LeaveOneOutRidge(X, weights).solve(targets, 0.2)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", [(40, 6), (12, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("noise", [0.01, 30.0])
def test_the_best_penalty_is_the_best_of_all(shape, kind, noise):
    X, targets = problem(shape)
    targets = targets + np.random.default_rng(5).normal(size=targets.shape) * noise
    weights = sample_weights(kind, len(X))
    share = np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum()
    centred = (X - share @ X) * np.sqrt(share * len(X))[:, None]
    penalties = leave_one_out.PENALTIES * np.square(centred).sum() / min(X.shape)  # in units of the mean eigenvalue
    errors = [
        share @ np.square(naive.left_out_predictions(X, targets, weights=weights, penalty=p) - targets).sum(axis=1)
        for p in penalties
    ]
    found = LeaveOneOutRidge(X, weights).best_penalty(targets)
    assert found == pytest.approx(penalties[int(np.argmin(errors))])


def test_noise_asks_for_a_larger_penalty_than_a_linear_function():
    X, _ = problem((40, 6))
    noise = np.random.default_rng(1).normal(size=(40, 1))
    ridge = LeaveOneOutRidge(X)
    assert ridge.best_penalty(noise) > ridge.best_penalty(X @ np.ones((6, 1)))


def test_solving_again_with_another_penalty_is_not_mixed_up():
    """The leverages of the last penalty are kept."""
    X, targets = problem((40, 6))
    ridge = LeaveOneOutRidge(X)
    for penalty in (1.0, 50.0, 1.0):
        expected = naive.left_out_predictions(X, targets, weights=None, penalty=penalty)
        np.testing.assert_allclose(ridge.solve(targets, penalty).left_out, expected, rtol=1e-7, atol=1e-7)


def test_rows_that_are_all_the_same_predict_the_mean_of_the_others():
    X, targets = np.full((8, 3), 2.0), np.arange(8.0)[:, None]
    ridge = LeaveOneOutRidge(X)
    found = ridge.solve(targets, ridge.best_penalty(targets))
    np.testing.assert_allclose(found.left_out[:, 0], (targets.sum() - targets[:, 0]) / 7)


def test_a_row_that_only_it_can_explain_has_a_finite_prediction():
    X = np.zeros((5, 4))
    X[0, 0] = 1e6
    found = LeaveOneOutRidge(X).solve(np.array([[1.0], [0.0], [0.0], [0.0], [0.0]]), 1e-9)
    assert np.isfinite(found.left_out).all()
