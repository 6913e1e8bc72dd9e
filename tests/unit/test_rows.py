"""Rows that are made when they are needed, and sums over them that are exact."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from scipy import sparse

from hashgrove.numerics import rows
from hashgrove.numerics.rows import (
    LARGEST_COUNT,
    LARGEST_TOTAL,
    LEVELS,
    ExactSums,
    Rows,
    integer_counts,
    stratified_rows,
)
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.executors import carried_out_by

X = unit_rows(np.random.default_rng(0).normal(size=(500, 12)) + 0.3)
WEIGHTS = np.random.default_rng(1).uniform(0, 3, size=len(X))
TARGETS = np.random.default_rng(2).choice([-1, 1], size=(len(X), 3)).astype(np.int8)


def rows_of(X, **options):
    return Rows(X, **options)


def all_sums(weights=None, *, targets=TARGETS, n_jobs=1, **options):
    sums = ExactSums(rows_of(X, n_jobs=n_jobs), integer_counts(weights), **options)
    return [*sums.moments(), *sums.with_targets(targets)]


def naive_sums(weights=None, *, chosen=None):
    """The same, with Python's integers."""
    levels = np.rint(X * np.float32(LEVELS)).astype(int).tolist()
    counts = [1] * len(X) if weights is None else integer_counts(weights).tolist()
    numbers = range(len(X)) if chosen is None else chosen.tolist()
    d, k = X.shape[1], TARGETS.shape[1]
    total = [sum(counts[i] * levels[i][a] for i in numbers) / LEVELS for a in range(d)]
    products = [
        [sum(counts[i] * levels[i][a] * levels[i][b] for i in numbers) / LEVELS**2 for b in range(d)] for a in range(d)
    ]
    of_targets = [sum(counts[i] * int(TARGETS[i, t]) for i in numbers) for t in range(k)]
    moments = [
        [sum(counts[i] * int(TARGETS[i, t]) * levels[i][a] for i in numbers) / LEVELS for a in range(d)]
        for t in range(k)
    ]
    return [total, products, of_targets, moments]


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weights"])
@pytest.mark.parametrize("chosen", [None, np.arange(3, 500, 7)], ids=["all", "some"])
def test_sums_are_those_of_python_integers(weights, chosen):
    for found, expected in zip(all_sums(weights, chosen=chosen), naive_sums(weights, chosen=chosen), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weights"])
def test_they_are_the_same_to_the_last_bit_for_any_blocks_order_and_threads(weights, monkeypatch):
    expected = all_sums(weights)
    orders = [None, np.random.default_rng(3).permutation(len(X)), np.arange(len(X))[::-1]]
    for size, kept in ((1, 2**24), (7, 0), (333, 0)):
        monkeypatch.setattr(rows, "ROWS_PER_CHUNK", size)
        monkeypatch.setattr(rows, "WEIGHTED_ROWS", size)
        monkeypatch.setattr(rows, "KEPT_VALUES", kept)
        for order in orders:
            for n_jobs in (1, 2):
                for found, one in zip(all_sums(weights, chosen=order, n_jobs=n_jobs), expected, strict=True):
                    np.testing.assert_array_equal(found, one)


def test_sparse_targets():
    tags = (TARGETS > 0).astype(np.float64)
    for found, one in zip(all_sums(targets=sparse.csr_array(tags)), all_sums(targets=tags), strict=True):
        np.testing.assert_array_equal(found, one)


def test_the_largest_sums_are_exact():
    """As many rows as a block has, of the largest values and counts; float64 ends at 2^53, int64 at 2^63."""
    assert LEVELS**2 * LARGEST_COUNT * rows.WEIGHTED_ROWS <= 2**53
    assert LEVELS**2 * rows.ROWS_PER_CHUNK <= 2**53
    assert LEVELS**2 * LARGEST_TOTAL < 2**63
    ones = np.ones((rows.WEIGHTED_ROWS, 1), np.float32)
    total, products = ExactSums(rows_of(ones), np.full(len(ones), LARGEST_COUNT)).moments()
    assert total[0] == products[0, 0] == LARGEST_COUNT * len(ones)


def test_values_beyond_the_largest_count_as_it():
    wide = np.array([[3.0, -3.0]])
    assert ExactSums(rows_of(wide), largest=2.0).moments()[0].tolist() == [2.0, -2.0]


def test_counts_are_proportional_to_weights():
    counts = integer_counts(WEIGHTS)
    assert counts.max() == LARGEST_COUNT
    np.testing.assert_allclose(counts / LARGEST_COUNT, WEIGHTS / WEIGHTS.max(), atol=0.5 / LARGEST_COUNT)
    assert integer_counts(None) is None


def test_rows_are_kept_only_if_they_are_few(monkeypatch):
    for kept, n_calls in ((X.size, 1), (X.size - 1, 3)):
        monkeypatch.setattr(rows, "KEPT_VALUES", kept)
        calls = []
        made = Rows(X, lambda part, calls=calls: calls.append(len(part)) or part)
        for _ in range(3):
            np.testing.assert_array_equal(made.take(slice(5, 9)), X[5:9])
        assert len(calls) == n_calls


@pytest.mark.parametrize(("n", "size"), [(5, 9), (5, 5), (100, 30), (7, 1), (2_000_000, 50_000)])
def test_stratified_rows_are_one_of_each_part(n, size):
    found = stratified_rows(n, size)
    assert len(found) == min(n, size)
    limits = np.arange(len(found) + 1) * n // len(found)
    assert (limits[:-1] <= found).all()
    assert (found < limits[1:]).all()
    np.testing.assert_array_equal(found, stratified_rows(n, size))


def test_stratified_rows_of_classes_that_take_turns_are_of_all_classes():
    classes = stratified_rows(40_000, 20_000) % 2
    assert 0.45 < classes.mean() < 0.55


def test_rows_that_are_made_of_others():
    counts = np.arange(len(X))
    made = Rows(X, np.multiply, aligned=(counts[:, None],), is_kept=False)
    scaled = made.then(lambda rows, more: rows[:, :2] + more[:, None], counts, n_columns=2)
    expected = (X * counts[:, None])[:, :2] + counts[:, None]
    assert scaled.shape == (len(X), 2)
    np.testing.assert_array_equal(scaled.take(slice(3, 9)), expected[3:9])
    np.testing.assert_array_equal(made.apply(lambda rows, more: rows.sum(axis=1) + more, counts).shape, counts.shape)


class Elsewhere:
    """An executor in this process; what it is given could be sent away."""

    def __init__(self):
        self.n_pieces = 0

    def map(self, function, pieces, *, prepare, rows):
        data = prepare(pickle.loads(pickle.dumps(rows)), n_jobs=1)
        for piece in pieces:
            self.n_pieces += 1
            sent, part = pickle.loads(pickle.dumps((function, piece)))
            yield sent(data, part)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_sums_of_parts_elsewhere_are_the_same(monkeypatch, weights):
    monkeypatch.setattr(rows, "KEPT_VALUES", 0)
    for name, size in (("ROWS_PER_CHUNK", 32), ("WEIGHTED_ROWS", 16), ("PART_ROWS", 64)):
        monkeypatch.setattr(rows, name, size)
    expected, elsewhere = all_sums(weights), Elsewhere()
    scores = rows_of(X).apply(partial(np.dot, b=X[0]))
    with carried_out_by(elsewhere):
        for found, known in zip(all_sums(weights), expected, strict=True):
            np.testing.assert_array_equal(found, known)
        assert elsewhere.n_pieces == 2 * 8
        np.testing.assert_array_equal(rows_of(X).apply(partial(np.dot, b=X[0])), scores)
        assert elsewhere.n_pieces == 3 * 8
