"""Leave-one-out ridge regression: the closed form against really leaving each row out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

import naive
from hashgrove.numerics import leave_one_out, rows
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge
from hashgrove.numerics.rows import LARGEST_COUNT, LEVELS, Rows

SHAPES = {"tall": (40, 6), "wide": (12, 30), "square": (9, 9), "one column": (15, 1)}


UNIT = 2.0**-10  # rows are multiples of it, so that rounding changes nothing


def problem(shape, *, seed=0, n_targets=3):
    """Rows far from the origin, which an intercept must take care of, and targets that depend on them in part."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=shape) * rng.uniform(0.2, 3, size=shape[1]) + 5
    targets = X @ rng.normal(size=(shape[1], n_targets)) + rng.normal(size=(shape[0], n_targets)) - 7
    return np.rint(X / UNIT) * UNIT, np.rint(5 * targets).astype(np.int64)


def ridge_of(X, weights=None, **options):
    return LeaveOneOutRidge(Rows(X), weights, largest=LEVELS * UNIT, **options)


def left_out_of(ridge, targets, penalty):
    return ridge.left_out(ridge.solve(targets, penalty), targets)


def sample_weights(kind, n):
    rng = np.random.default_rng(3)
    return {
        "none": None,
        "any": np.append(LARGEST_COUNT, rng.integers(200, LARGEST_COUNT, size=n - 1)) / 2000,
        "with zeros": np.where(np.arange(n) % 3 == 1, 0.0, LARGEST_COUNT >> rng.integers(3, size=n)),
    }[kind]


@pytest.mark.parametrize("penalty", [1e-3, 0.5, 100.0])
@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_predictions_are_those_of_models_without_the_row(shape, kind, penalty):
    X, targets = problem(shape)
    weights = sample_weights(kind, len(X))
    found = left_out_of(ridge_of(X, weights), targets, penalty)
    expected = naive.left_out_predictions(X, targets, weights=weights, penalty=penalty)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_model_of_all_rows_is_that_of_scikit_learn(shape, kind):
    X, targets = problem(shape)
    weights = sample_weights(kind, len(X))
    found = ridge_of(X, weights).solve(targets, 0.7)
    share = None if weights is None else weights * len(X) / weights.sum()
    expected = Ridge(alpha=0.7).fit(X, targets, sample_weight=share)
    np.testing.assert_allclose(found.weights, expected.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.bias, expected.intercept_, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_row_of_weight_zero_changes_nothing(shape):
    X, targets = problem(shape)
    weights = sample_weights("with zeros", len(X))
    other = targets.copy()
    other[weights == 0] += 1000
    ridge = ridge_of(X, weights)
    one, two = (ridge.solve(values, 0.3) for values in (targets, other))
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ridge.left_out(one, targets), ridge.left_out(two, other), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rows_of_float32(shape):
    X, targets = problem(shape)
    exact, found = (left_out_of(ridge_of(x), targets, 1.0) for x in (X, X.astype(np.float32)))
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)


def test_rows_in_pieces_give_the_same(monkeypatch):
    X, targets = problem((40, 6))
    weights = sample_weights("any", 40)
    whole = left_out_of(ridge_of(X, weights), targets, 0.2)
    for name, value in {"ROWS_PER_CHUNK": 7, "WEIGHTED_ROWS": 3, "KEPT_VALUES": 0}.items():
        monkeypatch.setattr(rows, name, value)
    monkeypatch.setattr(leave_one_out, "ROWS_PER_CHUNK", 7)
    ridge = ridge_of(X, weights)
    np.testing.assert_allclose(left_out_of(ridge, targets, 0.2), whole, rtol=1e-9)
    assert ridge.best_penalty(targets) == ridge_of(X, weights).best_penalty(targets)


@pytest.mark.parametrize("n_targets", [1, 4])
def test_sparse_targets_are_those_of_a_dense_array(n_targets):
    for shape in SHAPES.values():
        X, _ = problem(shape)
        tags = np.random.default_rng(2).integers(2, size=(len(X), n_targets))
        ridge = ridge_of(X)
        dense, found = (left_out_of(ridge, given, 0.4) for given in (tags, sparse.csr_array(tags)))
        np.testing.assert_allclose(found, dense, rtol=1e-9, atol=1e-12)
        assert ridge.best_penalty(sparse.csr_array(tags)) == ridge.best_penalty(tags)


@pytest.mark.parametrize("shape", [(40, 6), (29, 40)], ids=["tall", "wide"])
def test_targets_one_by_one_are_the_same_to_the_last_bit(shape):
    X, targets = problem(shape, n_targets=21)
    ridge = ridge_of(X)
    penalties = ridge.best_penalties(targets)
    each = ridge.solve_each(targets, penalties)
    left_out = ridge.left_out_each(each, targets)
    for k, (found, penalty) in enumerate(zip(each, penalties, strict=True)):
        target = np.ascontiguousarray(targets[:, k : k + 1])
        assert penalty == ridge.best_penalty(target)
        alone = ridge.solve(target, penalty)
        np.testing.assert_array_equal(found.weights, alone.weights)
        np.testing.assert_array_equal(found.bias, alone.bias)
        np.testing.assert_array_equal(left_out[:, k : k + 1], ridge.left_out(alone, target))


@pytest.mark.parametrize("shape", [(6000, 48), (90, 100)], ids=["tall", "wide"])
def test_predictions_do_not_depend_on_what_was_solved_before_or_meanwhile(shape):
    """Threads that learn bits share the regression, and choose a penalty each."""
    X, targets = (part.astype(np.float32) for part in problem(shape))
    targets = targets.astype(np.int64)
    first, second = ridge_of(X), ridge_of(X)
    penalty = first.best_penalty(targets)
    model = first.solve(targets, penalty)
    found = first.left_out(model, targets)
    second.left_out(second.solve(targets, 2 * penalty), targets)
    np.testing.assert_array_equal(second.left_out(second.solve(targets, penalty), targets), found)
    first.left_out(first.solve(targets, 2 * penalty), targets)
    np.testing.assert_array_equal(first.left_out(model, targets), found)


def test_rows_that_are_not_learned_from_get_the_prediction_of_the_model():
    X, targets = problem((60, 5))
    learned = np.arange(0, 60, 2)
    ridge, alone = ridge_of(X, learned=learned), ridge_of(X[learned])
    penalty = ridge.best_penalty(targets)
    assert penalty == alone.best_penalty(targets[learned])
    model = ridge.solve(targets, penalty)
    found = ridge.left_out(model, targets)
    np.testing.assert_allclose(found[learned], left_out_of(alone, targets[learned], penalty), rtol=1e-8)
    np.testing.assert_allclose(found[1::2], X[1::2] @ model.weights.T + model.bias, rtol=1e-8)


@pytest.mark.parametrize("kind", ["none", "any", "with zeros"])
@pytest.mark.parametrize("shape", [(40, 6), (12, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("noise", [0.01, 30.0])
def test_the_best_penalty_is_the_best_of_all(shape, kind, noise):
    X, targets = problem(shape)
    targets = np.rint(targets + 5 * np.random.default_rng(5).normal(size=targets.shape) * noise).astype(np.int64)
    weights = sample_weights(kind, len(X))
    share = np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum()
    centred = (X - share @ X) * np.sqrt(share * len(X))[:, None]
    penalties = leave_one_out.PENALTIES * np.square(centred).sum() / min(X.shape)  # in units of the mean eigenvalue
    errors = [
        share @ np.square(naive.left_out_predictions(X, targets, weights=weights, penalty=p) - targets).sum(axis=1)
        for p in penalties
    ]
    found = ridge_of(X, weights).best_penalty(targets)
    assert found == pytest.approx(penalties[int(np.argmin(errors))])


def test_noise_asks_for_a_larger_penalty_than_a_linear_function():
    X, _ = problem((40, 6))
    noise = np.random.default_rng(1).integers(-9, 10, size=(40, 1))
    ridge = ridge_of(X)
    assert ridge.best_penalty(noise) > ridge.best_penalty(np.rint(X @ np.ones((6, 1))).astype(np.int64))


def test_solving_again_with_another_penalty_is_not_mixed_up():
    """The leverages of the last penalty are kept."""
    X, targets = problem((40, 6))
    ridge = ridge_of(X)
    for penalty in (1.0, 50.0, 1.0):
        expected = naive.left_out_predictions(X, targets, weights=None, penalty=penalty)
        np.testing.assert_allclose(left_out_of(ridge, targets, penalty), expected, rtol=1e-7, atol=1e-7)


def test_rows_that_are_all_the_same_predict_the_mean_of_the_others():
    X, targets = np.full((8, 3), 2.0), np.arange(8)[:, None]
    ridge = ridge_of(X)
    found = left_out_of(ridge, targets, ridge.best_penalty(targets))
    np.testing.assert_allclose(found[:, 0], (targets.sum() - targets[:, 0]) / 7)


def test_a_row_that_only_it_can_explain_has_a_finite_prediction():
    X = np.zeros((5, 4))
    X[0, 0] = 30.0
    assert np.isfinite(left_out_of(ridge_of(X), np.array([[1], [0], [0], [0], [0]]), 1e-9)).all()
