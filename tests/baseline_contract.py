"""Contracts of baselines: a class of tests per kind of method.

A subclass has a fixture that gives the methods: those of the package here, those of the paper in experiments/tests. A
method's class describes what it can do: the tag that labels are required, `seeded` and `max_bits`.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

from hashgrove import Affinity
from hashgrove.baselines import LSH
from hashgrove.cli.signature import descriptions
from hashgrove.codes import MAX_BITS, unpack

X, Y = load_digits(return_X_y=True)
FEW_X, FEW_Y = X[:600], Y[:600]
TRAIN, TEST = np.arange(0, 1000, 2), np.arange(1, 1000, 2)
TAGS = np.column_stack([Y % 2, Y > 4, Y % 3 == 0, Y < 7]).astype(int)  # similar digits share at least two of these
SMALLEST = {"n_samples": 10, "n_features": 1}  # of the data that scikit-learn's checks fit
# Settings that make fits short, each for the methods that have it: the contract does not depend on how much is learned.
SHORT = {"n_iter": 2, "n_pairs": 1000, "n_anchors": 60, "anchors_per_bit": 10}


def short(make, n_bits, *, random_state=0):
    """A hasher whose fit is short, by those of the settings above that its class has."""
    settings = {name: value for name, value in SHORT.items() if name in make().get_params()}
    return make(n_bits, random_state=random_state, **settings)


def shortest(methods):
    """One hasher per method, for scikit-learn's checks."""
    return [short(make, min(9, make().max_bits(**SMALLEST))) for make in methods.values()]


class BaselineContract:
    """Every method; the fixture ``baseline`` gives its class."""

    def test_shape_and_bits(self, baseline):
        hasher = short(baseline, 19).fit(FEW_X, FEW_Y)
        codes, scores = hasher.transform(FEW_X), hasher.decision_function(FEW_X)
        assert codes.shape == (len(FEW_X), 3)
        assert codes.dtype == np.uint8
        assert scores.shape == (len(FEW_X), 19)
        np.testing.assert_array_equal(unpack(codes, n_bits=19), scores > 0)
        assert (hasher.encoder_.n_bits, hasher.encoder_.n_features) == (19, 64)

    def test_same_seed_same_codes(self, baseline):
        """On all digits: where a method draws a sample of the rows, it must have rows to choose from."""
        first, same, other = (short(baseline, 16, random_state=seed).fit(X, Y).transform(FEW_X) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, same)
        assert np.array_equal(first, other) == (not baseline.seeded)

    def test_the_threads_of_blas_do_not_matter(self, baseline):
        models = []
        for threads in (1, 2):
            with threadpool_limits(threads):
                models.append(short(baseline, 16).fit(X, Y).encoder_.arrays())
        for name, array in models[0].items():
            np.testing.assert_array_equal(array, models[1][name], err_msg=name)

    def test_a_second_fit_forgets_the_first(self, baseline):
        hasher = short(baseline, 16).fit(FEW_X[:300, :40], FEW_Y[:300])
        again = clone(hasher).fit(FEW_X, FEW_Y).transform(FEW_X)
        np.testing.assert_array_equal(hasher.fit(FEW_X, FEW_Y).transform(FEW_X), again)

    @pytest.mark.parametrize("dtype", ["float32", "uint8"])
    def test_types_of_features(self, baseline, dtype):
        codes = short(baseline, 32).fit(FEW_X, FEW_Y).transform(FEW_X)
        other = short(baseline, 32).fit(FEW_X.astype(dtype), FEW_Y).transform(FEW_X.astype(dtype))
        assert np.mean(codes == other) > 0.999

    @pytest.mark.parametrize("n_bits", [0, -1, 2.5, "8", None])
    def test_number_of_bits_is_checked(self, baseline, n_bits):
        with pytest.raises(ValueError, match="The 'n_bits' parameter must be an integer from 1 to 65528"):
            baseline(n_bits).fit(FEW_X, FEW_Y)

    def test_longest_code(self, baseline):
        some, labels = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
        limit = baseline().max_bits(n_samples=40, n_features=3)
        longest = short(baseline, min(limit, 100)).fit(some, labels)
        assert longest.transform(some).shape == (40, -(-longest.n_bits // 8))
        if limit < MAX_BITS:
            with pytest.raises(ValueError, match=rf"at most {limit} for .*n_samples=40, n_features=3. Got {limit + 1}"):
                baseline(limit + 1).fit(some, labels)

    def test_rows_that_are_all_the_same(self, baseline):
        same = np.ones((20, 4))
        try:
            hasher = short(baseline, 2).fit(same, np.arange(20) % 2)
        except ValueError as error:
            assert "must" in str(error)  # noqa: PT017 -- a method may refuse, if it says what it needs
        else:
            assert len(np.unique(hasher.transform(same), axis=0)) == 1

    def test_labels_are_ignored_unless_required(self, baseline):
        if get_tags(baseline()).target_tags.required:
            with pytest.raises(ValueError, match="requires y to be passed"):
                short(baseline, 16).fit(FEW_X)
        else:
            np.testing.assert_array_equal(
                short(baseline, 16).fit(FEW_X, FEW_Y).transform(FEW_X), short(baseline, 16).fit(FEW_X).transform(FEW_X)
            )

    def test_better_than_chance(self, baseline):
        """A random ranking of ten balanced classes has a MAP of about 0.1."""
        train, test = np.arange(0, len(FEW_X), 2), np.arange(1, len(FEW_X), 2)
        assert baseline(16, random_state=0).fit(FEW_X[train], FEW_Y[train]).score(FEW_X[test], FEW_Y[test]) > 0.25

    def test_every_parameter_is_described(self, baseline):
        """The API reference and the help of commands are made from the docstrings."""
        described = {name for kind in baseline.__mro__ for name in descriptions(kind)}
        assert set(baseline().get_params(deep=False)) <= described


class SupervisedContract:
    """Methods that need labels; the fixture ``make`` makes a hasher, whose fit is short, from a number of bits."""

    def test_far_from_the_origin(self, make):
        near = make(16, random_state=0).fit(X[TRAIN], Y[TRAIN])
        far = make(16, random_state=0).fit(X[TRAIN] + 1000, Y[TRAIN])
        # rounding may rotate directions with equal eigenvalues, and so change all codes, but not their quality
        assert far.score(X[TEST] + 1000, Y[TEST]) == pytest.approx(near.score(X[TEST], Y[TEST]), abs=0.05)

    def test_tags(self, make):
        hasher = make(24, random_state=0).fit(X[TRAIN], TAGS[TRAIN])
        same = make(24, random_state=0).fit(X[TRAIN], sparse.csr_matrix(TAGS[TRAIN]))
        np.testing.assert_array_equal(hasher.transform(X), same.transform(X))
        blind = LSH(24, random_state=0).fit(X[TRAIN]).score(X[TEST], TAGS[TEST])
        assert hasher.score(X[TEST], TAGS[TEST]) > blind + 0.03

    def test_needs_labels_of_the_right_kind(self, make):
        with pytest.raises(ValueError, match="requires y to be passed"):
            make(8).fit(X)
        with pytest.raises(ValueError, match="at least two classes"):
            make(8).fit(X, np.zeros(len(X)))
        with pytest.raises(ValueError, match="at least one tag"):
            make(8).fit(X, np.zeros((len(X), 3)))

    def test_rows_without_labels(self, make):
        y = np.where(np.arange(200) % 3 == 0, np.nan, Y[:200])
        known = ~np.isnan(y)
        hasher = make(8, random_state=0).fit(X[:200], y)
        assert hasher.transform(X).shape == (len(X), 1)
        if not hasher.semi_supervised:
            again = make(8, random_state=0).fit(X[:200][known], y[known])
            np.testing.assert_array_equal(hasher.transform(X), again.transform(X))

    def test_triplets(self, make):
        triplets = [(a, p, n) for a in range(60) for p in range(60, 80) for n in range(80, 90) if Y[a] == Y[p] != Y[n]]
        hasher = make(4, random_state=0)
        if hasher.needs_labels:
            with pytest.raises(ValueError, match="must be given class labels or tags as y"):
                hasher.fit(X[:90], triplets=triplets)
        else:
            assert hasher.fit(X[:90], triplets=triplets).transform(X).shape == (len(X), 1)


class PairwiseContract:
    """Methods that learn from pairs, too; ``make_pairwise`` makes a hasher like ``make``."""

    def test_pairs(self, make_pairwise):
        S = np.where(Y[TRAIN][:, None] == Y[TRAIN], 1, -1)
        S[np.random.default_rng(0).random(S.shape) < 0.5] = 0
        hasher = make_pairwise(24, random_state=0).fit(X[TRAIN], affinity=sparse.csr_matrix(S))
        assert hasher.score(X[TEST], Y[TEST]) > LSH(24, random_state=0).fit(X[TRAIN]).score(X[TEST], Y[TEST]) + 0.05
        affinity = Affinity.from_pairs(sparse.csr_matrix(S), n_similar=None, n_dissimilar=None)
        same = make_pairwise(24, random_state=0).fit(X[TRAIN], affinity=affinity)
        np.testing.assert_array_equal(hasher.transform(X), same.transform(X))

    def test_y_and_pairs_exclude_each_other(self, make_pairwise):
        with pytest.raises(ValueError, match="Only one of y, affinity and triplets"):
            make_pairwise(8).fit(X, Y, affinity=([0], [1], [1]))
        with pytest.raises(ValueError, match="The 'min_shared' parameter"):
            make_pairwise(8, min_shared=0).fit(X, TAGS)
