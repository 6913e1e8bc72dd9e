"""Learning curves: what they measure, and when they say that more rows no longer pay."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

from hashgrove import BoostedTrees, FastHash, LearningCurve, LinearSVM, learning_curve
from makers import blob_tags, blobs

X, Y = blobs()


def hasher(n_bits=8, **parameters):
    settings = {"hash_function": "posterior", "generic_bits": 0, "random_state": 0, "n_jobs": 1}
    return FastHash(n_bits, **settings | parameters)


class TestWhatIsMeasured:
    def test_the_last_value_is_the_score_of_the_rows_that_were_held_out(self):
        found = learning_curve(hasher(), X, Y, rows=[60, 150], n_repeats=2, held_out=0.25, seed=4)
        for repeat in range(2):
            order = np.random.default_rng([4, repeat]).permutation(len(Y))
            n_out = round(0.25 * len(Y))
            out, trained = np.sort(order[:n_out]), order[n_out:]
            for place, n in enumerate((60, 150)):
                some = np.sort(trained[:n])
                expected = hasher().fit(X[some], Y[some]).score(X[out], Y[out])
                assert found.values[repeat, place] == pytest.approx(expected)

    def test_more_rows_are_better_here(self):
        assert (np.diff(learning_curve(hasher(), X, Y, rows=[20, 60, 180]).mean) > 0).all()

    def test_the_default_sizes_are_halves(self):
        found = learning_curve(hasher(4, hash_function=BoostedTrees(n_trees=1)), X, Y, n_repeats=1)
        n = len(Y) - round(0.2 * len(Y))
        assert found.rows == tuple(n >> k for k in range(4, -1, -1) if k < 2 or n >> k >= 100)

    def test_names_of_classes_and_rows_without_a_label(self):
        names = np.array([f"class {c}" for c in Y], dtype=object)
        names[::5] = None
        found = learning_curve(hasher(), X, names, rows=[50, 150], n_repeats=1)
        assert found.mean[-1] > 0.3

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_tags(self, form):
        rows, tags = blob_tags()
        found = learning_curve(hasher(12), rows, form(tags), rows=[40, len(rows) // 2], n_repeats=1)
        assert found.mean[-1] > 0.5

    def test_sparse_rows(self):
        settings = {"rows": [50, 150], "n_repeats": 1}
        svm = hasher(hash_function=LinearSVM())
        found = learning_curve(svm, sparse.csr_matrix(X), Y, **settings)
        np.testing.assert_allclose(found.values, learning_curve(svm, X, Y, **settings).values, atol=0.02)

    def test_held_out_rows_without_a_similar_pair_are_refused(self):
        with pytest.raises(ValueError, match="must make some pair of points similar"):
            learning_curve(hasher(), X[:8], [0, 0, 0, 0, 1, 1, 1, 1], rows=[4, 5], held_out=0.25, n_repeats=9)

    def test_the_hasher_is_not_fitted(self):
        given = hasher()
        learning_curve(given, X, Y, rows=[50, 100], n_repeats=1)
        assert not hasattr(given, "encoder_")


class TestEnough:
    ROWS = (100, 200, 400, 800)

    def curve(self, *values, tolerance=0.005):
        return LearningCurve(self.ROWS, np.array(values, dtype=float), tolerance)

    def test_a_curve_that_is_flat_from_some_point_on(self):
        found = self.curve([0.3, 0.5, 0.602, 0.604], [0.32, 0.52, 0.622, 0.624])
        assert found.enough == 400
        assert "From 400 rows on, more rows gained at most 0.005." in str(found)
        np.testing.assert_allclose(found.spread, np.sqrt(2) * 0.01)

    def test_a_curve_that_rises_to_its_end(self):
        found = self.curve([0.3, 0.4, 0.5, 0.6])
        assert found.enough is None
        assert "still rises: the last step gained 0.1000" in str(found)
        assert np.isnan(found.spread).all()

    def test_a_flat_curve(self):
        assert self.curve([0.5, 0.5, 0.5, 0.5]).enough == 100

    def test_a_difference_that_is_not_certain_is_not_enough(self):
        assert self.curve([0.3, 0.4, 0.5, 0.5], [0.3, 0.4, 0.48, 0.5]).enough is None

    def test_a_dip_does_not_end_the_search(self):
        assert self.curve([0.6, 0.4, 0.6, 0.6]).enough == 400

    def test_json(self):
        found = self.curve([0.5, 0.5, 0.5, 0.5])
        assert json.loads(json.dumps(found.to_dict()))["enough"] == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": [100]}, "'rows' parameter must be two or more ascending numbers"),
        ({"rows": [100, 100]}, "ascending"),
        ({"rows": [100, 10**6]}, "'rows' parameter must be at most"),
        ({"n_repeats": 0}, "n_repeats"),
        ({"held_out": 1.0}, "held_out"),
        ({"tolerance": -0.1}, "tolerance"),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        learning_curve(hasher(), X, Y, **settings)
