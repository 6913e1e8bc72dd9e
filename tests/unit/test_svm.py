from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

import naive
from hashgrove.encoders import Kernel, Linear
from hashgrove.functions.svm import KernelSVM, LinearSVM
from hashgrove.numerics import squared_hinge
from hashgrove.numerics.squared_hinge import SquaredHinge

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


def in_unit_range(X, of=None):
    """Each feature scaled as those of ``of``, by default ``X`` itself, are scaled to [0, 1]; constant ones are 0."""
    of = X if of is None else of
    span = of.max(axis=0) - of.min(axis=0)
    return (X - of.min(axis=0)) / np.where(span == 0, np.inf, span)


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
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be a"):
        learner.prepare(np.eye(3), rng())


class TestLinear:
    @pytest.mark.parametrize("C", [None, 0.5])
    def test_scaling_is_folded_back(self, C):
        X, z = digits()
        X = X * np.linspace(1e-3, 1e3, X.shape[1]) + 7.0
        scaled = in_unit_range(X)
        peer = LinearSVC(C=1e6 / len(X) if C is None else C, dual=False, tol=1e-9, max_iter=10_000)
        expected = peer.fit(scaled, z).decision_function(scaled)
        encoder, _ = learn(LinearSVM(C=C, tol=1e-8), X, z)
        assert isinstance(encoder, Linear)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-6, atol=1e-6)

    def test_integers_do_not_wrap(self):
        X = np.array([[250], [255], [0], [5]], np.uint8)
        _, bit = learn(LinearSVM(), X, np.array([1, 1, -1, -1], np.int8))
        assert bit.tolist() == [1, 1, -1, -1]


class TestKernel:
    @pytest.mark.parametrize("unit", [1.0, np.linspace(1e-3, 1e3, 64)], ids=["pixels", "other units"])
    def test_equals_sklearn_on_scaled_features(self, unit):
        X, z = digits()
        encoder, _ = learn(KernelSVM(C=2.0, gamma=0.1), X * unit + 7.0, z)
        assert isinstance(encoder, Kernel)
        new = load_digits().data[400:800]
        expected = SVC(C=2.0, gamma=0.1).fit(in_unit_range(X), z).decision_function(in_unit_range(new, of=X))
        np.testing.assert_allclose(encoder.scores(new * unit + 7.0)[:, 0], expected, rtol=1e-6, atol=1e-6)

    def test_default_penalty(self):
        X, z = digits()
        encoder, _ = learn(KernelSVM(gamma=0.1), X, z)
        scaled = in_unit_range(X)
        expected = SVC(C=1e5 / len(X), gamma=0.1).fit(scaled, z).decision_function(scaled)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-9, atol=1e-9)

    def test_concatenated_bits_keep_only_support_vectors(self):
        X, z = digits()
        learner = KernelSVM(gamma=0.1)
        data = learner.prepare(X, rng())
        targets = [z, np.roll(z, 7), np.where(X[:, 20] > 8, 1, -1).astype(np.int8)]
        parts = [learner.learn(data, target, None, rng())[0] for target in targets]
        whole = Kernel.concatenate(parts)
        assert len(whole.support) < len(X)
        expected = np.concatenate([part.scores(X) for part in parts], axis=1)
        np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-8, atol=1e-8)

    def test_default_gamma_counts_the_row_itself(self):
        X, _ = digits(300)
        distances = NearestNeighbors(n_neighbors=49).fit(in_unit_range(X)).kneighbors()[0]  # without the row itself
        assert KernelSVM().prepare(X, rng()).gamma == pytest.approx(50 / (distances**2).sum(axis=1).mean())

    @pytest.mark.parametrize("X", [np.ones((5, 2)), np.ones((1, 2))])
    def test_default_gamma_of_degenerate_data(self, X):
        assert KernelSVM().prepare(X, rng()).gamma == 1.0

    def test_default_gamma_from_a_sample_of_rows(self):
        X = rng().normal(size=(3000, 4))
        exact = 50 / (NearestNeighbors(n_neighbors=49).fit(in_unit_range(X)).kneighbors()[0] ** 2).sum(axis=1).mean()
        assert KernelSVM().prepare(X, rng()).gamma == pytest.approx(exact, rel=0.1)

    def test_a_warm_start_keeps_the_scaling(self):
        X, z = digits()
        earlier, _ = learn(KernelSVM(gamma=0.1), X, z)
        data = KernelSVM().prepare(2 * X, rng(), earlier=earlier)
        assert data.gamma == 0.1
        np.testing.assert_array_equal(data.shared["scale"], earlier.scale)


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
        learner = KernelSVM(n_support=40, tol=1e-8)
        data = learner.prepare(X, rng())
        encoder, _ = learner.learn(data, z, None, rng())
        assert encoder.weights.shape == (1, 40)
        mapped = data.solver.rows[:, :-1]
        peer = LinearSVC(C=1e5 / len(X), dual=False, tol=1e-9, max_iter=10_000)
        expected = peer.fit(mapped, z).decision_function(mapped)
        np.testing.assert_allclose(encoder.scores(X)[:, 0], expected, rtol=1e-6, atol=1e-6)

    def test_feature_map_reproduces_the_kernel_between_landmarks(self):
        X, _ = digits(50)
        data = KernelSVM(n_support=50, gamma=0.1).prepare(X, rng())
        scaled = in_unit_range(X)
        exact = np.exp(-0.1 * ((scaled[:, None] - scaled[None]) ** 2).sum(axis=2))
        mapped = data.solver.rows[:, :-1]
        np.testing.assert_allclose(mapped @ mapped.T, exact, atol=1e-6)

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


def objective(X, z, solution, C):
    weights, intercept = solution
    slack = np.maximum(1 - z * (X @ weights + intercept), 0)
    return (weights @ weights + intercept**2) / 2 + C * slack @ slack


def gradient_share(X, z, solution, C):
    """Length of the gradient, as a share of that at 0."""
    rows = np.c_[X, np.ones(len(X))]
    w = np.r_[solution[0], solution[1]]
    gradient = w - 2 * C * rows.T @ (z * np.maximum(1 - z * (rows @ w), 0))
    return np.linalg.norm(gradient) / np.linalg.norm(2 * C * rows.T @ z)


def problem(n, d, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, d))
    z = np.where(X[:, 0] + draw.normal(size=n) > 0, 1, -1)
    z[:2] = 1, -1
    return X, z


SHAPES = [(60, 5), (60, 1), (60, 58), (60, 59), (60, 60), (60, 61), (40, 200), (3, 2), (2, 1), (2, 50)]
PENALTIES = [1e-6, 1e-2, 1.0, 1e3, 1e8]


class TestSquaredHinge:
    @pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
    def test_equals_liblinear(self, C):
        X, z = digits(1000)
        X = X / 16
        peer = LinearSVC(C=C, dual=False, tol=1e-10, max_iter=100_000).fit(X, z)
        ours = SquaredHinge(X).solve(z, C=C, tol=1e-9)
        theirs = peer.coef_[0], peer.intercept_[0]
        assert objective(X, z, ours, C) == pytest.approx(objective(X, z, theirs, C), rel=1e-9)
        np.testing.assert_array_equal(X @ ours[0] + ours[1] > 0, peer.decision_function(X) > 0)

    @pytest.mark.parametrize("shape", [(4, 2), (6, 1), (5, 8)])
    @pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
    def test_equals_a_naive_objective_minimised(self, shape, C):
        for seed in range(5):
            X, z = problem(*shape, seed)
            weights, intercept = SquaredHinge(X).solve(z, C=C, tol=1e-10)
            start = np.zeros(shape[1] + 1)
            found = minimize(
                lambda w, X=X, z=z: naive.squared_hinge(X, z, w[:-1], w[-1], C=C), start, method="L-BFGS-B"
            )
            value = naive.squared_hinge(X, z, weights, intercept, C=C)
            assert value <= found.fun * (1 + 1e-12)
            assert value == pytest.approx(found.fun, rel=1e-6)
            np.testing.assert_allclose(np.r_[weights, intercept], found.x, atol=1e-2)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("C", PENALTIES)
    @pytest.mark.parametrize("largest_matrix", [0, 5000])
    def test_gradient_is_zero(self, shape, C, largest_matrix, monkeypatch):
        monkeypatch.setattr(squared_hinge, "MAX_MATRIX", largest_matrix)
        for seed in range(3):
            X, z = problem(*shape, seed)
            share = gradient_share(X, z, SquaredHinge(X).solve(z, C=C, tol=1e-7), C)
            # a step that lowers the objective, about C n, by less than its rounding error is not taken
            least = np.sqrt(np.finfo(float).eps * C * len(z)) / np.linalg.norm(2 * C * np.c_[X, np.ones(len(X))].T @ z)
            # with a huge C a slack is lost in the rounding of its margin, near 1
            assert share < max(2e-7, least, 1e-12 * C)

    @pytest.mark.parametrize("C", PENALTIES)
    def test_primal_and_dual_agree(self, C):
        X, z = problem(80, 20)
        wide = np.c_[X, np.zeros((80, 80))]  # more features than rows, and the same problem
        primal, dual = (SquaredHinge(rows).solve(z, C=C, tol=1e-10) for rows in (X, wide))
        np.testing.assert_allclose(dual[0][:20], primal[0], rtol=1e-6, atol=1e-9)
        assert dual[1] == pytest.approx(primal[1], rel=1e-6, abs=1e-9)
        assert not dual[0][20:].any()

    @pytest.mark.parametrize("how", ["primal", "dual", "conjugate gradients"])
    @pytest.mark.parametrize("C", PENALTIES)
    @pytest.mark.parametrize(
        "case", ["constant feature", "all constant", "duplicate rows", "repeated features", "one row"]
    )
    def test_degenerate_data(self, case, C, how, monkeypatch):
        monkeypatch.setattr(squared_hinge, "MAX_MATRIX", 0 if how == "conjugate gradients" else 5000)
        X, z = problem(60, 100 if how == "dual" else 8)
        if case == "constant feature":
            X[:, 3] = 7.0
        elif case == "all constant":
            X[:], z[:40], z[40:] = 1.0, 1, -1
        elif case == "duplicate rows":
            X, z = np.repeat(X[:20], 3, axis=0), np.repeat(z[:20], 3)
            z[0] *= -1  # and one that contradicts its copies
        elif case == "repeated features":
            X = np.repeat(X, 2, axis=1)
        else:
            z[:] = -1
            z[5] = 1
        solution = SquaredHinge(X).solve(z, C=C)
        assert np.isfinite(solution[0]).all()
        assert gradient_share(X, z, solution, C) < 1e-4

    @pytest.mark.parametrize("C", [1e6, 1e12])
    def test_a_ridge_lost_in_rounding(self, C):
        X, z = problem(3000, 20)
        X = np.repeat(X, 3, axis=1) * 1e3
        solution = SquaredHinge(X).solve(z, C=C)
        assert gradient_share(X, z, solution, C) < 1e-4

    @pytest.mark.parametrize("dtype", ["float32", "uint8"])
    @pytest.mark.parametrize("scale", [False, True])
    def test_dtypes(self, dtype, scale):
        X, z = digits(200)
        expected = SquaredHinge(X, scale=scale).solve(z, C=0.1)
        given = SquaredHinge(X.astype(dtype), scale=scale).solve(z, C=0.1)
        np.testing.assert_array_equal(given[0], expected[0])
        assert given[1] == expected[1]

    @pytest.mark.parametrize("d", [30, 300])
    def test_what_was_solved_before_does_not_matter(self, d):
        X, z = problem(150, d)
        shared = SquaredHinge(X)
        for bit, C in [(z, 100.0), (-np.roll(z, 3), 1.0), (z, 1.0), (z, 100.0)]:
            first, fresh = shared.solve(bit, C=C), SquaredHinge(X).solve(bit, C=C)
            np.testing.assert_array_equal(first[0], fresh[0])
            assert first[1] == fresh[1]

    @pytest.mark.parametrize("d", [30, 300])
    def test_threads_of_blas_do_not_matter(self, d):
        X, z = problem(250, d)
        solutions = []
        for n_threads in (1, 2):
            with threadpool_limits(n_threads, user_api="blas"):
                solutions.append(SquaredHinge(X).solve(z, C=10.0))
        np.testing.assert_array_equal(solutions[0][0], solutions[1][0])

    def test_limit_of_steps(self):
        X, z = problem(300, 10)
        rows = SquaredHinge(X)
        values = [objective(X, z, rows.solve(z, C=10.0, max_iter=k, tol=1e-9), 10.0) for k in (1, 2, 30)]
        assert values[0] > values[1] > values[2]
        ridge = np.linalg.solve(rows.rows.T @ rows.rows + np.eye(11) / 20, rows.rows.T @ z)  # all rows are active at 0
        weights, intercept = rows.solve(z, C=10.0, max_iter=1)
        np.testing.assert_allclose(np.r_[weights, intercept], ridge, rtol=1e-9)

    @pytest.mark.parametrize("d", [10, 400])
    def test_a_loose_tolerance_ends_earlier(self, d):
        X, z = problem(300, d)
        rows = SquaredHinge(X)
        one_step = rows.solve(z, C=10.0, max_iter=1)
        share = gradient_share(X, z, one_step, 10.0)
        np.testing.assert_array_equal(rows.solve(z, C=10.0, tol=1.01 * share)[0], one_step[0])
        assert not np.array_equal(rows.solve(z, C=10.0, tol=0.99 * share)[0], one_step[0])

    def test_all_bits_together(self):
        X, _ = digits(500)
        Z = np.stack([np.where(X[:, k] > np.median(X[:, k]), 1, -1) for k in (10, 20, 30)], axis=1)
        Z[:, 2] = np.where(rng().random(500) > 0.5, 1, -1)
        rows = SquaredHinge(X, scale=True)
        weights, intercepts = rows.solve_all(Z, C=0.5, tol=1e-7)
        for z, weight, intercept in zip(Z.T, weights, intercepts, strict=True):
            expected = rows.solve(z, C=0.5, tol=1e-9)
            np.testing.assert_allclose(weight, expected[0], atol=1e-5)
            assert intercept == pytest.approx(expected[1], abs=1e-5)

    def test_all_bits_in_more_than_one_part(self):
        X, z = problem(50, 5)
        Z = np.stack([np.roll(z, k) for k in range(70)], axis=1)
        weights, intercepts = SquaredHinge(X).solve_all(Z, tol=1e-7)
        assert weights.shape == (70, 5)
        for k in (0, 63, 64, 69):
            expected = SquaredHinge(X).solve(Z[:, k], tol=1e-9)
            np.testing.assert_allclose(weights[k], expected[0], atol=1e-5)
            assert intercepts[k] == pytest.approx(expected[1], abs=1e-5)

    def test_constant_bits(self):
        X, z = digits(50)
        rows = SquaredHinge(X, scale=True)
        for sign in (1, -1):
            weights, intercept = rows.solve(np.full_like(z, sign))
            assert (np.sign(X @ weights + intercept) == sign).all()
        weights, intercepts = rows.solve_all(np.stack([np.ones(50), -np.ones(50)], axis=1))
        assert (np.sign(X @ weights.T + intercepts) == [1, -1]).all()
