from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC, LinearSVC

from hashgrove.encoders import Kernel, Linear
from hashgrove.functions.svm import KernelSVM, LinearSVM

LEARNERS = {
    "linear": LinearSVM(),
    "exact": KernelSVM(),
    "budget": KernelSVM(n_support=60),
}


def rng():
    return np.random.default_rng(0)


def digits(n=400):
    X, y = load_digits(return_X_y=True)
    return X[:n], np.where(y[:n] < 5, 1, -1).astype(np.int8)


def learn(learner, X, z, weights=None):
    return learner.learn(learner.prepare(X, rng()), z, weights, rng())


@pytest.fixture(params=LEARNERS)
def learner(request):
    return clone(LEARNERS[request.param])


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_bit_is_what_the_encoder_gives(learner, dtype):
    X, z = digits()
    encoder, bit = learn(learner, X.astype(dtype), z)
    assert bit.dtype == np.int8
    np.testing.assert_array_equal(bit, np.where(encoder.scores(X)[:, 0] > 0, 1, -1))
    assert np.mean(bit == z) > 0.9


def test_deterministic_and_no_threads_matter(learner):
    X, z = digits()
    first = learn(learner, X, z)[0]
    data = learner.prepare(X, rng(), n_jobs=2)
    second = learner.learn(data, z, None, rng())[0]
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(array, second.arrays()[name])


def test_weights_are_ignored(learner):
    X, z = digits(100)
    weights = rng().random(100) * 2
    np.testing.assert_array_equal(learn(learner, X, z, weights)[0].scores(X), learn(learner, X, z, None)[0].scores(X))


@pytest.mark.parametrize("sign", [-1, 1])
def test_one_class_is_a_constant(learner, sign):
    X, z = digits(50)
    encoder, bit = learn(learner, X, np.full_like(z, sign))
    assert (bit == sign).all()
    assert (np.sign(encoder.scores(X * 100)) == sign).all()
    other = learn(learner, X, z)[0]
    assert type(encoder).concatenate([encoder, other]).n_bits == 2


def test_no_warning_at_the_limit_of_iterations(learner):
    X, z = digits(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, bit = learn(learner.set_params(max_iter=1), X, z)
    assert set(bit) <= {-1, 1}


@pytest.mark.parametrize(
    ("learner", "name"),
    [
        (LinearSVM(C=0.0), "C"),
        (LinearSVM(C="big"), "C"),
        (LinearSVM(tol=None), "tol"),
        (LinearSVM(max_iter=1.5), "max_iter"),
        (KernelSVM(C=-1.0), "C"),
        (KernelSVM(gamma=np.inf), "gamma"),
        (KernelSVM(gamma=np.nan), "gamma"),
        (KernelSVM(n_support=0), "n_support"),
        (KernelSVM(max_iter=0), "max_iter"),
    ],
)
def test_parameters_are_checked_in_prepare(learner, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be a positive"):
        learner.prepare(np.eye(3), rng())


class TestLinear:
    @pytest.mark.parametrize("C", [None, 0.5])
    def test_scaling_is_folded_back(self, C):
        X, z = digits()
        X = X * np.linspace(1e-3, 1e3, X.shape[1]) + 7.0
        low, span = X.min(axis=0), np.ptp(X, axis=0)
        scaled = (X - low) / np.where(span == 0, 1, span)
        expected = LinearSVC(C=1e6 / len(X) if C is None else C, dual=False).fit(scaled, z).decision_function(scaled)
        encoder, _ = learn(LinearSVM(C=C), X, z)
        assert isinstance(encoder, Linear)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-6, atol=1e-6)

    def test_integers_do_not_wrap(self):
        X = np.array([[250], [255], [0], [5]], np.uint8)
        _, bit = learn(LinearSVM(), X, np.array([1, 1, -1, -1], np.int8))
        assert bit.tolist() == [1, 1, -1, -1]


class TestKernel:
    def test_equals_sklearn(self):
        X, z = digits()
        encoder, _ = learn(KernelSVM(C=2.0, gamma=1e-3), X, z)
        assert isinstance(encoder, Kernel)
        new = load_digits().data[400:800]
        expected = SVC(C=2.0, gamma=1e-3).fit(X, z).decision_function(new)
        np.testing.assert_allclose(encoder.scores(new)[:, 0], expected, rtol=1e-9, atol=1e-9)

    def test_default_penalty(self):
        X, z = digits()
        encoder, _ = learn(KernelSVM(gamma=1e-3), X, z)
        expected = SVC(C=1e5 / len(X), gamma=1e-3).fit(X, z).decision_function(X)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-9, atol=1e-9)

    def test_concatenated_bits_keep_only_support_vectors(self):
        X, z = digits()
        learner = KernelSVM(gamma=1e-3)
        data = learner.prepare(X, rng())
        targets = [z, np.roll(z, 7), np.where(X[:, 20] > 8, 1, -1).astype(np.int8)]
        parts = [learner.learn(data, target, None, rng())[0] for target in targets]
        whole = Kernel.concatenate(parts)
        assert len(whole.support) < len(X)
        expected = np.concatenate([part.scores(X) for part in parts], axis=1)
        np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-8, atol=1e-8)

    def test_default_gamma(self):
        X, _ = digits(300)
        distances = NearestNeighbors(n_neighbors=50).fit(X).kneighbors()[0]
        assert KernelSVM().prepare(X, rng()).gamma == pytest.approx(1 / np.mean(distances**2))

    @pytest.mark.parametrize("X", [np.ones((5, 2)), np.ones((1, 2))])
    def test_default_gamma_of_degenerate_data(self, X):
        assert KernelSVM().prepare(X, rng()).gamma == 1.0

    def test_default_gamma_from_a_sample_of_rows(self):
        X = rng().normal(size=(3000, 4))
        exact = 1 / np.mean(NearestNeighbors(n_neighbors=50).fit(X).kneighbors()[0] ** 2)
        assert KernelSVM().prepare(X, rng()).gamma == pytest.approx(exact, rel=0.1)


class TestBudget:
    def test_all_rows_as_landmarks_is_near_the_exact_machine(self):
        X, y = make_moons(300, noise=0.15, random_state=0)
        z = np.where(y == 1, 1, -1).astype(np.int8)
        new = make_moons(1000, noise=0.15, random_state=1)[0]
        exact = learn(KernelSVM(C=1.0, gamma=1.0), X, z)[0].scores(new)
        budget = learn(KernelSVM(C=1.0, gamma=1.0, n_support=300), X, z)[0].scores(new)
        assert np.mean((exact > 0) == (budget > 0)) > 0.97

    def test_weights_on_landmarks_equal_the_linear_machine_in_feature_space(self):
        X, z = digits()
        learner = KernelSVM(n_support=40)
        data = learner.prepare(X, rng())
        encoder, _ = learner.learn(data, z, None, rng())
        assert encoder.weights.shape == (1, 40)
        expected = LinearSVC(C=1e5 / len(X), dual=False).fit(data.mapped, z).decision_function(data.mapped)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-6, atol=1e-6)

    def test_feature_map_reproduces_the_kernel_between_landmarks(self):
        X, _ = digits(50)
        data = KernelSVM(n_support=50, gamma=1e-3).prepare(X, rng())
        exact = np.exp(-1e-3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
        np.testing.assert_allclose(data.mapped @ data.mapped.T, exact, atol=1e-6)

    def test_duplicate_rows(self):
        X, z = digits(40)
        X, z = np.repeat(X, 5, axis=0), np.repeat(z, 5)
        encoder, bit = learn(KernelSVM(n_support=200), X, z)
        assert np.isfinite(encoder.weights).all()
        assert np.mean(bit == z) > 0.95

    def test_more_support_vectors_than_rows(self):
        X, z = digits(30)
        assert len(learn(KernelSVM(n_support=1000), X, z)[0].support) == 30

    def test_landmarks_come_from_the_generator(self):
        X, _ = digits()
        learner = KernelSVM(n_support=20, gamma=1.0)
        first, second = (learner.prepare(X, np.random.default_rng(seed)).support for seed in (0, 1))
        assert not np.array_equal(first, second)
