"""Weighted Hamming distances: search and evaluation by them, against sums over bits."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove import FastHash, FlatIndex, evaluate
from hashgrove.index.weighted import N_UNITS


def problem(n_bits, *, n=400, n_queries=9, seed=0):
    rng = np.random.default_rng(seed)
    n_bytes = -(-n_bits // 8)
    codes, queries = (rng.integers(256, size=(rows, n_bytes), dtype=np.uint8) for rows in (n, n_queries))
    return codes, queries, rng.random((n_queries, n_bits)) ** 2


@pytest.mark.parametrize("n_bits", [3, 8, 61, 64, 130, 1024])
def test_search_against_sums_over_bits(n_bits):
    codes, queries, weights = problem(n_bits)
    ids = np.random.default_rng(1).permutation(10_000)[: len(codes)]
    index = FlatIndex(codes, ids=ids)
    place = {id_: row for row, id_ in enumerate(ids.tolist())}
    distances, found = index.search(queries, 30, weights=weights)
    assert distances.dtype == np.float32
    for q in range(len(queries)):
        expected = naive.weighted_distances(queries[q], weights[q], index.codes)
        rounding = weights[q].sum() / N_UNITS * n_bits
        of_found = expected[[place[id_] for id_ in found[q].tolist()]]
        np.testing.assert_allclose(distances[q], of_found, atol=rounding)
        np.testing.assert_allclose(distances[q], np.sort(expected)[:30], atol=rounding)
        assert (np.diff(distances[q]) >= 0).all()
        ties = np.diff(distances[q]) == 0
        assert (np.diff(found[q])[ties] > 0).all()


def test_equal_weights_are_the_hamming_distance():
    codes, queries, _ = problem(64)
    index = FlatIndex(codes)
    distances, ids = index.search(queries, 50)
    for n_jobs in (1, 2):
        weighted, same = index.search(queries, 50, weights=np.full((len(queries), 64), 2.0), n_jobs=n_jobs)
        np.testing.assert_array_equal(ids, same)
        np.testing.assert_allclose(weighted, 2.0 * distances, rtol=1e-3)


def test_a_bit_of_no_weight_does_not_count():
    index = FlatIndex(np.array([[1], [2], [3]], np.uint8))
    distances, ids = index.search(np.array([[0]], np.uint8), 9, weights=[[0.0, 5.0]])
    assert ids.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(distances, [[0, 5, 5]], rtol=1e-3)
    nothing, ids = index.search(np.array([[0]], np.uint8), 9, weights=[[0.0] * 8])
    assert (nothing.tolist(), ids.tolist()) == ([[0, 0, 0]], [[0, 1, 2]])


@pytest.mark.parametrize("factor", [1e308, 1e300, 1e-300, 5e-324])
def test_only_ratios_of_weights_matter_for_the_order(factor):
    codes, queries, _ = problem(16)
    weights = np.random.default_rng(3).integers(0, 2, (len(queries), 16)).astype(float)
    index = FlatIndex(codes)
    distances, ids = index.search(queries, 400, weights=weights)
    with np.errstate(over="ignore"):
        expected = (np.round(distances.astype(float)) * factor).astype(np.float32)
    found, same = index.search(queries, 400, weights=weights * factor)
    np.testing.assert_array_equal(same, ids)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    reports = [
        evaluate(index, queries, y_queries=ids[:, 0], y_database=np.arange(400), weights=w)
        for w in (weights, weights * factor)
    ]
    assert reports[0].map == reports[1].map


def test_empty_index_and_no_queries():
    index = FlatIndex(np.empty((0, 2), np.uint8))
    assert index.search(np.zeros((3, 2), np.uint8), 5, weights=np.ones((3, 16))).distances.shape == (3, 0)
    index.add(np.zeros((4, 2), np.uint8))
    assert index.search(np.zeros((0, 2), np.uint8), 5, weights=np.ones((0, 16))).ids.shape == (0, 4)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 16)), r"must have 3 rows, one per query, and 9 to 16 columns, one per bit. Got shape \(2, 16\)"),
        (np.ones((3, 8)), "9 to 16 columns"),
        (np.ones(16), "Got shape"),
        (np.full((3, 16), -1.0), "must be finite and not negative"),
        (np.full((3, 16), np.nan), "must be finite and not negative"),
    ],
)
def test_weights_are_checked(weights, message):
    index, queries = FlatIndex(np.zeros((5, 2), np.uint8)), np.zeros((3, 2), np.uint8)
    with pytest.raises(ValueError, match=message):
        index.search(queries, 2, weights=weights)
    with pytest.raises(ValueError, match=message):
        evaluate(index, queries, y_queries=[0, 1, 0], y_database=[0, 1, 0, 1, 0], weights=weights)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_evaluation_against_a_sort(tags, exclude_self):
    codes, queries, weights = problem(40)
    rng = np.random.default_rng(2)
    if exclude_self:
        codes = queries
    make = (lambda n: rng.random((n, 5)) < 0.4) if tags else (lambda n: rng.integers(3, size=n))
    y = make(len(codes))
    y_query = y if exclude_self else make(len(queries))
    report = evaluate(
        FlatIndex(codes),
        queries,
        y_queries=y_query,
        y_database=y,
        k=5,
        weights=weights,
        exclude_self=exclude_self,
        min_shared=1,
    )
    average, precision = [], []
    for q in range(len(queries)):
        relevant = (y & y_query[q]).any(axis=1) if tags else y == y_query[q]
        order = np.argsort(naive.weighted_distances(queries[q], weights[q], codes), kind="stable")
        hits = relevant[order[order != q] if exclude_self else order]
        if hits.any():
            average.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
            precision.append(hits[:5].mean())
    assert report.map == pytest.approx(np.mean(average), abs=0.01)  # rounding ties what differs by 1 / 32,768
    assert report.precision_at_k == pytest.approx(np.mean(precision), abs=0.01)
    assert report.weighted
    assert "counted with weights" in str(report)


def test_ties_by_id_are_refused_with_weights():
    index = FlatIndex(np.zeros((2, 1), np.uint8))
    with pytest.raises(ValueError, match=r"must be 'expected' if weights are given\. Got 'id'"):
        evaluate(
            index, np.zeros((1, 1), np.uint8), y_queries=[0], y_database=[0, 1], ties="id", weights=np.ones((1, 8))
        )


def test_margins_rank_better_than_bits(digits):
    X_train, y_train, X_query, y_query = digits
    hasher = FastHash(16, hash_function="linear-svm", random_state=0).fit(X_train, y_train)
    index, codes = FlatIndex(hasher.transform(X_train)), hasher.transform(X_query)
    plain = evaluate(index, codes, y_queries=y_query, y_database=y_train)
    margins = evaluate(
        index, codes, y_queries=y_query, y_database=y_train, weights=np.abs(hasher.decision_function(X_query))
    )
    assert margins.map > plain.map
