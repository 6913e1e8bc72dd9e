"""Paired intervals are those of scipy's t-test, and hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hashgrove import evaluate, evaluate_vectors
from hashgrove.metrics import Difference

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 4, 300)
CODES = (RNG.integers(0, 256, (4, 4))[Y] ^ (1 << RNG.integers(0, 8, (300, 4)))).astype(np.uint8)
NOISY = CODES ^ (1 << RNG.integers(0, 8, (300, 4))).astype(np.uint8)
OPTIONS = {"y_queries": Y, "y_database": Y, "exclude_self": True, "k": 10}


def test_values_per_query_have_the_means_of_the_report():
    y = np.where(np.arange(300) == 7, 99, Y)  # a query without a relevant item
    for report in (
        evaluate(CODES, CODES, **OPTIONS | {"y_queries": y, "y_database": y}),
        evaluate(CODES, CODES, **OPTIONS | {"y_queries": y, "y_database": y}, ties="id"),
        evaluate_vectors(CODES, CODES, **OPTIONS | {"y_queries": y, "y_database": y}),
    ):
        for values, mean in ((report.average_precision, report.map), (report.query_precision, report.precision_at_k)):
            assert np.flatnonzero(np.isnan(values)).tolist() == [7]
            assert np.nanmean(values) == pytest.approx(mean, abs=1e-12)
    alone = evaluate(CODES, CODES[3:4], y_queries=Y[3:4], y_database=Y, k=10)
    many = evaluate(CODES, CODES, y_queries=Y, y_database=Y, k=10)
    assert (many.average_precision[3], many.query_precision[3]) == (alone.map, alone.precision_at_k)


def test_the_interval_is_that_of_a_paired_t_test():
    one, two = (evaluate(codes, codes, **OPTIONS) for codes in (CODES, NOISY))
    found = one.compare(two)
    for difference, a, b in (
        (found.map, one.average_precision, two.average_precision),
        (found.precision_at_k, one.query_precision, two.query_precision),
    ):
        expected = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert found.map.mean == pytest.approx(one.map - two.map)
    assert found.map.is_decided
    assert found.map.low > 0
    swapped = two.compare(one)
    assert swapped.map == pytest.approx((-found.map.mean, -found.map.high, -found.map.low))


def test_it_is_the_interval_of_a_bootstrap_over_queries():
    one, two = (evaluate(codes, codes, **OPTIONS) for codes in (CODES, NOISY))
    differences = one.average_precision - two.average_precision
    means = RNG.choice(differences, (4000, 300)).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    found = one.compare(two).map
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Skewed differences, as those of average precision are: many zeros and a few large ones."""
    truth, n, inside = 0.1 * 0.5, 60, 0
    for _ in range(2000):
        differences = np.where(RNG.random(n) < 0.1, 0.5, 0.0) + RNG.normal(0, 0.1, n)
        found = Difference.of(differences, np.zeros(n))
        inside += found.low <= truth <= found.high
    assert 0.92 < inside / 2000 < 0.97


def test_vectors_and_codes_can_be_compared():
    codes, vectors = evaluate(CODES, CODES, **OPTIONS), evaluate_vectors(CODES, CODES, **OPTIONS)
    assert codes.compare(vectors).map.mean == pytest.approx(codes.map - vectors.map)
    assert vectors.compare(codes).map.mean == pytest.approx(vectors.map - codes.map)


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([0.5], [0.2], (0.3, -1, 1)),
        ([np.nan, 1.0], [0.5, 0.0], (1.0, -1, 1)),
        ([1.0, 0.0], [0.0, 1.0], (0.0, -1, 1)),
        ([0.5, 0.7], [0.2, 0.4], (0.3, 0.3, 0.3)),
        ([np.nan], [0.5], (np.nan, -1, 1)),
    ],
)
def test_few_queries(values, others, expected):
    assert Difference.of(np.array(values), np.array(others)) == pytest.approx(expected, nan_ok=True)


def test_other_queries_or_depths_are_refused():
    report = evaluate(CODES, CODES, **OPTIONS)
    fewer = evaluate(CODES, CODES[:9], y_queries=Y[:9], y_database=Y, k=10)
    with pytest.raises(ValueError, match=r"The 'other' parameter must be an evaluation of the same 300 queries"):
        report.compare(fewer)
    with pytest.raises(ValueError, match=r"with k=10. Got 300 queries with k=5 instead"):
        report.compare(evaluate(CODES, CODES, **OPTIONS | {"k": 5}))


def test_values_per_query_are_not_written():
    assert not {"average_precision", "query_precision"} & set(evaluate(CODES, CODES, **OPTIONS).to_dict())
