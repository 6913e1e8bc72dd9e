"""Supervised methods of the paper: what their papers claim, and the contracts of tests/baseline_contract.py."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

import naive
from baseline_contract import TEST, TRAIN, PairwiseContract, SupervisedContract
from experiments.baselines import BRE, COSDISH, MLH, SPLH, bre, mlh, splh
from experiments.baselines.cosdish import solve_quadratic, update_columns
from experiments.tests import naive_rivals
from hashgrove import Affinity, FlatIndex, evaluate, load
from hashgrove.baselines import ITQ
from hashgrove.encoders import Kernel, Linear

X, Y = load_digits(return_X_y=True)

QUICK = {  # every method, with settings that keep the tests short
    "bre": lambda n_bits, **rest: BRE(n_bits, n_anchors=60, anchors_per_bit=20, n_iter=2, **rest),
    "cosdish": lambda n_bits, **rest: COSDISH(n_bits, n_rounds=4, **rest),
    "mlh": lambda n_bits, **rest: MLH(n_bits, n_iter=5, n_pairs=5000, n_similar=999, n_dissimilar=999, **rest),
    "splh": lambda n_bits, **rest: SPLH(n_bits, n_labelled=400, **rest),
}


@pytest.fixture(params=sorted(QUICK))
def make(request):
    return QUICK[request.param]


@pytest.fixture
def make_pairwise(make):
    return make


class TestSupervised(SupervisedContract):
    pass


class TestPairwise(PairwiseContract):
    pass


@pytest.mark.parametrize(
    ("hasher", "name"),
    [
        (BRE(8, anchors_per_bit=0), "anchors_per_bit"),
        (SPLH(8, eta=-1), "eta"),
        (MLH(8, rho=0), "rho"),
        (MLH(8, momentum=np.nan), "momentum"),
        (COSDISH(8, ridge=0), "ridge"),
    ],
)
def test_parameters_are_checked(hasher, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be"):
        hasher.fit(X, Y)


def test_labels_help():
    """On the digits all of these methods are clearly better than ITQ, which learns without labels."""
    train, test = np.arange(0, len(X), 2), np.arange(1, len(X), 2)
    scores = {
        name: make(32, random_state=0).fit(X[train], Y[train]).score(X[test], Y[test]) for name, make in QUICK.items()
    }
    itq = ITQ(32, random_state=0).fit(X[train]).score(X[test], Y[test])
    assert min(scores.values()) > itq + 0.02, (scores, itq)


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
            found = naive_rivals.cut_cost(C, values > 0)
            assert found == pytest.approx(naive_rivals.least_on_line(K, weights, q, C))

    def test_the_compiled_kernel_gives_what_python_gives(self):
        rng = np.random.default_rng(0)
        K, weights = rng.normal(size=(4, 25)), rng.normal(size=4)
        matrix = sparse.csr_array(np.ones((25, 25)) - np.eye(25))
        pairs = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), rng.normal(size=matrix.nnz)
        found = []
        for descend in (bre.descend, getattr(bre.descend, "py_func", bre.descend)):
            w, values = weights.copy(), weights @ K
            moved = descend(K, np.arange(4), np.array([2, 0, 3, 1]), w, values, *pairs)
            found.append((moved, w, values))
        assert found[0][0] == found[1][0]
        np.testing.assert_allclose(found[0][1], found[1][1])
        np.testing.assert_allclose(found[0][2], found[1][2])

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
