"""Supervised baselines: what their papers claim, and what they share beyond the contract of test_baselines.py."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import naive
from hashgrove import ICM, Affinity, FastHash, FlatIndex, KernelSVM, LinearSVM, evaluate, load
from hashgrove.baselines import (
    BRE,
    CCAITQ,
    COSDISH,
    ITQ,
    KSH,
    LSH,
    MLH,
    SDH,
    SPLH,
    ClassifierOutput,
    bre,
    ksh,
    mlh,
    splh,
)
from hashgrove.baselines.classifier_output import ScoredClassifier, code_book
from hashgrove.baselines.cosdish import solve_quadratic, update_columns
from hashgrove.baselines.sdh import code_step
from hashgrove.encoders import ClassScores, Kernel, Linear
from hashgrove.losses import coefficients
from hashgrove.losses import ksh as ksh_loss
from hashgrove.numerics.eigen import whitening
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.supervision.similarity import SparseSimilarity

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = np.arange(0, 1000, 2), np.arange(1, 1000, 2)
TAGS = np.column_stack([Y % 2, Y > 4, Y % 3 == 0, Y < 7]).astype(int)  # similar digits share at least two of these

QUICK = {  # every method, with settings that keep the tests short
    "bre": lambda n_bits, **rest: BRE(n_bits, n_anchors=60, anchors_per_bit=20, n_iter=2, **rest),
    "cca-itq": lambda n_bits, **rest: CCAITQ(n_bits, n_iter=20, **rest),
    "classifier": lambda n_bits, **rest: ClassifierOutput(n_bits, **rest),
    "cosdish": lambda n_bits, **rest: COSDISH(n_bits, n_rounds=4, **rest),
    "ksh": lambda n_bits, **rest: KSH(n_bits, n_anchors=60, max_iter=20, **rest),
    "mlh": lambda n_bits, **rest: MLH(n_bits, n_iter=5, n_pairs=5000, n_similar=999, n_dissimilar=999, **rest),
    "sdh": lambda n_bits, **rest: SDH(n_bits, n_anchors=100, **rest),
    "splh": lambda n_bits, **rest: SPLH(n_bits, n_labelled=400, **rest),
}
PAIRWISE = ["bre", "cosdish", "ksh", "mlh", "splh"]


@pytest.fixture(params=sorted(QUICK))
def make(request):
    return QUICK[request.param]


@pytest.fixture(params=PAIRWISE)
def make_pairwise(request):
    return QUICK[request.param]


def test_far_from_the_origin(make):
    near = make(16, random_state=0).fit(X[TRAIN], Y[TRAIN])
    far = make(16, random_state=0).fit(X[TRAIN] + 1000, Y[TRAIN])
    # rounding may rotate directions with equal eigenvalues, and so change all codes, but not their quality
    assert far.score(X[TEST] + 1000, Y[TEST]) == pytest.approx(near.score(X[TEST], Y[TEST]), abs=0.05)


def test_tags(make):
    hasher = make(24, random_state=0).fit(X[TRAIN], TAGS[TRAIN])
    same = make(24, random_state=0).fit(X[TRAIN], sparse.csr_matrix(TAGS[TRAIN]))
    np.testing.assert_array_equal(hasher.transform(X), same.transform(X))
    blind = LSH(24, random_state=0).fit(X[TRAIN]).score(X[TEST], TAGS[TEST])
    assert hasher.score(X[TEST], TAGS[TEST]) > blind + 0.03


def test_pairs(make_pairwise):
    S = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1, -1)
    S[np.random.default_rng(0).random(S.shape) < 0.5] = 0
    hasher = make_pairwise(24, random_state=0).fit(X[TRAIN], affinity=sparse.csr_matrix(S))
    assert hasher.score(X[TEST], Y[TEST]) > LSH(24, random_state=0).fit(X[TRAIN]).score(X[TEST], Y[TEST]) + 0.05
    affinity = Affinity.from_pairs(sparse.csr_matrix(S), n_similar=None, n_dissimilar=None)
    same = make_pairwise(24, random_state=0).fit(X[TRAIN], affinity=affinity)
    np.testing.assert_array_equal(hasher.transform(X), same.transform(X))


def test_needs_labels_of_the_right_kind(make):
    with pytest.raises(ValueError, match="requires y to be passed"):
        make(8).fit(X)
    with pytest.raises(ValueError, match="at least two classes"):
        make(8).fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="at least one tag"):
        make(8).fit(X, np.zeros((len(X), 3)))


def test_y_and_pairs_exclude_each_other(make_pairwise):
    with pytest.raises(ValueError, match="Only one of y, affinity and triplets"):
        make_pairwise(8).fit(X, Y, affinity=([0], [1], [1]))
    with pytest.raises(ValueError, match="The 'min_shared' parameter"):
        make_pairwise(8, min_shared=0).fit(X, TAGS)


@pytest.mark.parametrize(
    ("hasher", "name"),
    [
        (KSH(8, n_anchors=0), "n_anchors"),
        (KSH(8, gamma=-1.0), "gamma"),
        (KSH(8, n_labelled=1.5), "n_labelled"),
        (BRE(8, anchors_per_bit=0), "anchors_per_bit"),
        (SDH(8, nu=0), "nu"),
        (SPLH(8, eta=-1), "eta"),
        (MLH(8, rho=0), "rho"),
        (MLH(8, momentum=np.nan), "momentum"),
        (COSDISH(8, ridge=0), "ridge"),
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


class TestBRE:
    def test_objective_never_increases_and_follows_from_the_codes(self):
        hasher = BRE(12, n_anchors=40, anchors_per_bit=15, n_similar=None, n_dissimilar=None, n_iter=3, random_state=0)
        hasher.fit(X[TRAIN][:200], Y[TRAIN][:200])
        assert np.all(np.diff(hasher.objective_) <= 1e-12)
        assert hasher.objective_[-1] < 0.9 * hasher.objective_[0]
        bits = hasher.decision_function(X[TRAIN][:200]) > 0
        distances = (bits[:, None] != bits).mean(axis=2)
        off = ~np.eye(200, dtype=bool)
        wanted = Y[TRAIN][:200][:, None] != Y[TRAIN][:200]
        assert hasher.objective_[-1] == pytest.approx(np.mean((wanted - distances)[off] ** 2))

    @pytest.mark.parametrize("seed", range(5))
    def test_step_is_the_best_on_its_line(self, seed):
        rng = np.random.default_rng(seed)
        n, n_anchors = 25, 4
        K, weights = rng.normal(size=(n_anchors, n)), rng.normal(size=n_anchors)
        K[0, :5] = 0.0
        C = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.5), 1)
        matrix = sparse.csr_array(C + C.T)
        for q in range(n_anchors):
            w, values = weights.copy(), weights @ K
            args = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data
            bre.descend(K, np.arange(n_anchors), np.array([q]), w, values, *args)
            np.testing.assert_allclose(values, w @ K)
            assert np.array_equal(np.delete(w, q), np.delete(weights, q))
            found = naive.cut_cost(C, values > 0)
            assert found == pytest.approx(naive.least_on_line(K, weights, q, C))

    @pytest.mark.parametrize("n_labelled", [300, 1200])
    def test_learns_from_as_many_labelled_points_as_it_says(self, n_labelled, monkeypatch):
        descend, sizes = bre.descend, []

        def recording(K, chosen, order, weights, values, *pairs):
            sizes.append((K.shape[1], len(values), len(pairs[0]) - 1))
            return descend(K, chosen, order, weights, values, *pairs)

        monkeypatch.setattr(bre, "descend", recording)
        BRE(2, n_anchors=20, anchors_per_bit=4, n_labelled=n_labelled, n_iter=1, random_state=0).fit(X, Y)
        assert set(sizes) == {(n_labelled, n_labelled, n_labelled)}

    def test_stops_when_no_weight_changes(self):
        hasher = BRE(1, n_anchors=3, anchors_per_bit=3, n_iter=50, random_state=0).fit(X[TRAIN][:60], Y[TRAIN][:60])
        assert len(hasher.objective_) < 51


class TestSPLH:
    @pytest.mark.parametrize(("n_rows", "n_features"), [(300, 80), (60, 80), (60, 20)])
    def test_eigenvectors_from_products_equal_those_of_the_matrix(self, n_rows, n_features):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(n_rows, n_features)) * np.arange(1, n_features + 1)
        mean = rows.mean(axis=0)
        residual, C = splh.ResidualCovariance(rows, mean), np.cov(rows.T, bias=True)
        for _ in range(4):
            w = splh.top_eigenvector(residual.times, n_features, rng)
            expected = np.linalg.eigh(C)[1][:, -1]
            np.testing.assert_allclose(w * np.sign(w @ expected), expected, atol=1e-6)
            residual.remove(w)
            P = np.eye(n_features) - np.outer(w, w)
            C = P @ C @ P
            v = rng.normal(size=n_features)
            np.testing.assert_allclose(residual.times(v), C @ v, atol=1e-6 * np.abs(C).max())

    def test_data_that_do_not_vary(self):
        hasher = SPLH(4, random_state=0).fit(np.ones((30, 70)), np.arange(30) % 2)
        assert np.isfinite(hasher.encoder_.weights).all()

    def test_first_direction_maximises_fit_and_variance(self):
        hasher = SPLH(1, n_labelled=None, eta=0.3, random_state=0).fit(X[TRAIN], Y[TRAIN])
        centred = X[TRAIN] - X[TRAIN].mean(axis=0)
        S = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1.0, -1.0)
        M = centred.T @ S @ centred / S.size + 0.3 * centred.T @ centred / len(centred)
        w = hasher.encoder_.weights[0]
        np.testing.assert_allclose(M @ w, np.linalg.eigvalsh(M)[-1] * w, atol=1e-8)
        np.testing.assert_allclose(hasher.encoder_.scores(X[TRAIN].mean(axis=0)[None]), 0, atol=1e-9)

    def test_without_labels_it_is_pca(self):
        hasher = SPLH(5, n_labelled=10, eta=1e12, random_state=0).fit(X[TRAIN], Y[TRAIN])
        axes = np.linalg.svd(X[TRAIN] - X[TRAIN].mean(axis=0))[2][:5]
        np.testing.assert_allclose(np.abs(np.sum(axes * hasher.encoder_.weights, axis=1)), 1, atol=1e-5)

    @pytest.mark.parametrize("update", ["scaled", "author"])
    def test_the_unit_of_the_features_does_not_matter(self, update, tmp_path):
        small, huge = (
            SPLH(6, n_labelled=100, update=update, random_state=0).fit(X[TRAIN] * unit, Y[TRAIN])
            for unit in (1.0, 2.0**600)
        )
        np.testing.assert_array_equal(small.transform(X), huge.transform(X * 2.0**600))
        huge.save(tmp_path / "model")
        np.testing.assert_array_equal(load(tmp_path / "model").encode(X * 2.0**600), small.transform(X))

    def test_the_authors_update_adds_the_contradictions_themselves(self):
        """The second direction, by the formulas, on features of mean norm 1 but for a power of two."""
        hasher = SPLH(2, n_labelled=None, update="author", random_state=0).fit(X[TRAIN], Y[TRAIN])
        rows = X[TRAIN] - X[TRAIN].mean(axis=0)
        rows = rows / 2.0 ** round(np.log2(np.linalg.norm(rows, axis=1).mean()))
        S = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1.0, -1.0)
        first = hasher.encoder_.weights[0]
        M = rows.T @ rows / len(rows) + 0.2 * rows.T @ S @ rows / len(rows)
        assert abs(np.linalg.eigh(M)[1][:, -1] @ first) == pytest.approx(1)
        p = rows @ first
        products = np.outer(p, p)
        S = S - np.where(products * S < 0, products, 0)
        rest = rows - np.outer(p, first)
        M = rest.T @ rest / len(rows) + 0.2 * rows.T @ S @ rows / len(rows)
        assert abs(np.linalg.eigh(M)[1][:, -1] @ hasher.encoder_.weights[1]) == pytest.approx(1)

    def test_later_bits_correct_earlier_ones(self):
        hasher = SPLH(24, n_labelled=300, random_state=0).fit(X[TRAIN], Y[TRAIN])
        still = SPLH(24, n_labelled=300, alpha=0, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert hasher.violated_[-1] < 0.85 * hasher.violated_[0]
        assert hasher.violated_[-1] < still.violated_[-1]

    def test_more_bits_than_features(self):
        assert SPLH(9, random_state=0).fit(X[TRAIN][:, 20:24], Y[TRAIN]).transform(X[:, 20:24]).shape == (len(X), 2)


class TestMLH:
    def test_loss_and_bound_fall(self):
        hasher = MLH(16, n_iter=8, n_pairs=5000, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert hasher.loss_[-1] < 0.8 * hasher.loss_[0]
        assert hasher.bound_[-1] < hasher.bound_[0]
        assert np.all(hasher.bound_ >= hasher.loss_ / 16)

    def test_an_epoch_has_as_many_pairs_as_it_says(self, monkeypatch):
        draw, sizes = mlh.PairSource.draw, []

        def recording(source, n_pairs, rng):
            sizes.append(n_pairs)
            return draw(source, n_pairs, rng)

        monkeypatch.setattr(mlh.PairSource, "draw", recording)
        MLH(8, n_iter=3, n_pairs=700, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert sizes == [100] * 21

    def test_normalised_losses_of_the_author(self):
        plain, normalised = (mlh.pair_losses(64, rho=8, lam=0.5, normalise=flag) for flag in (False, True))
        np.testing.assert_allclose(normalised, plain / np.array([[8 + 1], [64 - 8 + 1]]))
        settings = {"rho": 1, "n_iter": 1, "n_pairs": 500, "random_state": 0}
        by_flag = [MLH(8, normalise=flag, **settings).fit(X[TRAIN], Y[TRAIN]) for flag in (False, True)]
        assert by_flag[0].loss_[0] > 1 > by_flag[1].loss_[0], "a normalised loss is at most 1"

    @pytest.mark.parametrize("seed", range(8))
    def test_inference_is_exact(self, seed):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(2, 1, 4))
        losses = rng.random((1, 5)) * 3
        g, h, distance = mlh.adjusted_codes(a, b, losses)
        assert distance[0] == (g != h).sum()
        found = (g @ a.T + h @ b.T).item() + losses[0, distance[0]]
        codes = [np.array(c) for c in product([-1, 1], repeat=4)]
        best = max(float(x @ a[0] + z @ b[0] + losses[0, (x != z).sum()]) for x in codes for z in codes)
        assert found == pytest.approx(best)

    def test_pairs_are_drawn_from_the_affinity(self):
        affinity = Affinity.from_labels(Y[:100], n_similar=3, n_dissimilar=3, random_state=0)
        first, second, similar = mlh.PairSource.of(affinity).draw(400, np.random.default_rng(0))
        assert similar.sum() == 200
        np.testing.assert_array_equal(Y[first] == Y[second], similar == 1)
        only = Affinity.from_pairs(sparse.csr_array(([1.0], ([0], [1])), shape=(3, 3)))
        assert mlh.PairSource.of(only).draw(7, np.random.default_rng(0))[2].all()

    def test_hyperplanes_have_equal_length(self):
        weights = MLH(8, n_iter=1, n_pairs=500, random_state=0).fit(X[TRAIN], Y[TRAIN]).encoder_.weights
        np.testing.assert_allclose(np.linalg.norm(weights, axis=1), np.linalg.norm(weights[0]))


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


class TestCOSDISH:
    def test_each_of_many_classes_has_its_own_code(self):
        rng = np.random.default_rng(0)
        y = np.arange(600) % 60
        rows = rng.normal(size=(60, 20))[y] + 0.1 * rng.normal(size=(600, 20))
        few, enough = (COSDISH(16, n_columns=n, random_state=0).fit(rows, y) for n in (16, None))
        assert len(np.unique(few.codes_, axis=0)) < 30, "a class without a column shares its code with others"
        assert len(np.unique(enough.codes_, axis=0)) > 50

    def test_update_of_columns_never_increases_the_error(self):
        hasher = COSDISH(12, random_state=0).fit(X[TRAIN], Y[TRAIN])
        before, after = hasher.objective_[..., 0], hasher.objective_[..., 1]
        assert np.all(after <= before + 1e-12)
        assert after[-1, -1] < 0.5 * before[0, 0]

    def test_update_lowers_the_error_by_definition(self):
        rng = np.random.default_rng(0)
        S_c, S_o = np.sign(rng.normal(size=(6, 6))), np.sign(rng.normal(size=(20, 6)))
        S_c = np.triu(S_c) + np.triu(S_c, 1).T
        B_c, B_o = np.sign(rng.normal(size=(6, 5))), np.sign(rng.normal(size=(20, 5)))

        def error(codes):
            return np.sum((5 * S_c - codes @ codes.T) ** 2) + np.sum((5 * S_o - B_o @ codes.T) ** 2)

        new = update_columns(S_c, S_o, B_c, B_o)
        assert error(new) < error(B_c)
        for i, k in product(range(6), [4]):  # the last bit was fitted to the final values of all others
            other = new.copy()
            other[i, k] *= -1
            assert error(other) >= error(new) - 1e-9

    def test_quadratic_problem_is_solved_well(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            R, linear = rng.normal(size=(8, 8)), rng.normal(size=8)
            R = R + R.T
            np.fill_diagonal(R, 0.0)
            z = solve_quadratic(R, linear, np.ones(8))
            best = -naive.least(lambda s, R=R, linear=linear: -(s @ R @ s + 2 * linear @ s), 8)
            assert best / 2 <= z @ R @ z + 2 * linear @ z <= best + 1e-9

    def test_codes_of_the_same_class_are_similar(self):
        codes = COSDISH(16, random_state=0).fit(X[TRAIN], Y[TRAIN]).codes_
        products = codes.astype(int) @ codes.T.astype(int) / 16
        same = Y[TRAIN][:, None] == Y[TRAIN]
        assert products[same].mean() > 0.9
        assert products[~same].mean() < 0.2

    def test_anchors_give_kernel_functions(self):
        linear = COSDISH(16, random_state=0).fit(X[TRAIN], Y[TRAIN])
        kernel = COSDISH(16, n_anchors=100, ridge=0.01, random_state=0).fit(X[TRAIN], Y[TRAIN])
        assert isinstance(linear.encoder_, Linear)
        assert isinstance(kernel.encoder_, Kernel)
        assert kernel.score(X[TEST], Y[TEST]) > linear.score(X[TEST], Y[TEST])


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
