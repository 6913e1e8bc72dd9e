"""Labels that spread over near rows, and regressions that learn from rows without a label."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove import FastHash, PosteriorBits
from hashgrove.functions import DecodableBits, spreading
from hashgrove.functions.clusters import are_familiar
from hashgrove.functions.posterior import LabelPosterior, UnitRows
from hashgrove.numerics.near_rows import near_rows_graph, spread_labels
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import ClassLabels
from makers import blob_tags, blobs

X, Y = blobs(480, 8, 24, noise=0.22)
KNOWN = np.arange(len(X)) < 24  # three rows per class
PARTLY = np.where(KNOWN, Y, -1)
X_NEW, Y_NEW = blobs(240, 8, 24, noise=0.22, seed=1)
LEARNERS = [PosteriorBits(classifier="logistic"), DecodableBits()]
LEARNER_NAMES = ["posterior", "decodable"]


def small(function, **parameters):
    return FastHash(32, **{"hash_function": function, "random_state": 0, "n_jobs": 1} | parameters)


def regression(rows, labels, rng):
    known = labels.indicator().toarray()
    known = known[:, known.any(axis=0)]
    return spreading.logistic_regression(rows, known, labels, rng, others=unit_rows(X[~KNOWN]))


class TestNearRows:
    @pytest.mark.parametrize("n_neighbours", [1, 3, 10])
    def test_equal_to_pair_by_pair(self, n_neighbours, monkeypatch):
        monkeypatch.setattr("hashgrove.numerics.near_rows.ROWS_PER_CHUNK", 16)
        Z = unit_rows(X[:60])
        graph = near_rows_graph(Z, n_neighbours=n_neighbours)
        np.testing.assert_allclose(graph.toarray(), naive.near_rows(Z, n_neighbours=n_neighbours), atol=1e-5)

    def test_fewer_rows_than_neighbours(self):
        graph = near_rows_graph(unit_rows(X[:4]), n_neighbours=10)
        np.testing.assert_allclose(graph.toarray(), naive.near_rows(unit_rows(X[:4]), n_neighbours=3), atol=1e-6)

    def test_a_row_that_is_near_to_none_hears_nothing(self):
        Z = np.array([[1, 0, 0], [1, 0, 0], [-1, 0, 0]], np.float32)
        heard = spread_labels(near_rows_graph(Z, n_neighbours=2), np.array([[1.0], [0.0], [0.0]]))
        assert heard[1, 0] > 0
        assert heard[2, 0] == 0

    def test_spreading_adds_up_the_powers_of_the_graph(self):
        graph = near_rows_graph(unit_rows(X[:60]), n_neighbours=5)
        labels = np.eye(8)[Y[:60]] * (np.arange(60) < 20)[:, None]
        W, expected = graph.toarray(), np.zeros((60, 8))
        for step in range(20):
            expected += 0.1 * 0.9**step * np.linalg.matrix_power(W, step) @ labels
        expected += 0.9**20 * np.linalg.matrix_power(W, 20) @ labels
        np.testing.assert_allclose(spread_labels(graph, labels), expected, atol=1e-12)

    def test_the_same_graph_with_any_number_of_threads(self, monkeypatch):
        monkeypatch.setattr("hashgrove.numerics.near_rows.ROWS_PER_CHUNK", 16)
        one, two = (near_rows_graph(unit_rows(X), n_jobs=n) for n in (1, 2))
        np.testing.assert_array_equal(one.toarray(), two.toarray())


class TestWhatItLearns:
    @pytest.mark.parametrize("function", LEARNERS, ids=LEARNER_NAMES)
    def test_rows_without_a_label_make_codes_better(self, function):
        alone = small(function, generic_bits=0).fit(X[KNOWN], Y[KNOWN]).score(X_NEW, Y_NEW)
        together = small(function, generic_bits=0).fit(X, PARTLY, unlabelled=-1).score(X_NEW, Y_NEW)
        assert together > alone + 0.03

    @pytest.mark.parametrize("function", LEARNERS, ids=LEARNER_NAMES)
    def test_without_spread_learned_bits_do_not_depend_on_them(self, function):
        function = type(function)(classifier="logistic", spread=False)
        alone = small(function, generic_bits=0).fit(X[KNOWN], Y[KNOWN])
        together = small(function, generic_bits=0).fit(X, PARTLY, unlabelled=-1)
        np.testing.assert_array_equal(alone.transform(X_NEW), together.transform(X_NEW))

    def test_a_ridge_regression_and_tags_learn_from_labels_only(self):
        alone, together = (
            small(PosteriorBits(), generic_bits=0).fit(rows, labels, unlabelled=-1)
            for rows, labels in ((X[KNOWN], Y[KNOWN]), (X, PARTLY))
        )
        np.testing.assert_array_equal(alone.transform(X_NEW), together.transform(X_NEW))
        rows, tags = blob_tags()
        partly = np.where((np.arange(len(rows)) < 100)[:, None], tags, np.nan)
        function = PosteriorBits(classifier="logistic")
        alone = small(function, generic_bits=0).fit(rows[:100], tags[:100])
        np.testing.assert_array_equal(
            alone.transform(rows), small(function, generic_bits=0).fit(rows, partly).transform(rows)
        )

    def test_what_a_row_says_about_itself_does_not_depend_on_its_label(self):
        """If the labels of the rows of a fold are exchanged, their logits stay what they were."""
        labels = Y[KNOWN]
        folds = []
        split = spreading.split_folds

        def spy(*args, **kwargs):
            folds.append(split(*args, **kwargs))
            return folds[0]  # of the first call, so that both divide the rows equally

        def left_out(labels, monkeypatch):
            rng = np.random.default_rng(0)
            with monkeypatch.context() as patch:
                patch.setattr(spreading, "split_folds", spy)
                found = regression(unit_rows(X[KNOWN]), ClassLabels(labels), rng)
            return found.left_out

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr("hashgrove.numerics.logistic.PENALTIES", np.array([0.01]))
            monkeypatch.setattr("hashgrove.numerics.logistic.MIDDLE", 0)
            monkeypatch.setattr(spreading, "fit_temperature", lambda *args: 1.0)  # it is of all rows together
            monkeypatch.setattr(spreading, "MAX_ROWS", 10**6)
            graph = spreading._NearRows.of
            kept = []

            def same_graph(*args, **kwargs):
                kept.append(graph(*args, **kwargs))
                return kept[0]  # directions know all labels; they say where rows are near, and nothing of classes

            monkeypatch.setattr(spreading._NearRows, "of", same_graph)
            before = left_out(labels, monkeypatch)
            own = folds[0] == 1
            other = labels.copy()
            other[own] = np.roll(labels[own], 1)
            after = left_out(other, monkeypatch)
        assert (other != labels).any()
        np.testing.assert_array_equal(before[own], after[own])
        assert (before[~own] != after[~own]).any()

    def test_logits_are_calibrated_on_rows_that_were_not_seen(self):
        rng = np.random.default_rng(0)
        rows = UnitRows.of(X[KNOWN], None, rng, others=X[~KNOWN])
        options = {"power": 0.35, "rng": rng, "classifier": "logistic"}
        found = LabelPosterior.learn(rows, ClassLabels(Y[KNOWN]), **options)
        logits = found.logits.take(slice(0, 24))
        assert logits.shape == (24, 8)
        assert (logits.argmax(axis=1) == Y[KNOWN]).mean() > 0.5

    def test_a_class_that_no_row_of_a_subset_has(self):
        labels = ClassLabels(np.where(PARTLY > 0, PARTLY, -1)[KNOWN & (Y > 0)])
        rng = np.random.default_rng(0)
        found = regression(unit_rows(X)[KNOWN & (Y > 0)], labels, rng)
        assert found.model.weights.shape == (7, 24)


@pytest.mark.parametrize("function", LEARNERS, ids=LEARNER_NAMES)
def test_the_same_codes_with_any_number_of_threads(function):
    one, two = (small(function, n_jobs=n).fit(X, PARTLY, unlabelled=-1) for n in (1, 2))
    np.testing.assert_array_equal(one.transform(X_NEW), two.transform(X_NEW))


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(spreading, "MAX_ROWS", 100)
    sizes = []
    graph = spreading.near_rows_graph

    def spy(Z, **kwargs):
        sizes.append(len(Z))
        return graph(Z, **kwargs)

    monkeypatch.setattr(spreading, "near_rows_graph", spy)
    labelled = np.where(np.arange(len(X)) < 200, Y, -1)
    score = small(PosteriorBits(classifier="logistic")).fit(X, labelled, unlabelled=-1).score(X_NEW, Y_NEW)
    assert sizes == [200]
    assert score > 0.6


def test_rows_of_classes_without_labels_take_no_part():
    rows, classes = unit_rows(X), Y
    known = (classes < 4) & (np.arange(len(X)) < 240)
    labels = ClassLabels(classes[known])
    near = spreading._NearRows.of(rows[known], rows[240:], labels, np.random.default_rng(0), n_jobs=1)
    familiar = np.isin(np.arange(240), near.familiar)
    truth = classes[240:] < 4
    assert familiar[truth].mean() > 0.8
    assert familiar[~truth].mean() < 0.05
    shares = near.shares(np.eye(4)[classes[known]], np.ones(known.sum(), bool))
    assert (shares.argmax(axis=1) == classes[240:][near.familiar])[truth[near.familiar]].mean() > 0.9


@pytest.mark.parametrize("y", [[0, 1, 2, 3], [0, 1, 2, 9]], ids=["all classes", "absent classes"])
def test_classes_of_one_row_each_say_nothing_about_distances(y):
    rows = unit_rows(X)
    assert are_familiar(rows[4:], rows[:4], ClassLabels(np.array(y))).all()


def test_absent_classes_make_no_row_familiar():
    """The rows of the only class are far from each other, and the other row is still farther from their mean."""
    rows, other = unit_rows(np.array([[1, 0.1], [-1, 0.1]])), np.array([[0, -1]], np.float32)
    assert not are_familiar(other, rows, ClassLabels(np.array([4, 4])))[0]
