"""Generic bits: they go with every hash function, stay where a prefix finds them, and keep apart what labels do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from hashgrove import ITQ, BoostedTrees, FastHash, PosteriorBits, evaluate, fasthash, load, load_hasher, unpack
from hashgrove.encoders import Linear, Spread
from hashgrove.functions import HASH_FUNCTIONS, count_generic_bits, generic, learn_generic_bits
from hashgrove.functions.base import Learner
from hashgrove.metrics import count_distinct
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import ClassLabels, Pairs, Tags
from hashgrove.supervision.reading import read_pairs
from makers import blob_tags, blobs, pairs_of

X, Y = blobs()
X_NEW, Y_NEW = blobs(seed=1)
TREES = BoostedTrees.paper(n_trees=5, max_depth=3)


def small(n_bits=12, **parameters):
    settings = {"hash_function": TREES, "generic_bits": 4, "random_state": 0, "n_jobs": 1}
    return FastHash(n_bits, **settings | parameters)


def small_function(name):
    return TREES if name == "trees" else name


class TestEveryHashFunction:
    @pytest.mark.parametrize("hash_function", [*HASH_FUNCTIONS, RidgeClassifier(), DecisionTreeClassifier()], ids=str)
    def test_the_codes_are_those_of_both_parts(self, hash_function):
        hash_function = small_function(hash_function)
        hasher = small(hash_function=hash_function).fit(X, Y)
        alone = small(8, hash_function=hash_function, generic_bits=0).fit(X, Y)
        generic_ones = hasher.encoder_.is_generic
        bits = unpack(hasher.transform(X_NEW), 12)
        assert hasher.generic_bits_ == generic_ones.sum() == 4
        assert len(hasher.history_) == 8
        np.testing.assert_array_equal(bits[:, ~generic_ones], unpack(alone.transform(X_NEW), 8))
        np.testing.assert_array_equal(bits[:, generic_ones], unpack(hasher.encoder_.generic.encode(X_NEW), 4))
        np.testing.assert_array_equal(bits, hasher.decision_function(X_NEW) > 0)

    @pytest.mark.parametrize("hash_function", [*HASH_FUNCTIONS, RidgeClassifier()], ids=str)
    def test_save_and_load(self, tmp_path, hash_function):
        hasher = small(hash_function=small_function(hash_function)).fit(X, Y)
        hasher.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").scores(X_NEW), hasher.decision_function(X_NEW))

    def test_a_classifier_that_a_file_cannot_hold_is_refused(self, tmp_path):
        hasher = small(hash_function=DecisionTreeClassifier()).fit(X, Y)
        with pytest.raises(ValueError, match=r"cannot be saved.*joblib"):
            hasher.save(tmp_path / "m")


class TestSupervision:
    def test_tags(self):
        rows, tags = blob_tags()
        for form in (tags, sparse.csr_array(tags)):
            hasher = small(16).fit(rows, form)
            assert hasher.generic_bits_ == 4
            assert hasher.score(rows, tags) > 0.5

    def test_pairs(self):
        hasher = small(16).fit(X, affinity=pairs_of(Y))
        assert hasher.generic_bits_ == 4
        assert hasher.score(X_NEW, Y_NEW) > 0.25, "chance is about 0.1"

    @pytest.mark.parametrize("kind", ["classes", "tags", "pairs"])
    def test_rows_about_which_nothing_is_known_change_generic_bits_only(self, kind):
        known = np.arange(len(Y)) >= 60
        given = {
            "classes": {"y": np.where(known, Y, -1), "unlabelled": -1},
            "tags": {"y": [{c, c + 100} if k else None for c, k in zip(Y, known, strict=True)]},
            "pairs": {"affinity": pairs_of(np.where(known, Y, -1)) if kind == "pairs" else None},
        }[kind]
        if kind == "pairs":
            pairs = pairs_of(Y)
            given = {"affinity": pairs[known[pairs[:, 0]] & known[pairs[:, 1]]]}
        with_others, found = small().fit(X, **given), []
        for generic_bits in (0, 4):
            hasher = small(8 + generic_bits, generic_bits=generic_bits).fit(X, **given)
            found.append(unpack(hasher.encoder_.part(Spread).learned.encode(X_NEW), 8) if generic_bits else hasher)
        np.testing.assert_array_equal(found[1], unpack(found[0].transform(X_NEW), 8))
        if kind == "classes":
            without = small().fit(X[known], Y[known])
            learned = ~without.encoder_.is_generic
            ours, theirs = (unpack(hasher.transform(X_NEW), 12) for hasher in (with_others, without))
            np.testing.assert_array_equal(ours[:, learned], theirs[:, learned])
            assert (ours[:, ~learned] != theirs[:, ~learned]).any()

    def test_a_class_without_labels_is_told_apart_where_its_rows_are_given(self):
        """All rows vary along the last two columns, the labelled ones do not."""
        y = np.arange(600) % 6
        labelled = y < 4
        new = ~labelled
        settings = {"hash_function": "posterior", "generic_bits": 8, "n_bits": 16}
        scores = []
        for seed in range(4):
            rows = np.random.default_rng(seed).normal(size=(600, 8)) * 0.1
            rows[:, :4] += np.eye(6)[y][:, :4]
            rows[:, 4:6] += 2 * np.eye(6)[y][:, 4:]
            alone = small(**settings).fit(rows[labelled], y[labelled])
            together = small(**settings).fit(rows, np.where(labelled, y, -1), unlabelled=-1)
            scores.append([hasher.score(rows[new], y[new]) for hasher in (alone, together)])
        alone, together = np.mean(scores, axis=0)
        assert together > alone + 0.03

    def test_auto_and_validation_pass_the_other_rows_on(self, monkeypatch):
        seen = []
        learn = fasthash.learn_generic_bits

        def spy(*args, others=None, **kwargs):
            seen.append(None if others is None else len(others))
            return learn(*args, others=others, **kwargs)

        monkeypatch.setattr(fasthash, "learn_generic_bits", spy)
        y = np.where(np.arange(len(Y)) % 3 == 0, -1, Y)
        small(hash_function="posterior").fit(X, y, unlabelled=-1, validation=0.3)
        assert seen == [(y < 0).sum()] * 2
        monkeypatch.setattr(fasthash, "MAX_OTHERS", 7)
        small(hash_function="posterior").fit(X, y, unlabelled=-1)
        assert seen[2:] == [7]

    def test_a_checkpoint_belongs_to_the_other_rows_as_well(self, tmp_path):
        y = np.where(np.arange(len(Y)) % 3 == 0, -1, Y)
        small().fit(X, y, unlabelled=-1, checkpoint=tmp_path / "c")
        with pytest.raises(ValueError, match="data"):
            small().fit(np.where(y[:, None] < 0, X + 1, X), y, unlabelled=-1, checkpoint=tmp_path / "c")

    @pytest.mark.parametrize("kind", ["classes", "tags", "pairs"])
    def test_directions_keep_apart_classes_rather_than_noise(self, kind):
        """The columns with most variance are noise inside of classes; the classes differ in the others."""
        rng = np.random.default_rng(0)
        y = np.arange(400) % 4
        noise = rng.normal(size=(400, 6))
        rows = np.hstack([noise, np.eye(4)[y] * 2 + rng.normal(size=(400, 4)) * 0.1, np.full((400, 1), 3.0)])
        supervision = {
            "classes": ClassLabels(y),
            "tags": Tags(sparse.csr_array(np.eye(4)[y]), np.zeros(400, bool), 1),
            "pairs": Pairs(read_pairs(pairs_of(y, 6000), n_points=400)),
        }[kind]
        encoder = learn_generic_bits(rows, supervision, n_bits=3, rng=np.random.default_rng(0))
        codes, plain = encoder.encode(rows), ITQ(3, random_state=0).fit(rows).transform(rows)
        ours, itq = (evaluate(c, c, y_queries=y, y_database=y, exclude_self=True, knn=None).map for c in (codes, plain))
        assert ours > itq + 0.2


class TestPositions:
    @pytest.mark.parametrize(("n_bits", "n_generic"), [(8, 2), (12, 4), (64, 16), (17, 5), (9, 1), (9, 8), (128, 3)])
    def test_every_prefix_has_its_share(self, n_bits, n_generic):
        learned, generic_ones = (
            Linear(weights=np.ones((n, 1)), bias=np.zeros(n)) for n in (n_bits - n_generic, n_generic)
        )
        source = Spread(learned=learned, generic=generic_ones).is_generic
        assert source.sum() == n_generic
        for length in range(1, n_bits + 1):
            assert abs(source[:length].sum() - length * n_generic / n_bits) < 1

    def test_prefixes_of_one_fit_are_codes_of_both_kinds(self):
        hasher = small(16, hash_function=PosteriorBits(), generic_bits=None).fit(X, Y)
        np.testing.assert_array_equal(np.flatnonzero(hasher.encoder_.is_generic), [3, 7, 11, 15])

    def test_a_longer_fit_has_the_learned_bits_of_a_shorter_one(self):
        """The generic bits are another rotation for another number of bits; the learned ones stay."""
        short, long = (small(n, hash_function=PosteriorBits(), generic_bits=n // 4).fit(X, Y) for n in (8, 16))
        np.testing.assert_array_equal(
            unpack(long.encoder_.learned.encode(X_NEW), 12)[:, :6], unpack(short.encoder_.learned.encode(X_NEW), 6)
        )


class TestSizes:
    def test_more_bits_than_features(self):
        rows, y = blobs(n_classes=3, n_features=4)
        hasher = small(24, generic_bits=10).fit(rows, y)
        generic_part = hasher.encoder_.generic
        assert generic_part.weights.shape == (10, 4)
        bits = unpack(generic_part.encode(rows), 10)
        assert ((bits.mean(axis=0) > 0.05) & (bits.mean(axis=0) < 0.95)).all()

    def test_many_features_are_sketched(self, monkeypatch):
        monkeypatch.setattr(generic, "MAX_FEATURES", 40)
        rows, y = blobs(150, 5, 300, noise=0.05)
        encoder = learn_generic_bits(rows, ClassLabels(y), n_bits=8, rng=np.random.default_rng(0))
        assert encoder.weights.shape == (8, 300)
        codes = encoder.encode(rows)
        assert evaluate(codes, codes, y_queries=y, y_database=y, exclude_self=True, knn=None).map > 0.6
        assert np.linalg.matrix_rank(encoder.weights) == 8

    def test_more_features_than_the_limit_itself(self):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(60, generic.MAX_FEATURES + 5)).astype(np.float32)
        encoder = learn_generic_bits(rows, ClassLabels(np.arange(60) % 3), n_bits=4, rng=rng)
        assert encoder.weights.shape == (4, generic.MAX_FEATURES + 5)
        assert np.isfinite(encoder.scores(rows)).all()

    def test_many_rows_are_sampled(self, monkeypatch):
        monkeypatch.setattr(generic, "MAX_ROWS", 100)
        encoder = learn_generic_bits(X, ClassLabels(Y), n_bits=6, rng=np.random.default_rng(0))
        assert np.isfinite(encoder.scores(X)).all()

    def test_fewer_rows_than_features(self):
        rows, y = blobs(20, 4, 64)
        encoder = learn_generic_bits(rows, ClassLabels(y), n_bits=8, rng=np.random.default_rng(0))
        assert count_distinct(encoder.encode(rows)) > 4

    def test_few_rows_do_not_collapse(self):
        """Rows vary inside classes in more directions than there are rows to show it."""
        rows, y = blobs(60, 3, 400, noise=0.05)
        codes = learn_generic_bits(rows, ClassLabels(y), n_bits=16, rng=np.random.default_rng(0)).encode(rows)
        assert count_distinct(codes) > 20, "11 with no more than the mean variation inside classes"

    def test_rows_that_are_all_the_same(self):
        with pytest.warns(UserWarning, match="bits are the same for all points"):
            hasher = small().fit(np.ones((20, 3)), np.arange(20) % 2)
        assert np.isfinite(hasher.decision_function(np.ones((2, 3)))).all()

    def test_bits_are_balanced(self):
        bits = unpack(learn_generic_bits(X, ClassLabels(Y), n_bits=6, rng=np.random.default_rng(0)).encode(X), 6)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.35


class TestCounting:
    class Quarter:
        generic_share = 0.25

    def test_what_suits_the_hash_function(self):
        learner: Learner = self.Quarter()
        assert [count_generic_bits(None, n, learner) for n in (1, 3, 4, 64)] == [0, 0, 1, 16]
        assert count_generic_bits(None, 64, object()) == 0
        assert count_generic_bits(5, 64, learner) == 5
        assert count_generic_bits(0, 64, learner) == 0

    @pytest.mark.parametrize("asked", [13, 100])
    def test_more_than_all_bits_are_refused(self, asked):
        with pytest.raises(ValueError, match=rf"'generic_bits' parameter must be at most n_bits=12.* Got {asked} inst"):
            small(generic_bits=asked).fit(X, Y)

    @pytest.mark.parametrize("hash_function", ["auto", "posterior", TREES], ids=str)
    def test_all_bits_may_be_generic(self, tmp_path, hash_function):
        hasher = small(generic_bits=12, hash_function=hash_function, warm_start=True).fit(X, Y)
        assert (hasher.generic_bits_, hasher.history_, hasher.encoder_.n_bits) == (12, [], 12)
        assert isinstance(hasher.encoder_, Linear)
        hasher.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").encode(X_NEW), hasher.transform(X_NEW))
        again = load_hasher(tmp_path / "m", hash_function="posterior", n_bits=16, generic_bits=4, n_jobs=1)
        assert again.generic_bits_ == 12
        fresh = small(16, hash_function="posterior")
        np.testing.assert_array_equal(again.fit(X, Y).transform(X_NEW), fresh.fit(X, Y).transform(X_NEW))
        np.testing.assert_array_equal(hasher.fit(X, Y).transform(X_NEW), hasher.encoder_.encode(X_NEW))

    @pytest.mark.parametrize("asked", [-1, 1.5, "4", True])
    def test_bad_values(self, asked):
        with pytest.raises(ValueError, match="The 'generic_bits' parameter must be"):
            small(generic_bits=asked).fit(X, Y)

    def test_sparse_rows_have_no_generic_bits(self):
        rows = sparse.csr_array(X)
        with pytest.raises(TypeError, match="must be a dense array"):
            small(hash_function="linear-svm").fit(rows, Y)
        assert small(hash_function="linear-svm", generic_bits=None).fit(rows, Y).generic_bits_ == 0


class TestGoingOn:
    @pytest.mark.parametrize("hash_function", [TREES, PosteriorBits(), "linear-svm"], ids=str)
    def test_warm_start_equals_one_fit(self, hash_function, tmp_path):
        whole = small(20, hash_function=hash_function, generic_bits=5).fit(X, Y)
        grown = small(8, hash_function=hash_function, generic_bits=2, warm_start=True).fit(X, Y)
        grown.set_params(n_bits=20, generic_bits=5).fit(X, Y)
        whole.save(tmp_path / "whole")
        grown.save(tmp_path / "grown")
        assert (tmp_path / "whole").read_bytes() == (tmp_path / "grown").read_bytes()

    def test_generic_bits_may_be_added_and_dropped(self):
        hasher = small(8, generic_bits=0, warm_start=True).fit(X, Y)
        first = unpack(hasher.transform(X_NEW), 8)
        hasher.set_params(n_bits=12, generic_bits=4).fit(X, Y)
        assert (hasher.generic_bits_, len(hasher.history_)) == (4, 8)
        np.testing.assert_array_equal(unpack(hasher.transform(X_NEW), 12)[:, ~hasher.encoder_.is_generic], first)
        hasher.set_params(n_bits=9, generic_bits=0).fit(X, Y)
        np.testing.assert_array_equal(unpack(hasher.transform(X_NEW), 9)[:, :8], first)

    def test_too_many_to_leave_the_learned_bits_are_refused(self):
        hasher = small(12, warm_start=True).fit(X, Y)
        with pytest.raises(ValueError, match=r"at least 14: 8 bits learned so far and 6 generic ones\. Got 12"):
            hasher.set_params(generic_bits=6).fit(X, Y)

    def test_a_loaded_hasher_goes_on(self, tmp_path):
        small(8, generic_bits=2).fit(X, Y).save(tmp_path / "m")
        grown = load_hasher(tmp_path / "m", n_bits=20, generic_bits=5, n_jobs=1)
        assert grown.generic_bits_ == 2
        np.testing.assert_array_equal(
            grown.fit(X, Y).transform(X_NEW), small(20, generic_bits=5).fit(X, Y).transform(X_NEW)
        )


class TestUnseenClasses:
    def test_they_do_not_collapse(self):
        """Codes of classes that were not in training: with generic bits there are more of them, and they are better."""
        rows, y = blobs(480, 12, 24, noise=0.1)
        seen = y < 4
        new, labels = rows[~seen], y[~seen]
        plain, with_generic = (
            small(16, hash_function=PosteriorBits(), generic_bits=n).fit(rows[seen], y[seen]) for n in (0, 8)
        )
        assert count_distinct(with_generic.transform(new)) > 2 * count_distinct(plain.transform(new))
        assert with_generic.score(new, labels) > plain.score(new, labels) + 0.1


def test_the_same_bits_at_any_number_of_threads(tmp_path):
    for n in (1, 2):
        small(n_jobs=n).fit(X, Y).save(tmp_path / str(n))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_scores_are_those_of_a_rotation_of_the_directions():
    """The weights of ITQ after whitening: their rows span the directions that the labels ask for."""
    encoder = learn_generic_bits(X, ClassLabels(Y), n_bits=5, rng=np.random.default_rng(0))
    assert isinstance(encoder, Linear)
    assert encoder.unit
    rows = unit_rows(X).astype(float)
    rows -= rows.mean(axis=0)
    centred = np.vstack([rows[c == Y] - rows[c == Y].mean(axis=0) for c in range(12)])
    total, within = rows.T @ rows / len(rows), centred.T @ centred / len(rows)
    within += np.trace(within) / len(within) * np.eye(len(within))
    values, vectors = np.linalg.eig(np.linalg.solve(within, total))
    best = vectors.real[:, np.argsort(-values.real)[:5]]
    outside = encoder.weights.T - best @ np.linalg.lstsq(best, encoder.weights.T.astype(float), rcond=None)[0]
    assert np.abs(outside).max() < 1e-3
    np.testing.assert_allclose(encoder.scores(X).mean(axis=0), 0, atol=1e-4)
    assert isinstance(small().fit(X, Y).encoder_, Spread)
