"""What step 1 inferred: the codes of the training rows, the code word of each class, and search with them."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import BoostedTrees, FastHash, FlatIndex, PosteriorBits, evaluate, unpack
from hashgrove.functions.codewords import Codewords
from hashgrove.supervision import ClassLabels
from makers import blob_tags, blobs, pairs_of

X, Y = blobs(noise=0.35)
X_NEW, Y_NEW = blobs(noise=0.35, seed=1)
TREES = BoostedTrees.paper(n_trees=5, max_depth=3)


def small(n_bits=16, **parameters):
    return FastHash(n_bits, **{"hash_function": PosteriorBits(), "random_state": 0, "n_jobs": 1} | parameters)


class TestCodewords:
    def test_labels_that_are_strings(self):
        names = np.array([f"class {label}" for label in Y])
        hasher = small().fit(X, names)
        words = hasher.codewords_.of_labels(["class 3", "class 11", "class 3"])
        assert words.shape == (3, 2)
        np.testing.assert_array_equal(words[0], words[2])
        assert (words[0] != words[1]).any()

    @pytest.mark.parametrize("form", [list, np.array, lambda y: np.array(y, np.int32), lambda y: np.array(y, float)])
    def test_labels_in_other_forms(self, form):
        assert small().fit(X, Y).codewords_.of_labels(form([3, 5])).shape == (2, 2)

    def test_a_label_that_was_not_in_training(self):
        hasher = small().fit(X, Y)
        message = "The 'y' parameter must have labels that were in training. Got 12 instead."
        with pytest.raises(ValueError) as error:
            hasher.codewords_.of_labels([0, 12])
        assert str(error.value) == message

    @pytest.mark.parametrize("kind", ["tags", "pairs"])
    def test_tags_and_pairs_have_none(self, kind):
        rows, tags = blob_tags()
        hasher = small(hash_function=TREES)
        hasher = hasher.fit(rows, tags) if kind == "tags" else hasher.fit(X, affinity=pairs_of(Y))
        with pytest.raises(
            ValueError, match=r"fitted with class labels\. This one was fitted with tags or pairs; infer"
        ):
            hasher.codewords_.of_labels([0])

    @pytest.mark.parametrize("n_bits", [8, 13])
    def test_they_are_the_majority_of_the_inferred_codes(self, n_bits):
        hasher = small(n_bits).fit(X, Y)
        bits = unpack(hasher.inferred_codes_, n_bits)
        for label in range(12):
            votes = bits[label == Y].mean(axis=0)
            np.testing.assert_array_equal(unpack(hasher.codewords_.of_labels([label]), n_bits)[0], votes > 0.5)

    def test_a_tie_is_a_zero(self):
        codes = np.array([[0b101], [0b110]], np.uint8)
        assert Codewords.of(codes, ClassLabels(np.zeros(2, np.int64), names=("a",))).codes.tolist() == [[0b100]]

    def test_unlabelled_rows_have_no_part(self):
        y = np.where(np.arange(len(Y)) % 5 == 0, -1, Y)
        hasher = small(generic_bits=0).fit(X, y, unlabelled=-1)  # generic bits learn from them
        known = y >= 0
        assert len(hasher.inferred_codes_) == known.sum()
        np.testing.assert_array_equal(
            hasher.codewords_.of_labels(range(12)),
            small(generic_bits=0).fit(X[known], Y[known]).codewords_.of_labels(range(12)),
        )
        with pytest.raises(ValueError, match="Got -1 instead"):
            hasher.codewords_.of_labels([-1])


class TestInferredCodes:
    @pytest.mark.parametrize("hash_function", [PosteriorBits(), TREES], ids=str)
    def test_the_learned_bits_differ_from_them_by_the_training_error(self, hash_function):
        hasher = small(hash_function=hash_function, generic_bits=0).fit(X, Y)
        differ = unpack(hasher.transform(X), 16) != unpack(hasher.inferred_codes_, 16)
        np.testing.assert_allclose(differ.mean(axis=0), [record.training_error for record in hasher.history_])

    def test_generic_bits_are_those_of_the_rows(self):
        hasher = small().fit(X, Y)
        is_generic = hasher.encoder_.is_generic
        bits, inferred = unpack(hasher.transform(X), 16), unpack(hasher.inferred_codes_, 16)
        np.testing.assert_array_equal(bits[:, is_generic], inferred[:, is_generic])

    def test_rows_of_one_class_have_one_code_but_for_generic_bits(self):
        hasher = small(generic_bits=0).fit(X, Y)
        own = hasher.codewords_.of_labels(Y)
        assert (unpack(own, 16) == unpack(hasher.inferred_codes_, 16)).mean() > 0.97

    @pytest.mark.parametrize("kind", ["tags", "pairs"])
    def test_tags_and_pairs_have_them(self, kind):
        rows, tags = blob_tags()
        hasher = small(hash_function=TREES)
        hasher = hasher.fit(rows, tags) if kind == "tags" else hasher.fit(X, affinity=pairs_of(Y))
        assert hasher.inferred_codes_.shape == (240, 2)
        assert (
            unpack(hasher.inferred_codes_, 16) == unpack(hasher.transform(rows if kind == "tags" else X), 16)
        ).mean() > 0.6

    @pytest.mark.parametrize("hash_function", [PosteriorBits(), TREES], ids=str)
    def test_a_warm_start_gives_those_of_one_fit_if_not_stagewise(self, hash_function):
        options = {"hash_function": hash_function, "stagewise": False, "generic_bits": 0}
        whole = small(**options).fit(X, Y)
        grown = small(6, warm_start=True, **options).fit(X, Y).set_params(n_bits=16).fit(X, Y)
        np.testing.assert_array_equal(grown.inferred_codes_, whole.inferred_codes_)


class TestSearch:
    """The database has code words of known classes, and the queries are rows that were not in training."""

    @pytest.mark.parametrize("hash_function", [PosteriorBits(), TREES], ids=str)
    def test_code_words_and_margins_retrieve_better_than_codes(self, hash_function):
        hasher = small(12, hash_function=hash_function, generic_bits=0).fit(X, Y)
        codes, queries = hasher.transform(X), hasher.transform(X_NEW)
        words, margins = hasher.codewords_.of_labels(Y), np.abs(hasher.decision_function(X_NEW))
        symmetric = evaluate(codes, queries, y_queries=Y_NEW, y_database=Y, knn=None).map
        by_words = evaluate(words, queries, y_queries=Y_NEW, y_database=Y, knn=None).map
        asymmetric = evaluate(words, queries, y_queries=Y_NEW, y_database=Y, knn=None, weights=margins).map
        assert by_words > symmetric
        assert asymmetric > symmetric + 0.02
        assert asymmetric > by_words

    def test_inferred_codes_of_tags(self):
        rows, tags = blob_tags()
        new, tags_new = blob_tags(seed=1)
        hasher = small(16, generic_bits=0).fit(rows, tags)
        codes, queries = hasher.transform(rows), hasher.transform(new)
        margins = np.abs(hasher.decision_function(new))
        symmetric = evaluate(codes, queries, y_queries=tags_new, y_database=tags, knn=None).map
        inferred = evaluate(
            hasher.inferred_codes_, queries, y_queries=tags_new, y_database=tags, knn=None, weights=margins
        ).map
        assert inferred > symmetric


def test_inferred_codes_and_code_words_know_their_model():
    hasher, other = small().fit(X, Y), small(random_state=1).fit(X, Y)
    assert hasher.inferred_codes_.model == hasher.codewords_.of_labels(Y).model == hasher.digest
    index = FlatIndex(hasher.codewords_.of_labels(Y))
    assert index.search(hasher.transform(X_NEW), 1).ids.shape == (len(X_NEW), 1)
    with pytest.raises(ValueError, match="codes of different models cannot be compared"):
        index.search(other.transform(X_NEW), 1)
