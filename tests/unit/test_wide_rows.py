"""Linear SVMs on thousands of features: products with rows that are not copied, and approximate Newton steps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import naive
from hashgrove.numerics import squared_hinge, wide_rows
from hashgrove.numerics.squared_hinge import SquaredHinge
from hashgrove.numerics.wide_rows import ConjugateSteps, WideRows


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(squared_hinge, "MAX_MATRIX", 0)
    monkeypatch.setattr(wide_rows, "ROWS_PER_CHUNK", 16)


def problem(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 3
    z = np.where(X[:, 0] + rng.normal(size=n) > 3, 1, -1)
    z[:2] = 1, -1
    return X, z


def range_of(X):
    """The least value of each feature, and its span; 1 if it is constant."""
    low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    return low, np.where(high == low, 1.0, high - low)


def operator(X, **settings):
    low, span = range_of(X)
    return WideRows(X, low=low, span=span, **settings), naive.scaled_rows(X, low, span)


def exact(X, z, C, *, scale=False):
    """The solution by exact steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(squared_hinge, "MAX_MATRIX", 5000)
        rows = SquaredHinge(X, scale=scale)
        assert not rows._is_wide
        return rows.solve(z, C=C, tol=1e-10)


@pytest.mark.parametrize("shape", [(1, 1), (16, 3), (17, 5), (50, 33), (300, 64)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
class TestProducts:
    def rows(self, shape, dtype):
        X = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        return operator(X)

    def test_with_weights(self, shape, dtype):
        rows, slow = self.rows(shape, dtype)
        w = np.random.default_rng(1).normal(size=shape[1] + 1)
        np.testing.assert_allclose(rows @ w, slow @ w, rtol=1e-9, atol=1e-9)

    def test_with_factors(self, shape, dtype):
        rows, slow = self.rows(shape, dtype)
        factors = np.random.default_rng(1).normal(size=shape[0])
        factors[::3] = 0
        np.testing.assert_allclose(rows.T @ factors, slow.T @ factors, rtol=1e-9, atol=1e-9)

    def test_curved(self, shape, dtype):
        rows, slow = self.rows(shape, dtype)
        w = np.random.default_rng(1).normal(size=shape[1] + 1)
        for chosen in (np.arange(shape[0]), np.arange(0, shape[0], 3), np.arange(0)):
            some = slow[chosen]
            np.testing.assert_allclose(rows.curved(chosen, w), some.T @ (some @ w), rtol=1e-9, atol=1e-8)

    def test_centred_gram(self, shape, dtype):
        rows, slow = self.rows(shape, dtype)
        gram, mean = rows.centred_gram()
        np.testing.assert_allclose(mean, slow[:, :-1].mean(axis=0), atol=1e-12)
        centred = slow[:, :-1] - mean
        np.testing.assert_allclose(np.tril(gram), np.tril(centred.T @ centred), rtol=1e-4, atol=1e-4)


def test_columns_far_from_zero_keep_their_digits():
    X = np.random.default_rng(0).normal(size=(60, 4)) + 1e9
    rows, _ = operator(X)
    centred = (X - X.mean(axis=0)) / rows.span
    np.testing.assert_allclose(np.tril(rows.centred_gram()[0]), np.tril(centred.T @ centred), rtol=1e-3, atol=1e-3)


def test_threads_do_not_matter():
    X, z = problem(300, 20)
    solutions = [SquaredHinge(X, n_jobs=n_jobs).solve(z, C=10.0) for n_jobs in (1, 2, 3)]
    for weights, intercept in solutions[1:]:
        np.testing.assert_array_equal(weights, solutions[0][0])
        assert intercept == solutions[0][1]


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_steps_solve_the_system(monkeypatch, share, C):
    monkeypatch.setattr(wide_rows, "ENOUGH", 1e-9)
    X, _ = problem(200, 12)
    rows, slow = operator(X)
    active = np.random.default_rng(1).random(200) < share
    right = np.random.default_rng(2).normal(size=13)
    found = ConjugateSteps(rows).solve(active, right, C)
    matrix = slow[active].T @ slow[active] + np.eye(13) / (2 * C)
    np.testing.assert_allclose(matrix @ found, right, atol=1e-6)


def test_the_preconditioner_makes_few_steps_enough():
    """Columns of very different size and a large mean would make conjugate gradients slow without it."""
    X, _ = problem(400, 60)
    X = X * np.logspace(0, 3, 60) + 1e3
    rows = WideRows(X, low=np.zeros(60), span=np.ones(60))
    active, right = np.arange(400) % 2 == 0, np.random.default_rng(2).normal(size=61)
    n_products = []
    rows.curved = lambda *given, curved=rows.curved: n_products.append(1) or curved(*given)
    ConjugateSteps(rows).solve(active, right, 1.0)
    assert 1 <= len(n_products) <= 20
    n_products.clear()
    ConjugateSteps(rows).solve(np.ones(400, bool), right, 1.0)
    assert len(n_products) <= 3  # the preconditioner is the matrix itself, but for rounding


class TestMinimum:
    @pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
    @pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
    def test_it_is_that_of_exact_steps(self, C, dtype):
        X, y = load_digits(return_X_y=True)
        X, z = X[:500].astype(dtype), np.where(y[:500] < 5, 1, -1)
        found, expected = SquaredHinge(X, scale=True).solve(z, C=C, tol=1e-9), exact(X, z, C, scale=True)
        np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
        assert found[1] == pytest.approx(expected[1], rel=1e-5)
        low, span = range_of(X)
        scaled = naive.scaled_rows(X, low, span)[:, :-1]
        values = [
            naive.squared_hinge(scaled, z, weights * span, intercept + weights @ low, C=C)
            for weights, intercept in (found, expected)
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-9)

    def test_what_was_solved_before_does_not_matter(self):
        X, z = problem(150, 30)
        shared = SquaredHinge(X)
        for bit, C in [(z, 100.0), (-np.roll(z, 3), 1.0), (z, 1.0), (z, 100.0)]:
            np.testing.assert_array_equal(shared.solve(bit, C=C)[0], SquaredHinge(X).solve(bit, C=C)[0])

    def test_rows_are_not_copied(self):
        X, z = problem(150, 30)
        rows = SquaredHinge(X)
        rows.solve(z)
        assert rows._wide.rows.X is X
        assert "rows" not in vars(rows)
