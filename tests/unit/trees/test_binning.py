"""Features in 256 bins, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import BoostedTrees
from hashgrove.trees.binning import bin_features, fit_bins


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_bins_are_linear(dtype):
    rng = np.random.default_rng(0)
    X = (rng.random((300, 3)) * 200).astype(dtype)
    X[:, 1] = 7  # constant
    low, scale = fit_bins(X)
    bins = bin_features(X, low, scale, n_jobs=2)
    x = X.astype(float)
    span = np.ptp(x, axis=0)
    share = np.divide(x - (x.min(axis=0) - span / 1000), span * 1.002, out=np.zeros_like(x), where=span > 0)
    assert (np.abs(bins.T - share * 255) <= 0.5 + 1e-6).all()
    assert bins[0].max() == 255
    assert bins[0].min() == 0
    outside = np.array([[-1e30, 5, 1e30]]).astype(np.float64)
    assert bin_features(outside, low, scale)[:, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("d", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("n", [1, 63, 64, 130])
def test_bins_of_any_shape_against_numpy(dtype, d, n):
    X = (np.random.default_rng(d * n).random((n, d)) * 300 - 20).clip(0, 255).astype(dtype)
    low, scale = np.linspace(-3, 40, d), np.linspace(0, 3, d)
    expected = ((X.astype(float) - low) * scale + 0.5).clip(0, 255).astype(np.uint8)
    np.testing.assert_array_equal(bin_features(X, low, scale), expected.T)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "feature"), [(0, 0), (63, 15), (64, 16), (129, 19)])
def test_a_value_that_is_not_finite_is_refused_at_any_position(dtype, value, row, feature):
    rng = np.random.default_rng(0)
    X = rng.random((130, 20)).astype(dtype)
    learner = BoostedTrees.paper(n_trees=3)
    encoder, _ = learner.learn(learner.prepare(X, rng), np.where(X[:, 0] > 0.5, 1, -1).astype(np.int8), None, rng)
    encoder.encode(X)
    X[row, feature] = value
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        encoder.encode(X)


def test_bins_of_extreme_ranges_are_finite():
    X = np.array([[-1e308, 1e-320, 5.0], [1e308, 0.0, 5.0]])
    assert np.isfinite(fit_bins(X)).all()
