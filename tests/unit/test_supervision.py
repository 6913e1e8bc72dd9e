"""What users have, in all its forms, becomes one `Supervision`; what cannot be learned from is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

import naive
from hashgrove import ITQ, LSH, Affinity, BoostedTrees, FastHash, load
from hashgrove.supervision import ClassLabels, Pairs, Tags, Target
from hashgrove.supervision.affinity import ROWS_PER_CHUNK
from hashgrove.supervision.similarity import ClassSimilarity

ALL_X, ALL_Y = load_digits(return_X_y=True)
X, Y = ALL_X[:200], ALL_Y[:200]
TAGS = (Y[:, None] % np.array([2, 3, 4, 5, 7]) == 0).astype(int)
NAMES = np.array(["two", "three", "four", "five", "seven"])
COLLECTIONS = [set(NAMES[row == 1]) for row in TAGS]


def read(y=None, *, n=None, min_shared=2, **given):
    return Target(y, **given).read(np.zeros((len(y) if n is None else n, 1)), min_shared=min_shared, method="FastHash")


def small(n_bits=6, **parameters):
    settings = {"hash_function": BoostedTrees(n_trees=5, max_depth=3), "random_state": 0}
    return FastHash(n_bits, **settings | parameters)


class TestLabels:
    @pytest.mark.parametrize(
        "y",
        [
            ["b", "a", None, "b"],
            ["b", "a", float("nan"), "b"],
            ["b", "a", pd.NA, "b"],
            pd.Series(["b", "a", pd.NA, "b"], dtype="string"),
            pd.Series([2, 1, pd.NA, 2], dtype="Int64"),
            pd.Series(["b", "a", None, "b"], dtype="category"),
            np.array(["b", "a", None, "b"], object),
            [2, 1, None, 2],
            np.array([2.0, 1.0, np.nan, 2.0]),
            np.array([[2.0], [1.0], [np.nan], [2.0]]),
            [2**60 + 1, 2**60, None, 2**60 + 1],
            np.array(["2020-02", "2020-01", "NaT", "2020-02"], "datetime64[M]"),
        ],
        ids=str,
    )
    @pytest.mark.filterwarnings("ignore:A column-vector y was passed")
    def test_a_missing_label_is_no_class(self, y):
        labels = read(y)
        assert labels.classes.tolist() == [1, 0, -1, 1]
        assert labels.known.tolist() == [True, True, False, True]

    @pytest.mark.parametrize(
        ("y", "value"), [([1, 0, -1, 1], -1), (["b", "a", "", "b"], ""), ([1.0, 0.0, -1.0, 1.0], -1)]
    )
    def test_a_value_can_be_named_unlabelled(self, y, value):
        for form in (y, np.array(y)):
            assert read(form, unlabelled=value).classes.tolist() == [1, 0, -1, 1]

    def test_signs_of_unlabelled_points_are_unknown(self):
        S = read([0, 1, None, 0]).signs(np.arange(4), np.arange(4))
        assert S.tolist() == [[1, -1, 0, 1], [-1, 1, 0, -1], [0, 0, 0, 0], [1, -1, 0, 1]]

    def test_the_pairs_of_labelled_points_are_those_without_the_others(self):
        y = Y[:60].astype(float)
        y[::4] = np.nan
        settings = {"n_similar": 5, "n_dissimilar": 6, "random_state": 0}
        with_others = naive.pair_matrix(read(y).affinity(**settings))
        known = ~np.isnan(y)
        assert (with_others[~known] == 0).all()
        alone = naive.pair_matrix(Affinity.from_labels(y[known], **settings))
        assert (with_others[np.ix_(known, known)] == alone).all()


class TestTags:
    @pytest.mark.parametrize("container", [set, frozenset, list, tuple, lambda row: np.array(sorted(row))])
    def test_collections_are_the_matrix(self, container):
        rows = [container(row) for row in COLLECTIONS]
        expected = TAGS[:, np.argsort(NAMES)]
        assert (read(rows).indicator().toarray() == expected).all()
        assert (read(pd.Series(rows)).indicator().toarray() == expected).all()

    def test_numbers_as_tags_in_ragged_lists(self):
        assert read([[3, 17], [17], [], [3]]).indicator().toarray().tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]

    def test_equally_long_lists_of_text_are_collections(self):
        for rows in ([["a", "b"], ["b", "c"]], np.array([["a", "b"], ["b", "c"]])):
            assert read(rows).indicator().toarray().tolist() == [[1, 1, 0], [0, 1, 1]]

    def test_missing_tags(self):
        for rows in ([{"a"}, None, {"a", "b"}], [[1, 0], [np.nan, np.nan], [1, 1]]):
            tags = read(np.array(rows) if rows[1] is not None else rows)
            assert tags.known.tolist() == [True, False, True]
            assert tags.signs(np.arange(3), np.arange(3)).tolist() == [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]

    def test_fits_of_all_forms_are_equal(self):
        forms = [TAGS, TAGS.astype(bool), sparse.csr_matrix(TAGS), sparse.coo_array(TAGS), TAGS.tolist(), 7 * TAGS]
        codes = [small(min_shared=1).fit(X, form).transform(X) for form in forms]
        for other in codes[1:]:
            np.testing.assert_array_equal(other, codes[0])
        hasher = small(min_shared=1).fit(X, COLLECTIONS)
        assert hasher.score(X, COLLECTIONS) == hasher.score(X, TAGS)


class TestSigns:
    def test_they_are_the_relation_of_all_pairs(self):
        rows = np.arange(40)
        for y, make_affinity in ((Y[:40], Affinity.from_labels), (TAGS[:40], Affinity.from_tags)):
            S = read(y).signs(rows, rows)
            expected = naive.pair_matrix(make_affinity(y, n_similar=None, n_dissimilar=None)) + np.eye(40)
            np.testing.assert_array_equal(S, expected)
            pairs = read(n=40, affinity=sparse.csr_matrix(expected))
            np.testing.assert_array_equal(pairs.signs(rows, rows), expected)
            np.testing.assert_array_equal(pairs.signs(rows[3:9], rows[5:]), expected[3:9, 5:])
            np.testing.assert_array_equal(pairs.subset(rows[::2]).signs(rows[:20], rows[:20]), expected[::2, ::2])

    def test_products_by_class(self):
        labels = read(Y[:60])
        rows, values = np.arange(5, 60), np.random.default_rng(0).normal(size=(55, 3))
        S, fast = labels.signs(rows, rows), labels.similarity(rows)
        assert isinstance(fast, ClassSimilarity)
        np.testing.assert_allclose(fast @ values, S @ values)
        np.testing.assert_allclose(fast @ values[:, 0], S @ values[:, 0])
        assert fast.squared_norm == np.square(S).sum()

    def test_only_points_with_pairs_are_drawn(self):
        pairs = read(n=50, affinity=([3, 4], [7, 8], [1, -1]))
        assert pairs.draw(None, np.random.default_rng(0)).tolist() == [3, 4, 7, 8]
        assert set(pairs.draw(2, np.random.default_rng(0))) <= {3, 4, 7, 8}


class TestPairsAndTriplets:
    def test_triplets_are_pairs(self):
        pairs = read(n=5, triplets=[[0, 1, 2], [3, 4, 0]])
        assert isinstance(pairs, Pairs)
        expected = np.zeros((5, 5))
        for i, j, sign in ((0, 1, 1), (0, 2, -1), (3, 4, 1), (3, 0, -1)):
            expected[i, j] = expected[j, i] = sign
        assert (pairs.matrix.toarray() == expected).all()

    def test_the_majority_of_triplets_decides_about_a_pair(self):
        pairs = read(n=4, triplets=[[0, 1, 2], [0, 1, 3], [1, 2, 0], [2, 3, 0], [3, 0, 2]])
        assert pairs.matrix.toarray()[0].tolist() == [0, 1, -1, 0]

    def test_triplets_teach(self):
        rng = np.random.default_rng(0)
        anchor = rng.integers(len(X), size=4000)
        others = rng.permuted(np.tile(np.arange(len(X)), (4000, 1)), axis=1)
        same = Y[others] == Y[anchor][:, None]
        positive = others[np.arange(4000), (same & (others != anchor[:, None])).argmax(axis=1)]
        negative = others[np.arange(4000), (~same).argmax(axis=1)]
        triplets = np.stack([anchor, positive, negative], axis=1)
        assert small(16).fit(X, triplets=triplets).score(X, Y) > 0.8


class TestUnlabelledRows:
    def test_fasthash_learns_from_the_labelled_rows_alone(self):
        y = Y.astype(object)
        y[::3] = None
        known = np.array([label is not None for label in y])
        for target in (y, [None if label is None else int(label) for label in y]):
            np.testing.assert_array_equal(
                small().fit(X, target).transform(X), small().fit(X[known], Y[known]).transform(X)
            )
        np.testing.assert_array_equal(
            small().fit(X, np.where(known, Y, -5), unlabelled=-5).transform(X), small().fit(X, y).transform(X)
        )
        hasher = small().fit(X, y)
        assert hasher.score(X, y) == hasher.score(X[known], Y[known])

    def test_points_in_no_pair_are_not_trained_on(self):
        pairs = np.array([[i, j, 1 if Y[i] == Y[j] else -1] for i in range(40) for j in range(i)])
        np.testing.assert_array_equal(
            small().fit(X, affinity=pairs).transform(X), small().fit(X[:40], affinity=pairs).transform(X)
        )


class TestSampleWeight:
    def test_equal_weights_change_nothing(self):
        np.testing.assert_array_equal(
            small().fit(X, Y, sample_weight=np.full(len(X), 3.0)).transform(X), small().fit(X, Y).transform(X)
        )

    @pytest.mark.parametrize("weighted", [True, False])
    def test_heavy_points_are_fitted_better(self, weighted):
        """With labels at random, a weak learner can only please some of the points."""
        y = np.random.default_rng(0).integers(0, 2, len(X))
        heavy = np.arange(len(X)) < 60
        weak = BoostedTrees(n_trees=3, max_depth=2)
        hasher = small(16, hash_function=weak, weighted=weighted)
        plain = hasher.fit(X, y).transform(X)
        favoured = hasher.fit(X, y, sample_weight=np.where(heavy, 50.0, 1.0)).transform(X)

        def separation(codes):
            bits = np.unpackbits(codes[heavy], axis=1).astype(int)
            distance = (bits[:, None] != bits).sum(axis=2)
            same = y[heavy][:, None] == y[heavy]
            return distance[~same].mean() - distance[same].mean()

        assert separation(favoured) > separation(plain) + 0.5

    def test_rows_of_weight_zero_do_not_count(self):
        weight = (np.arange(len(X)) < 150).astype(float)
        noisy = np.where(weight > 0, Y, 9 - Y)
        hasher = small(16, hash_function=BoostedTrees(n_trees=20)).fit(X, noisy, sample_weight=weight)
        assert hasher.score(X[:150], Y[:150]) > 0.95

    @pytest.mark.parametrize(
        ("weight", "message"),
        [(np.zeros(len(X)), "non-zero|above 0"), (-np.ones(len(X)), "[Nn]egative"), (np.ones(3), "shape")],
    )
    def test_bad_weights(self, weight, message):
        with pytest.raises(ValueError, match=message):
            small().fit(X, Y, sample_weight=weight)


class TestSparse:
    @pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
    @pytest.mark.parametrize("hash_function", ["linear-svm", LinearSVC(max_iter=10_000)], ids=str)
    def test_sparse_rows_give_the_codes_of_dense_ones(self, tmp_path, container, hash_function):
        dense = small(hash_function=hash_function).fit(X, Y)
        hasher = small(hash_function=hash_function).fit(container(X), Y)
        assert np.mean(hasher.transform(container(X)) == dense.transform(X)) > 0.97
        np.testing.assert_array_equal(hasher.transform(container(X)), hasher.transform(X))
        hasher.save(tmp_path / "model")
        np.testing.assert_array_equal(load(tmp_path / "model").encode(container(X)), hasher.transform(X))

    def test_many_features(self):
        """More features than a matrix of them could have."""
        rng = np.random.default_rng(0)
        y = np.arange(300) % 3
        words = sparse.random_array((300, 50_000), density=1e-3, rng=rng, format="lil")
        for row in range(300):
            words[row, 100 * y[row] + rng.integers(0, 100, 20)] = 1.0
        hasher = FastHash(16, hash_function="linear-svm", random_state=0).fit(words.tocsr(), y)
        assert hasher.score(words.tocsr(), y) > 0.99

    def test_lsh(self):
        np.testing.assert_array_equal(
            LSH(64, random_state=0).fit(sparse.csr_array(X)).transform(sparse.csr_array(X)),
            LSH(64, random_state=0).fit(X).transform(X),
        )

    @pytest.mark.parametrize("hasher", [small(), small(hash_function="kernel-svm"), ITQ(8)], ids=str)
    def test_others_name_the_way_out(self, hasher):
        with pytest.raises(TypeError, match=r"dense array .* Got a sparse matrix; .*TruncatedSVD"):
            hasher.fit(sparse.csr_matrix(X), Y)

    def test_encoders_name_the_way_out(self):
        with pytest.raises(TypeError, match="TruncatedSVD"):
            small().fit(X, Y).transform(sparse.csr_matrix(X))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": np.eye(200)[:, :100]}, "some pair of points similar. .*try min_shared=1"),
        ({"y": np.ones((200, 4))}, "some pair of points dissimilar"),
        ({"affinity": [[0, 1, -1], [0, 2, -1]]}, "some pair of points similar"),
        ({"affinity": sparse.csr_array(([1.0], ([0], [1])), shape=(200, 200))}, "some pair of points dissimilar"),
        ({"affinity": [[0, 1, 1], [0, 2, 0]]}, "Got 0. Leave out pairs"),
        ({"affinity": [[0, 1, 1], [0, 2, 1]]}, "are these triplets"),
        ({"affinity": [[0, 1, 2], [3, 4, 5]]}, "are these triplets"),
        ({"affinity": [[0, 1], [1, 2]]}, r"shape \(m, 3\)"),
        ({"affinity": [[0, 1, 1], [1, 2]]}, r"shape \(m, 3\)"),
        ({"affinity": [["a", "b", "c"]]}, r"shape \(m, 3\)"),
        ({"triplets": [[0, 1, 200]]}, "from 0 to 199"),
        ({"triplets": [[0, 1.5, 2]]}, "by integers"),
        ({"y": [[1, 2]] * 100 + [[3, 4]] * 100}, "Pass a NumPy array for a matrix"),
        ({"y": [{"a"}] * 199 + ["a"]}, "one collection of tags per row"),
        ({"y": [{"a", 1}] * 200}, "labels of one type. Got number and str"),
        ({"y": [{"a", None}] * 200}, "Got a missing tag"),
        ({"y": [set()] * 200}, "at least one tag"),
        ({"y": np.full((200, 3), np.nan)}, "at least one tag"),
        ({"y": np.where(np.eye(200, 4) > 0, np.nan, 1.0)}, "finite tags"),
        ({"y": ["a", 1] * 100}, "labels of one type. Got number and str"),
        ({"y": [{"a": 1}] * 200}, "numbers or strings as labels. Got dict"),
        ({"y": [object()] * 200}, "labels that can be sorted. Got object"),
        ({"y": np.array([1j, 2] * 100, object)}, "labels that can be sorted. Got complex"),
        ({"y": np.array([10**400, np.inf] * 100, object)}, "finite"),
        ({"y": [[1, [2]]] * 200}, "Got a missing tag or a collection"),
        ({"y": [None] * 200}, "at least two classes. Got 0"),
        ({"y": [1, None] * 100}, "at least two classes. Got 1"),
        ({"y": [1.0, np.inf] * 100}, "finite"),
        ({"y": np.array([["a", None]] * 200, object)}, "Got a missing tag"),
        ({"y": Y, "triplets": [[0, 1, 2]]}, "Only one of y, affinity and triplets"),
        ({}, "requires y to be passed"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_one_line(given, message):
    with pytest.raises(ValueError, match=message) as caught:
        small().fit(X, **given)
    assert "\n" not in str(caught.value)


def test_a_failed_fit_leaves_the_hasher_as_it_was():
    hasher = small().fit(X, Y)
    before = hasher.transform(X)
    with pytest.raises(ValueError, match="at least two classes"):
        hasher.fit(X[:, :10], np.zeros(len(X)))
    assert hasher.n_features_in_ == 64
    np.testing.assert_array_equal(hasher.transform(X), before)


def test_a_model_that_overflowed_is_not_saved(tmp_path):
    hasher = LSH(4, random_state=0).fit(X)
    hasher.encoder_ = replace(hasher.encoder_, bias=np.full(4, np.inf))
    with pytest.raises(ValueError, match="must be finite"):
        hasher.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_three_forms():
    kinds = {ClassLabels: {"y": Y}, Tags: {"y": TAGS}, Pairs: {"affinity": Affinity.from_labels(Y)}}
    for kind, given in kinds.items():
        assert isinstance(read(n=200, **given), kind)
    drawn = Affinity.from_labels(Y, random_state=0)
    assert read(n=200, affinity=drawn).affinity(n_similar=1, n_dissimilar=1, random_state=0) is drawn
    assert read(n=200, affinity=drawn).draw(None, np.random.default_rng(0)).tolist() == list(range(200))


def test_names_of_the_columns_of_codes():
    hasher = small(20).fit(X, Y)
    assert hasher.get_feature_names_out().tolist() == ["fasthash0", "fasthash1", "fasthash2"]
    frame = small(20).set_output(transform="pandas").fit(pd.DataFrame(X), Y).transform(pd.DataFrame(X))
    assert frame.columns.tolist() == ["fasthash0", "fasthash1", "fasthash2"]
    np.testing.assert_array_equal(frame.to_numpy(), hasher.transform(X))


def test_tags_of_many_points_that_are_all_similar():
    """More points than are looked at together: every part is counted with all others."""
    tags = np.ones((ROWS_PER_CHUNK + 100, 2), np.uint8)
    with pytest.raises(ValueError, match="dissimilar"):
        read(tags).check_pairs()
    tags[-1] = 0
    read(tags).check_pairs()
