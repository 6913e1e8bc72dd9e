from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

import naive
from hashgrove.baselines import BASELINES, ITQ, LSH
from hashgrove.hasher import load

X, Y = load_digits(return_X_y=True)


@parametrize_with_checks([LSH(9, random_state=0), ITQ(1, random_state=0)])
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=sorted(BASELINES))
def baseline(request):
    return BASELINES[request.param]


def test_same_seed_same_codes(baseline):
    first, same, other = (baseline(32, random_state=seed).fit(X, Y).transform(X) for seed in (0, 0, 1))
    assert first.shape == (len(X), 4)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_types_of_features(baseline, dtype):
    codes = baseline(32, random_state=0).fit(X, Y).transform(X)
    other = baseline(32, random_state=0).fit(X.astype(dtype), Y).transform(X.astype(dtype))
    assert np.mean(codes == other) > 0.999


def test_save_and_load(baseline, tmp_path):
    hasher = baseline(19, random_state=0).fit(X, Y)
    hasher.save(tmp_path / "m.hashgrove")
    encoder = load(tmp_path / "m.hashgrove")
    np.testing.assert_array_equal(encoder.encode(X), hasher.transform(X))


@pytest.mark.parametrize("n_bits", [0, -1, 2.5, "8", None])
def test_number_of_bits_is_checked(baseline, n_bits):
    with pytest.raises(ValueError, match="The 'n_bits' parameter must be an integer from 1 to 65535"):
        baseline(n_bits).fit(X, Y)


@pytest.mark.parametrize("baseline", [LSH, ITQ])
def test_labels_are_ignored(baseline):
    np.testing.assert_array_equal(
        baseline(16, random_state=0).fit(X, Y).transform(X), baseline(16, random_state=0).fit(X).transform(X)
    )


def test_itq_beats_lsh():
    train, test = np.arange(0, len(X), 2), np.arange(1, len(X), 2)
    scores = {
        name: np.mean([make(32, random_state=seed).fit(X[train]).score(X[test], Y[test]) for seed in range(3)])
        for name, make in {"itq": ITQ, "lsh": LSH}.items()
    }
    assert scores["itq"] > scores["lsh"] + 0.05, scores


class TestLSH:
    def test_hyperplanes_pass_through_the_mean(self):
        encoder = LSH(16, random_state=0).fit(X + 100).encoder_
        np.testing.assert_allclose(encoder.scores((X + 100).mean(axis=0)[None]), 0, atol=1e-9)

    def test_distance_is_the_angle(self):
        points = np.array([[1.0, 0.0], [np.cos(1.0), np.sin(1.0)]])
        hasher = LSH(20_000, random_state=0).fit(np.concatenate([points, -points]))
        bits = hasher.decision_function(points) > 0
        assert np.mean(bits[0] != bits[1]) == pytest.approx(1.0 / np.pi, abs=0.02)


class TestITQ:
    @pytest.mark.parametrize("n_bits", [1, 8, 32, 60])
    def test_error_never_rises(self, n_bits):
        errors = ITQ(n_bits, random_state=0).fit(X).quantisation_error_
        assert errors.shape == (50,)
        assert np.all(np.diff(errors) <= 1e-9 * errors[0])
        assert n_bits == 1 or errors[-1] < errors[0]

    def test_last_error_is_that_of_the_encoder(self):
        hasher = ITQ(16, random_state=0).fit(X)
        scores = hasher.decision_function(X)
        expected = np.mean(np.sum((np.where(scores > 0, 1, -1) - scores) ** 2, axis=1))
        assert hasher.quantisation_error_[-1] == pytest.approx(expected)

    def test_projection_is_a_rotation_of_the_principal_components(self):
        weights = ITQ(12, random_state=0).fit(X).encoder_.weights
        np.testing.assert_allclose(weights @ weights.T, np.eye(12), atol=1e-10)
        components = PCA(12, svd_solver="full").fit(X).components_
        np.testing.assert_allclose(weights.T @ weights, components.T @ components, atol=1e-8)

    def test_equals_the_naive_method(self):
        hasher = ITQ(8, n_iter=5, random_state=3).fit(X[:200])
        start = np.linalg.qr(np.random.default_rng(hasher._seed()).standard_normal((8, 8)))[0]
        scores, errors = naive.itq(X[:200], start, n_iter=5)
        np.testing.assert_allclose(hasher.decision_function(X[:200]), scores, atol=1e-7)
        np.testing.assert_allclose(hasher.quantisation_error_, errors)

    def test_no_more_bits_than_features(self):
        with pytest.raises(ValueError, match=r"at most the number of features, 64.*Got 65"):
            ITQ(65).fit(X)
        assert ITQ(64, n_iter=2, random_state=0).fit(X).transform(X).shape == (len(X), 8)

    @pytest.mark.parametrize("n_iter", [0, 1.5])
    def test_iterations_are_checked(self, n_iter):
        with pytest.raises(ValueError, match="The 'n_iter' parameter must be a positive integer"):
            ITQ(8, n_iter=n_iter).fit(X)
