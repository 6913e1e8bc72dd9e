"""Rankings by real vectors against one pair at a time, and the curve over the first bits of codes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import naive
from hashgrove import FastHash, PosteriorBits, evaluate, evaluate_bits, evaluate_vectors, pack, unpack
from hashgrove.metrics import vectors
from makers import blob_tags, blobs

DATABASE, Y_DATABASE = blobs(70, 5, 4, noise=0.6)
QUERIES, Y_QUERY = blobs(30, 5, 4, noise=0.6, seed=1)


def same_class(a, b):
    return a == b


class TestVectors:
    @pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
    @pytest.mark.parametrize("k", [1, 7, 1000])
    def test_measures_are_those_of_a_naive_ranking(self, metric, k):
        found = evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE, metric=metric, k=k)
        expected = naive.vector_measures(
            DATABASE, QUERIES, Y_QUERY, Y_DATABASE, metric=metric, k=k, relevant=same_class
        )
        assert (found.map, found.precision_at_k) == pytest.approx(expected, abs=1e-9)
        assert found.k == min(k, 70)

    @pytest.mark.parametrize("metric", ["cosine", "euclidean"])
    def test_a_query_is_left_out_of_its_own_ranking(self, metric):
        found = evaluate_vectors(
            DATABASE, DATABASE, y_queries=Y_DATABASE, y_database=Y_DATABASE, metric=metric, k=5, exclude_self=True
        )
        expected = naive.vector_measures(
            DATABASE, DATABASE, Y_DATABASE, Y_DATABASE, metric=metric, k=5, relevant=same_class, exclude_self=True
        )
        assert (found.map, found.precision_at_k) == pytest.approx(expected, abs=1e-9)
        assert len(found.precision) == 69

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
    @pytest.mark.parametrize("min_shared", [1, 2, 3])
    def test_tags(self, form, min_shared):
        rows, tags = blob_tags(40, 4)
        found = evaluate_vectors(
            rows, rows, y_queries=form(tags), y_database=form(tags), min_shared=min_shared, k=5, exclude_self=True
        )
        expected = naive.vector_measures(
            rows, rows, tags, tags,
            metric="cosine", k=5, relevant=lambda a, b: a @ b >= min_shared, exclude_self=True,
        )  # fmt: skip
        assert (found.map, found.precision_at_k) == pytest.approx(expected, abs=1e-9)

    def test_labels_that_are_strings_and_lists(self):
        names = [f"class {label}" for label in Y_DATABASE], [f"class {label}" for label in Y_QUERY]
        one = evaluate_vectors(DATABASE.tolist(), QUERIES.tolist(), y_queries=names[1], y_database=names[0])
        two = evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE)
        assert (one.map, one.precision_at_k) == (two.map, two.precision_at_k)

    def test_curves(self):
        found = evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE, metric="euclidean")
        distances = np.linalg.norm(QUERIES[:, None] - DATABASE, axis=2)
        marks = np.take_along_axis(Y_QUERY[:, None] == Y_DATABASE, np.argsort(distances, axis=1), axis=1)
        for depth in (1, 3, 70):
            assert found.precision[depth - 1] == pytest.approx(marks[:, :depth].mean())
            assert found.recall[depth - 1] == pytest.approx(marks[:, :depth].sum() / marks.sum())
        assert found.pr_area == pytest.approx(
            found.recall[0] * found.precision[0] + np.trapezoid(found.precision, found.recall)
        )

    def test_an_item_at_the_mean_is_at_no_angle_to_any_query(self):
        """Its cosine is 0: it comes after items that point to the query and before those that point away."""
        database = np.array([[1.0, 0.1], [-1.0, 0.1], [0.0, -0.2], [0.0, 0.0]])
        assert database.mean(axis=0).tolist() == [0, 0]
        found = evaluate_vectors(database, [[1.0, 0.3]], y_queries=[7], y_database=[1, 2, 3, 7])
        assert found.map == pytest.approx(1 / 2)

    def test_queries_without_a_relevant_item_do_not_count(self):
        y = np.where(np.arange(30) < 10, 99, Y_QUERY)
        found = evaluate_vectors(DATABASE, QUERIES, y_queries=y, y_database=Y_DATABASE)
        assert found.map == pytest.approx(
            evaluate_vectors(DATABASE, QUERIES[10:], y_queries=Y_QUERY[10:], y_database=Y_DATABASE).map
        )
        assert np.isnan(evaluate_vectors(DATABASE, QUERIES, y_queries=np.full(30, 99), y_database=Y_DATABASE).map)

    def test_any_number_of_threads_and_chunks(self, monkeypatch):
        found = [
            evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE, n_jobs=n).map for n in (1, 2)
        ]
        monkeypatch.setattr(vectors, "QUERIES_PER_CHUNK", 7)
        found.append(evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE, n_jobs=2).map)
        assert found[0] == found[1] == pytest.approx(found[2])

    @pytest.mark.parametrize("options", [{"metric": "manhattan"}, {"k": 0}, {"exclude_self": 1}])
    def test_bad_options(self, options):
        with pytest.raises(ValueError, match=f"The '{next(iter(options))}' parameter must be"):
            evaluate_vectors(DATABASE, QUERIES, y_queries=Y_QUERY, y_database=Y_DATABASE, **options)


@pytest.fixture(scope="module")
def hasher():
    return FastHash(20, hash_function=PosteriorBits(), random_state=0, n_jobs=1).fit(DATABASE, Y_DATABASE)


class TestFirstBits:
    def test_every_prefix_is_what_packing_by_hand_gives(self, hasher):
        curve = evaluate_bits(hasher, QUERIES, y=Y_QUERY, n_bits=[20, 1, 9, 16], k=5)
        assert list(curve) == [1, 9, 16, 20]
        for length, report in curve.items():
            codes = pack(unpack(hasher.transform(QUERIES), 20)[:, :length])
            expected = evaluate(codes, codes, y_queries=Y_QUERY, y_database=Y_QUERY, exclude_self=True, knn=None, k=5)
            assert report.to_dict() == expected.to_dict()
        assert curve[20].map == pytest.approx(hasher.score(QUERIES, Y_QUERY))

    def test_lengths_above_that_of_the_codes_are_left_out(self, hasher):
        assert list(evaluate_bits(hasher, QUERIES, y=Y_QUERY)) == [16]

    def test_tags(self):
        rows, tags = blob_tags(80)
        hasher = FastHash(16, hash_function=PosteriorBits(), random_state=0, n_jobs=1).fit(rows, tags)
        curve = evaluate_bits(hasher, rows, y=tags, n_bits=[4, 16], min_shared=2)
        assert curve[4].map < curve[16].map

    @pytest.mark.parametrize("bits", [[0], [-1, 8], [2.5]])
    def test_bad_lengths(self, hasher, bits):
        with pytest.raises(ValueError, match="The 'n_bits' parameter must be"):
            evaluate_bits(hasher, QUERIES, y=Y_QUERY, n_bits=bits)
