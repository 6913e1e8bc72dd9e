"""Logistic regression of many labels: equal to scikit-learn's, and no row sees its own label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from hashgrove.numerics import logistic
from hashgrove.numerics.logistic import MIDDLE, PENALTIES, fit_logits, fit_out_of_fold, refit_out_of_fold, split_folds
from makers import blob_tags, blobs

X, Y = (part[:90] for part in blobs(120, 6, 10, noise=0.3))
X = (X - X.mean(axis=0)).astype(np.float32)
CLASSES = np.eye(6)[Y]


def out_of_fold(X=X, labels=CLASSES, *, exclusive=True, weights=None, seed=0, n_jobs=1):
    folds = split_folds(labels, exclusive=exclusive, rng=np.random.default_rng(seed))
    given = {"folds": folds, "sample_weight": weights, "rng": np.random.default_rng(1), "n_jobs": n_jobs}
    return folds, fit_out_of_fold(X, labels, exclusive=exclusive, **given)


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-10)
    monkeypatch.setattr(logistic, "MAX_ITER", 2000)


@pytest.mark.usefixtures("exact")
class TestSolution:
    @pytest.mark.parametrize("weights", [None, np.linspace(0.2, 2, len(X))], ids=["equal", "weighted"])
    @pytest.mark.parametrize("penalty", [0.1, 3.0])
    def test_classes_as_by_scikit_learn(self, penalty, weights):
        found = fit_logits(X, CLASSES, penalty=penalty, exclusive=True, sample_weight=weights)
        expected = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=5000).fit(X, Y, sample_weight=weights)
        np.testing.assert_allclose(found.weights, expected.coef_, atol=5e-3)
        np.testing.assert_allclose(found.bias - found.bias.mean(), expected.intercept_, atol=5e-3)

    def test_tags_as_by_scikit_learn(self):
        rows, tags = blob_tags()
        rows = rows.astype(np.float32)
        found = fit_logits(rows, tags, penalty=0.5, exclusive=False)
        for j in range(tags.shape[1]):
            expected = LogisticRegression(C=2.0, tol=1e-8, max_iter=5000).fit(rows, tags[:, j])
            np.testing.assert_allclose(found.weights[j], expected.coef_[0], atol=1e-2)
            np.testing.assert_allclose(found.bias[j], expected.intercept_[0], atol=1e-2)

    def test_the_start_does_not_matter(self):
        first = fit_logits(X, CLASSES, penalty=10.0, exclusive=True)
        with_start = fit_logits(X, CLASSES, penalty=0.3, exclusive=True, start=first)
        np.testing.assert_allclose(
            with_start.weights, fit_logits(X, CLASSES, penalty=0.3, exclusive=True).weights, atol=2e-3
        )

    def test_soft_targets_count_like_rows_of_both_labels(self):
        soft = fit_logits(X[:1], np.array([[0.25, 0.75]]), penalty=0.1, exclusive=True)
        hard = fit_logits(
            np.repeat(X[:1], 2, axis=0),
            np.eye(2),
            penalty=0.1,
            exclusive=True,
            sample_weight=np.array([0.25, 0.75]),
        )
        np.testing.assert_allclose(soft.of(X[:1]), hard.of(X[:1]), atol=1e-3)

    @pytest.mark.parametrize(("n", "d"), [(60, 200), (90, 10)], ids=["wide", "tall"])
    def test_left_out_logits_are_those_of_the_other_folds(self, n, d):
        rows, y = blobs(n, 4, d, noise=0.2)
        rows, labels = rows.astype(np.float32) + 3, np.eye(4)[y]
        folds, found = out_of_fold(rows, labels)
        centred = rows - rows.mean(axis=0)
        for k in range(3):
            other = fit_logits(centred[folds != k], labels[folds != k], penalty=found.penalty, exclusive=True)
            logits, left_out = (z - z.mean(axis=1, keepdims=True) for z in (other.of(centred), found.left_out))
            np.testing.assert_allclose(left_out[folds == k], logits[folds == k], atol=0.1)
        whole = fit_logits(centred, labels, penalty=found.penalty, exclusive=True)
        np.testing.assert_allclose(found.model.of(rows), whole.of(centred), atol=0.1)

    @pytest.mark.parametrize(("noise", "step"), [(0.1, 1), (0.3, -1), (2.0, -1)])
    def test_the_first_fold_chooses_the_most_likely_penalty(self, noise, step):
        """The search starts in the middle and goes to weaker penalties or to stronger ones."""
        rows, y = (part[:90] for part in blobs(120, 6, 10, noise=noise))
        rows, labels = (rows - rows.mean(axis=0)).astype(np.float32), np.eye(6)[y]
        folds, found = out_of_fold(rows, labels)
        others, losses = folds != 0, []
        for penalty in PENALTIES:
            model = fit_logits(rows[others], labels[others], penalty=penalty, exclusive=True)
            logits = model.of(rows[~others])
            losses.append((logsumexp(logits, axis=1) - logits[labels[~others] > 0]).mean())
        best = np.argmin(losses)
        assert found.penalty == PENALTIES[best]
        assert np.sign(best - MIDDLE) == step


def test_rows_of_weight_zero_do_not_choose_the_penalty():
    """Half of the rows of the fold that chooses have labels of chance, and count for nothing."""
    folds = split_folds(CLASSES, exclusive=True, rng=np.random.default_rng(0))
    weights = np.where((folds == 0) & (np.cumsum(folds == 0) % 2 == 0), 0.0, 1.0)
    noise = CLASSES.copy()
    noise[weights == 0] = np.eye(6)[np.random.default_rng(1).integers(6, size=int((weights == 0).sum()))]
    given = {"exclusive": True, "folds": folds, "sample_weight": weights}
    one, two = (fit_out_of_fold(X, y, rng=np.random.default_rng(1), **given) for y in (CLASSES, noise))
    assert one.penalty == two.penalty
    np.testing.assert_allclose(one.left_out, two.left_out, rtol=1e-4, atol=1e-4)


def test_folds_divide_each_class_evenly():
    folds = split_folds(CLASSES, exclusive=True, rng=np.random.default_rng(0))
    counts = np.array([np.bincount(folds[c == Y], minlength=3) for c in range(6)])
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_many_rows_choose_the_penalty_by_a_sample(monkeypatch):
    whole = out_of_fold()[1]
    monkeypatch.setattr(logistic, "CHOOSING_ROWS", 60)
    sampled = out_of_fold()[1]
    assert (sampled.left_out.argmax(axis=1) == whole.left_out.argmax(axis=1)).mean() > 0.9
    assert (sampled.left_out != 0).any(axis=1).all()


def test_the_same_result_with_any_number_of_threads():
    (_, one), (_, two) = out_of_fold(n_jobs=1), out_of_fold(n_jobs=2)
    np.testing.assert_array_equal(one.left_out, two.left_out)
    np.testing.assert_array_equal(one.model.weights, two.model.weights)


class TestOtherRows:
    """`refit_out_of_fold`: rows without a label, with guessed probabilities."""

    OTHERS, TRUTH = (part[90:] for part in blobs(120, 6, 10, noise=0.3))
    OTHERS = (OTHERS - OTHERS.mean(axis=0)).astype(np.float32)

    def refit(self, guess, *, weights=None, n_jobs=1):
        folds, earlier = out_of_fold(weights=weights)
        options = {"exclusive": True, "folds": folds, "sample_weight": weights, "n_jobs": n_jobs}
        return folds, earlier, refit_out_of_fold(earlier, X, CLASSES, self.OTHERS, guess, **options)

    @pytest.mark.usefixtures("exact")
    @pytest.mark.parametrize("weights", [None, np.linspace(0.2, 2, len(X))], ids=["equal", "weighted"])
    def test_the_models_are_those_of_all_rows_together(self, weights):
        guessed = np.eye(6)[self.TRUTH]
        folds, earlier, found = self.refit(lambda visible, model: guessed, weights=weights)
        rows, labels = np.concatenate([X, self.OTHERS]), np.concatenate([CLASSES, guessed])
        known = np.ones(len(X)) if weights is None else weights
        counts = np.append(known, np.full(len(self.OTHERS), known.mean()))
        penalty = earlier.penalty * len(rows) / len(X)
        for kept, logits in (
            (np.ones(len(X), bool), found.model.of(X)),
            *((folds != k, np.where((folds == k)[:, None], found.left_out, np.nan)) for k in range(3)),
        ):
            chosen = np.append(kept, np.ones(len(self.OTHERS), bool))
            alone = fit_logits(
                rows[chosen], labels[chosen], penalty=penalty, exclusive=True, sample_weight=counts[chosen]
            )
            seen = ~np.isnan(logits).any(axis=1)
            ours, expected = (z - z.mean(axis=1, keepdims=True) for z in (logits[seen], alone.of(X[seen])))
            np.testing.assert_allclose(ours, expected, atol=0.05)

    def test_each_guess_is_asked_for_with_the_model_that_saw_the_visible_labels(self):
        asked = []

        def guess(visible, model):
            asked.append((visible, model))
            return np.full((len(self.OTHERS), 6), 1 / 6)

        folds, earlier, _ = self.refit(guess)
        assert [mask.tolist() for mask, _ in asked] == [[True] * len(X), *((folds != k).tolist() for k in range(3))]
        assert [id(model) for _, model in asked] == [id(model) for model in (earlier.model, *earlier.of_folds)]

    def test_the_same_result_with_any_number_of_threads(self):
        one, two = (
            self.refit(lambda visible, model: np.eye(6)[model.of(self.OTHERS).argmax(axis=1)], n_jobs=n)[2]
            for n in (1, 2)
        )
        np.testing.assert_array_equal(one.left_out, two.left_out)
        np.testing.assert_array_equal(one.model.weights, two.model.weights)
