"""Signs of eigenvectors, whitening and ridge regression, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove.numerics.eigen import inverse_root, whitening, with_fixed_signs
from hashgrove.numerics.principal import principal_directions
from hashgrove.numerics.ridge import Ridge


def covariance(n, rank, seed=0):
    """A positive semi-definite matrix (n, n) of this rank."""
    rows = np.random.default_rng(seed).normal(size=(rank, n))
    return rows.T @ rows


def test_signs_do_not_depend_on_the_sign_that_came_in():
    vectors = np.random.default_rng(0).normal(size=(6, 9))
    turned = with_fixed_signs(vectors)
    np.testing.assert_array_equal(np.abs(turned), np.abs(vectors))
    np.testing.assert_array_equal(with_fixed_signs(-vectors), turned)
    for row, expected in zip(vectors, turned, strict=True):
        assert max(expected, key=abs) > 0
        np.testing.assert_array_equal(with_fixed_signs(row), expected)
    np.testing.assert_array_equal(with_fixed_signs(np.zeros((1, 3))), np.zeros((1, 3)))


@pytest.mark.parametrize("driver", ["evd", "evr"])
@pytest.mark.parametrize("rank", [1, 4, 7])
def test_whitening_makes_the_matrix_the_identity(rank, driver):
    matrix = covariance(7, rank)
    W = whitening(matrix, floor=1e-8, driver=driver)
    assert W.shape == (7, rank)
    np.testing.assert_allclose(W.T @ matrix @ W, np.eye(rank), atol=1e-8)


def test_whitening_keeps_one_direction_of_a_matrix_of_zeros():
    assert whitening(np.zeros((3, 3)), floor=1e-8).shape == (3, 1)


@pytest.mark.parametrize("rank", [2, 5])
def test_inverse_root_is_the_root_of_the_pseudo_inverse(rank):
    matrix = covariance(5, rank)
    root = inverse_root(matrix, floor=1e-8)
    np.testing.assert_allclose(root, root.T, atol=1e-10)
    np.testing.assert_allclose(root @ root, np.linalg.pinv(matrix, rcond=1e-8), atol=1e-8)
    np.testing.assert_array_equal(inverse_root(1e-9 * matrix, least=1.0), np.zeros((5, 5)))


def test_inverse_root_of_a_shifted_matrix_keeps_all_directions():
    matrix = covariance(5, 2)
    root = inverse_root(matrix, added=0.1)
    np.testing.assert_allclose(root @ (matrix + 0.1 * np.eye(5)) @ root, np.eye(5), atol=1e-10)


def test_principal_directions_are_those_of_the_singular_value_decomposition(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(1, 7) + 100
    monkeypatch.setattr("hashgrove.numerics.principal.ROWS_PER_CHUNK", 7)
    mean, directions = principal_directions(X, 4)
    np.testing.assert_allclose(mean, X.mean(axis=0))
    expected = np.linalg.svd(X - X.mean(axis=0))[2][:4]
    np.testing.assert_allclose(directions, with_fixed_signs(expected), atol=1e-9)


def test_ridge_regression_is_least_squares_on_rows_with_the_penalty_added():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 5)), rng.normal(size=(30, 3))
    ridge = Ridge(X, 2.5)
    for targets in (Y, Y[:, :1]):
        padded = np.vstack([X, np.sqrt(2.5) * np.eye(5)]), np.vstack([targets, np.zeros((5, targets.shape[1]))])
        np.testing.assert_allclose(ridge.solve(targets), np.linalg.lstsq(*padded, rcond=None)[0], atol=1e-12)
