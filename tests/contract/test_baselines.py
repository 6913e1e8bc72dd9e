"""The contract of every method in the registry, and what the papers of LSH and ITQ say of theirs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

import naive
from baseline_contract import FEW_X as X
from baseline_contract import FEW_Y as Y
from baseline_contract import BaselineContract, short, shortest
from hashgrove.baselines import BASELINES, ITQ, LSH, SignThreshold
from hashgrove.cli import main
from hashgrove.storage.models import load


@parametrize_with_checks(shortest(BASELINES))
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=sorted(BASELINES))
def baseline(request):
    return BASELINES[request.param]


class TestEveryBaseline(BaselineContract):
    def test_save_load_and_encode_on_the_command_line(self, baseline, tmp_path, capsys):
        hasher = short(baseline, 19).fit(X, Y)
        hasher.save(tmp_path / "m.hashgrove")
        encoder = load(tmp_path / "m.hashgrove")
        np.testing.assert_array_equal(encoder.encode(X), hasher.transform(X))
        np.save(tmp_path / "X.npy", X)
        files = [str(tmp_path / name) for name in ("m.hashgrove", "X.npy", "codes.npy")]
        with pytest.raises(SystemExit) as ended:
            main(["encode", *files[:2], "-o", files[2]], prog_name="hashgrove")
        assert ended.value.code == 0, capsys.readouterr().err
        np.testing.assert_array_equal(np.load(files[2]), hasher.transform(X))


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
        with pytest.raises(ValueError, match=r"at most 64 for ITQ.*Got 65"):
            ITQ(65).fit(X)
        assert ITQ(64, n_iter=2, random_state=0).fit(X).transform(X).shape == (len(X), 8)

    @pytest.mark.parametrize("n_iter", [0, 1.5])
    def test_iterations_are_checked(self, n_iter):
        with pytest.raises(ValueError, match="The 'n_iter' parameter must be an integer of at least 1"):
            ITQ(8, n_iter=n_iter).fit(X)


class TestSignThreshold:
    @pytest.mark.parametrize(
        ("hasher", "match"),
        [
            (SignThreshold(8, threshold="max"), r"one of \['mean', 'median', 'zero'\]. Got 'max'"),
            (SignThreshold(8, pca=None), r"'pca' parameter must be True or False. Got None"),
        ],
    )
    def test_parameters_are_checked(self, hasher, match):
        with pytest.raises(ValueError, match=match):
            hasher.fit(X[:50], Y[:50])

    @pytest.mark.parametrize(
        ("threshold", "values"), [("mean", X.mean(axis=0)), ("median", np.median(X, axis=0)), ("zero", np.zeros(64))]
    )
    def test_thresholds(self, threshold, values):
        hasher = SignThreshold(10, threshold=threshold).fit(X)
        np.testing.assert_array_equal(hasher.decision_function(X) > 0, (values < X)[:, :10])

    def test_principal_components(self):
        hasher = SignThreshold(8, pca=True).fit(X)
        weights = hasher.encoder_.weights
        np.testing.assert_allclose(weights @ weights.T, np.eye(8), atol=1e-10)
        variance = hasher.decision_function(X).var(axis=0)
        assert (np.diff(variance) < 0).all()
        assert variance.sum() > 0.6 * X.var(axis=0).sum()
