"""Supervised baselines: what their papers claim, and what they share beyond the contract of test_baselines.py."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import naive
from baseline_contract import TAGS, TEST, TRAIN, PairwiseContract, SupervisedContract
from hashgrove import ICM, Affinity, FastHash, FlatIndex, KernelSVM, LinearSVM, evaluate
from hashgrove.baselines import (
    CCAITQ,
    ITQ,
    KSH,
    LSH,
    SDH,
    ClassifierOutput,
    ksh,
)
from hashgrove.baselines.classifier_output import ScoredClassifier, code_book
from hashgrove.baselines.sdh import code_step
from hashgrove.encoders import ClassScores, Kernel, Linear
from hashgrove.losses import coefficients
from hashgrove.losses import ksh as ksh_loss
from hashgrove.numerics.eigen import whitening
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.supervision.similarity import SparseSimilarity

X, Y = load_digits(return_X_y=True)

QUICK = {  # every method, with settings that keep the tests short
    "cca-itq": lambda n_bits, **rest: CCAITQ(n_bits, n_iter=20, **rest),
    "classifier": lambda n_bits, **rest: ClassifierOutput(n_bits, **rest),
    "ksh": lambda n_bits, **rest: KSH(n_bits, n_anchors=60, max_iter=20, **rest),
    "sdh": lambda n_bits, **rest: SDH(n_bits, n_anchors=100, **rest),
}
PAIRWISE = ["ksh"]


@pytest.fixture(params=sorted(QUICK))
def make(request):
    return QUICK[request.param]


@pytest.fixture(params=PAIRWISE)
def make_pairwise(request):
    return QUICK[request.param]


class TestSupervised(SupervisedContract):
    pass


class TestPairwise(PairwiseContract):
    pass


@pytest.mark.parametrize(
    ("hasher", "name"),
    [
        (KSH(8, n_anchors=0), "n_anchors"),
        (KSH(8, gamma=-1.0), "gamma"),
        (KSH(8, n_labelled=1.5), "n_labelled"),
        (SDH(8, nu=0), "nu"),
        (CCAITQ(8, n_iter=True), "n_iter"),
        (ClassifierOutput(8, scores="rank"), "scores"),
        (ClassifierOutput(8, estimator="forest"), "estimator"),
    ],
)
def test_parameters_are_checked(hasher, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be"):
        hasher.fit(X, Y)


def test_labels_help():
    """On the digits all supervised baselines are clearly better than ITQ, which learns without labels."""
    train, test = np.arange(0, len(X), 2), np.arange(1, len(X), 2)
    scores = {
        name: make(32, random_state=0).fit(X[train], Y[train]).score(X[test], Y[test]) for name, make in QUICK.items()
    }
    itq = ITQ(32, random_state=0).fit(X[train]).score(X[test], Y[test])
    lsh = LSH(32, random_state=0).fit(X[train]).score(X[test], Y[test])
    assert itq > lsh > 0.2
    assert min(scores.values()) > itq + 0.02, (scores, itq)
    assert min(scores["ksh"], scores["sdh"], scores["classifier"]) > 0.85, scores


@pytest.mark.data
def test_labels_help_on_real_images(shared_data):
    with np.load(shared_data / "cifar10_gist512_u8.npz") as file:
        rows = np.r_[:2000, 50_000:50_400]
        gist, y = (file["X"][rows] * file["scale"] + file["lo"]).astype(np.float32), file["y"][rows]
    train, query = slice(2000), slice(2000, None)

    def measure(hasher):
        index = FlatIndex(hasher.transform(gist[train]))
        return evaluate(index, hasher.transform(gist[query]), y_queries=y[query], y_database=y[train]).map

    itq = measure(ITQ(24, random_state=0).fit(gist[train]))
    scores = {name: measure(make(24, random_state=0).fit(gist[train], y[train])) for name, make in QUICK.items()}
    assert min(scores.values()) > itq + 0.01, (scores, itq)
    assert min(scores["classifier"], scores["sdh"], scores["ksh"]) > itq + 0.05, (scores, itq)


class TestKSH:
    def test_objective_follows_from_the_codes(self):
        hasher = KSH(12, n_anchors=50, max_iter=30, random_state=0).fit(X[TRAIN], Y[TRAIN])
        bits = np.where(hasher.decision_function(X[TRAIN]) > 0, 1, -1)
        S = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1, -1)
        for r in (1, 5, 12):
            expected = np.mean((S - bits[:, :r] @ bits[:, :r].T / 12) ** 2)
            assert hasher.objective_[r - 1] == pytest.approx(expected)

    def test_objective_falls_and_the_gradient_improves_on_the_eigenvector(self):
        hasher = KSH(16, n_anchors=60, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert np.all(np.diff(hasher.objective_) < 0)
        assert np.mean(hasher.gains_[:, 1] > hasher.gains_[:, 0]) > 0.8
        start = KSH(16, n_anchors=60, max_iter=1, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert hasher.objective_[-1] < start.objective_[-1]

    def test_gradient_equals_finite_differences(self):
        rng = np.random.default_rng(0)
        K, R = rng.normal(size=(20, 6)), rng.normal(size=(20, 20))
        R, a = R + R.T, rng.normal(size=6)
        gradient = ksh.smoothed(K, R.__matmul__, K @ a)[1]
        expected = naive.gradient(lambda w: ksh.smoothed(K, R.__matmul__, K @ w)[0], a)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)

    def test_returned_values_belong_to_the_returned_weight(self):
        rng = np.random.default_rng(1)
        K, R = rng.normal(size=(30, 5)), rng.normal(size=(30, 30))
        R = R + R.T
        weight, values = ksh.descend(K, R.__matmul__, rng.normal(size=5), max_iter=40)
        assert values[-1] == pytest.approx(ksh.smoothed(K, R.__matmul__, K @ weight)[0])
        assert values[-1] < values[0]

    def test_relaxation_solves_the_generalised_eigenproblem(self):
        rng = np.random.default_rng(0)
        K, S = rng.normal(size=(40, 5)), rng.normal(size=(40, 40))
        S = S + S.T
        W = whitening(K.T @ K, floor=1e-8)
        a = W @ ksh._top_eigenvector((K @ W).T @ S @ (K @ W), np.ones(W.shape[1]))
        ratio = (a @ K.T @ S @ K @ a) / (a @ K.T @ K @ a)
        others = rng.normal(size=(5, 2000))
        ratios = np.einsum("ik,ik->k", others, K.T @ S @ K @ others) / np.einsum("ik,ik->k", others, K.T @ K @ others)
        assert ratio >= ratios.max()
        np.testing.assert_allclose(K.T @ S @ K @ a, ratio * K.T @ K @ a, atol=1e-8)

    @pytest.mark.parametrize("n_anchors", [250, 5000])
    def test_many_anchors_and_equal_points(self, n_anchors):
        points = np.repeat(X[TRAIN][:150], 2, axis=0)  # each anchor occurs twice, so K'K is singular
        hasher = KSH(6, n_anchors=n_anchors, max_iter=10, random_state=0).fit(points, np.repeat(Y[TRAIN][:150], 2))
        assert isinstance(hasher.encoder_, Kernel)
        assert hasher.score(X[TEST], Y[TEST]) > 0.4

    def test_drawn_pairs_are_the_only_ones_that_count(self):
        everything = KSH(8, n_anchors=60, random_state=0).fit(X[TRAIN], Y[TRAIN])
        drawn = KSH(8, n_anchors=60, n_similar=5, n_dissimilar=5, random_state=0).fit(X[TRAIN], Y[TRAIN])
        n = len(TRAIN)
        start = drawn.objective_[0] + (2 * drawn.gains_[0].max() - n**2) / (8 * n) ** 2
        pairs = round(start * n**2)  # the entries of S, which are all 1 or -1
        assert 10 * n / 2 < pairs <= 20 * n, "each point draws ten, and is drawn by others"
        assert (drawn.transform(X) != everything.transform(X)).any()

    def test_the_matrix_of_drawn_pairs_has_signs_where_drawn_and_zeros_elsewhere(self):
        pairs = Affinity.from_labels(Y[TRAIN], n_similar=5, n_dissimilar=5, random_state=0)
        found = SparseSimilarity.of(pairs) @ np.eye(len(TRAIN))
        np.testing.assert_array_equal(found, naive.pair_matrix(pairs))
        signs = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1, -1)
        np.testing.assert_array_equal(found, np.where(found == 0, 0, signs))
        for part in (found > 0, found < 0):
            assert 5 <= part.sum(axis=1).min() < part.sum(axis=1).mean() <= 10


class TestCCAITQ:
    def test_error_never_increases(self):
        for n_bits in (4, 9, 32):
            errors = CCAITQ(n_bits, random_state=0).fit(X[TRAIN], Y[TRAIN]).quantisation_error_
            assert np.all(np.diff(errors) <= 1e-9 * errors[0])

    def test_correlations_follow_the_definition(self):
        Z = X[TRAIN][:, X[TRAIN].std(axis=0) > 2][:, :20]
        hasher = CCAITQ(9, regularisation=1e-9, random_state=0).fit(Z, Y[TRAIN])
        Z = Z - Z.mean(axis=0)
        T = np.eye(10)[Y[TRAIN]] - np.eye(10)[Y[TRAIN]].mean(axis=0)
        expected = np.linalg.svd(np.linalg.qr(Z)[0].T @ np.linalg.svd(T, full_matrices=False)[0][:, :9])[1]
        np.testing.assert_allclose(hasher.correlations_, expected[: len(hasher.correlations_)], atol=1e-4)

    def test_padding_with_zeros_is_the_same_as_a_wide_rotation(self):
        rng = np.random.default_rng(0)
        v = rng.normal(size=(200, 3))
        rotation, errors = quantising_rotation(v, n_bits=8, n_iter=10, rng=np.random.default_rng(1))
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
        padded = np.hstack([v, np.zeros((200, 5))])
        _, expected = quantising_rotation(padded, n_bits=8, n_iter=10, rng=np.random.default_rng(1))
        np.testing.assert_allclose(errors, expected)


class TestSDH:
    def test_objective_never_increases(self):
        hasher = SDH(16, n_anchors=100, n_iter=8, nu=1e-2, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert hasher.objective_.shape == (9,)
        assert np.all(np.diff(hasher.objective_) <= 1e-9 * hasher.objective_[0])
        assert hasher.objective_[-1] < 0.5 * hasher.objective_[0]

    def test_code_step_leaves_no_better_bit(self):
        rng = np.random.default_rng(0)
        B = np.where(rng.normal(size=(30, 6)) > 0, 1.0, -1.0)
        Q, W = rng.normal(size=(30, 6)), rng.normal(size=(6, 4))
        G = W @ W.T

        def value(codes):
            return np.trace(codes @ G @ codes.T) - 2 * np.trace(codes @ Q.T)

        before = value(B)
        code_step(B, Q, G)
        assert value(B) < before
        for i, k in product(range(30), range(6)):
            other = B.copy()
            other[i, k] *= -1
            assert value(other) >= value(B) - 1e-9

    def test_last_objective_follows_from_the_codes_and_the_encoder(self):
        hasher = SDH(6, n_anchors=20, n_iter=2, nu=0.5, ridge=0.3, random_state=0).fit(X[TRAIN], Y[TRAIN])
        B, T = hasher.codes_.astype(float), np.eye(10)[Y[TRAIN]]
        W = np.linalg.solve(B.T @ B + np.eye(6), B.T @ T)
        fit = np.sum((B - hasher.decision_function(X[TRAIN])) ** 2) + 0.3 * np.sum(hasher.encoder_.weights**2)
        expected = np.sum((T - B @ W) ** 2) + np.sum(W**2) + 0.5 * fit
        assert hasher.objective_[-1] == pytest.approx(expected / len(TRAIN))

    def test_learning_from_a_sample(self):
        hasher = SDH(8, n_anchors=30, n_labelled=50, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert hasher.score(X[TEST], Y[TEST]) > 0.4


class TestClassifierOutput:
    @pytest.mark.parametrize("y", [Y, Y > 4, TAGS], ids=["classes", "two", "tags"])
    @pytest.mark.parametrize("scores", ["probability", "decision"])
    def test_arrays_give_what_the_classifier_gives(self, y, scores):
        hasher = ClassifierOutput(16, scores=scores, random_state=0).fit(X[TRAIN], y[TRAIN])
        assert isinstance(hasher.encoder_, ClassScores if scores == "probability" else Linear)
        method = "predict_proba" if scores == "probability" else "decision_function"
        values = np.asarray(getattr(hasher.estimator_, method)(X))
        if values.ndim == 1:
            values = np.column_stack([-values, values])
        if scores == "decision":
            values = values - values.mean(axis=1, keepdims=True)
        shares = TAGS[TRAIN].mean(axis=0) if y is TAGS and scores == "probability" else np.zeros(values.shape[1])
        np.testing.assert_allclose(hasher.decision_function(X), (values - shares) @ hasher.code_book_, atol=1e-6)

    def test_a_confident_item_has_the_code_word_of_its_class(self):
        hasher = ClassifierOutput(32, random_state=0).fit(X[TRAIN], Y[TRAIN])
        sure = hasher.estimator_.predict_proba(X).max(axis=1) > 0.5
        assert sure.mean() > 0.8
        words = hasher.code_book_[hasher.estimator_.predict(X)] > 0
        np.testing.assert_array_equal(hasher.decision_function(X[sure]) > 0, words[sure])

    def test_any_classifier(self, tmp_path):
        hasher = ClassifierOutput(16, estimator=RandomForestClassifier(10), random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert isinstance(hasher.encoder_, ScoredClassifier)
        assert hasher.score(X[TEST], Y[TEST]) > 0.6
        with pytest.raises(ValueError, match=r"ScoredClassifier\(RandomForestClassifier\) cannot be saved"):
            hasher.save(tmp_path / "m.hashgrove")
        two = type(hasher.encoder_).concatenate([hasher.encoder_, hasher.encoder_])
        np.testing.assert_array_equal(two.scores(X[:9])[:, 16:], hasher.encoder_.scores(X[:9]))
        other = ClassifierOutput(16, estimator=RandomForestClassifier(3)).fit(X[TRAIN], Y[TRAIN])
        with pytest.raises(ValueError, match="same classifier"):
            type(hasher.encoder_).concatenate([hasher.encoder_, other.encoder_])
        assert isinstance(ClassifierOutput(8, estimator=LinearSVC()).fit(X[TRAIN], Y[TRAIN]).encoder_, Linear)

    def test_code_words_are_far_apart(self):
        for n_classes, n_bits in ((10, 64), (10, 48), (100, 32), (2, 1)):
            book = code_book(n_classes, n_bits, np.random.default_rng(0)).astype(int)
            distance = (n_bits - book @ book.T) / 2
            assert book.shape == (n_classes, n_bits)
            if n_bits == 64:
                assert (distance + n_bits * np.eye(n_classes)).min() >= n_bits / 2
            assert n_bits < 32 or (distance + n_bits * np.eye(n_classes)).min() > n_bits / 5

    def test_default_gives_no_warning(self, monkeypatch):
        def stopped_at_once(**settings):
            return LogisticRegression(**{**settings, "max_iter": 1})

        monkeypatch.setattr("hashgrove.baselines.classifier_output.LogisticRegression", stopped_at_once)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ClassifierOutput(8, random_state=0).fit(X[TRAIN], Y[TRAIN])

    def test_random_state_seeds_the_classifier(self):
        estimator = LogisticRegression(solver="saga", max_iter=2, tol=1e-9)
        with pytest.warns(UserWarning, match="max_iter was reached"):
            first, same = (ClassifierOutput(8, estimator=estimator, random_state=4).fit(X, Y) for _ in range(2))
        np.testing.assert_array_equal(first.estimator_.coef_, same.estimator_.coef_)

    def test_arrays_of_an_encoder_are_checked(self):
        arrays = ClassifierOutput(8, random_state=0).fit(X[TRAIN], Y[TRAIN]).encoder_.arrays()
        ClassScores.from_arrays(arrays)
        for name, wrong in (
            ("bias", np.zeros(3)),
            ("book", arrays["book"].astype(np.float32)),
            ("weights", np.full_like(arrays["weights"], np.nan)),
            ("exclusive", np.array(1)),
        ):
            with pytest.raises(ValueError, match=name):
                ClassScores.from_arrays({**arrays, name: wrong})


def test_gaussian_features_equal_those_of_the_encoder():
    anchors = GaussianFeatures.draw(X[TRAIN].astype(np.uint8), n_anchors=20, gamma=None, rng=np.random.default_rng(0))
    weights = np.random.default_rng(0).normal(size=(3, 20))
    features = anchors.features(X)
    np.testing.assert_allclose(anchors.features(X[TRAIN]).mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(
        Kernel.on_features(anchors, weights, np.ones(3)).scores(X), features @ weights.T + 1, atol=1e-9
    )


def test_two_step_hashing_is_fasthash_with_other_parameters():
    """TSH (Lin et al., ICCV 2013) infers all bits, with the final number of bits, before it learns a hash function."""
    tsh = {
        "loss": "ksh", "inference": "spectral", "stagewise": False, "weighted": False, "loss_length": "final",
        "random_state": 0,
    }  # fmt: skip

    class Recording(LinearSVM):
        def learn(self, data, z, weights, rng):
            seen.append(weights)
            return super().learn(data, z, weights, rng)

    seen = []
    hasher = FastHash(12, hash_function=KernelSVM(n_support=100), **tsh).fit(X[TRAIN], Y[TRAIN])
    other = FastHash(12, hash_function=Recording(), **tsh).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_array_equal(hasher.inferred_codes_, other.inferred_codes_)
    assert [a.objective for a in hasher.history_] == [b.objective for b in other.history_]
    assert seen == [None] * 12
    assert not np.array_equal(hasher.transform(X), other.transform(X))
    assert isinstance(hasher.encoder_, Kernel)
    assert hasher.score(X[TEST], Y[TEST]) > 0.7, "chance is 0.1; with the current length it is above 0.8"


@pytest.mark.parametrize(("loss_length", "lengths"), [("current", [1, 2, 3]), ("final", [3, 3, 3])])
def test_the_loss_is_that_of_the_current_or_the_final_length(loss_length, lengths):
    class Recording(ICM):
        def solve(self, state, problem, rng):
            seen.append(problem.coefficients)
            return super().solve(state, problem, rng)

    seen = []
    settings = {"hash_function": LinearSVM(), "loss_length": loss_length, "random_state": 0}
    FastHash(3, loss="ksh", inference=Recording(), **settings).fit(X[TRAIN], Y[TRAIN])
    for found, length in zip(seen, lengths, strict=True):
        for table, expected in zip(found, coefficients(ksh_loss, length), strict=True):
            np.testing.assert_array_equal(table, expected)
