from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from hashgrove import Affinity
from hashgrove.runtime.streams import draw, draw_few, stream
from hashgrove.supervision import affinity
from hashgrove.supervision.neighbours import draw_by_class
from naive import both_ways, pair_matrix


def check_invariants(affinity):
    """Symmetric, no diagonal, runs sorted without repetition, similar and dissimilar disjoint."""
    Y = pair_matrix(affinity)
    assert (Y == Y.T).all()
    assert (np.diag(Y) == 0).all()
    assert len(affinity.indices) == np.count_nonzero(Y)
    for i in range(len(affinity)):
        for run in (affinity.similar(i), affinity.dissimilar(i)):
            assert (np.diff(run.astype(int)) > 0).all()
    return Y


@pytest.mark.parametrize(
    "labels", [np.repeat([3, 1, 2], [30, 5, 1]), np.array(list("abcab") * 8), np.tile([0.5, 1.5], 20)]
)
def test_all_pairs_of_labels(labels):
    Y = check_invariants(Affinity.from_labels(labels, n_similar=None, n_dissimilar=None))
    expected = np.where(labels[:, None] == labels, 1, -1)
    np.fill_diagonal(expected, 0)
    assert (expected == Y).all()


def test_label_draws_hold_the_limits_and_cover_evenly():
    labels = np.random.default_rng(0).integers(0, 4, 400)
    affinity = Affinity.from_labels(labels, n_similar=10, n_dissimilar=7, random_state=0)
    Y = check_invariants(affinity)
    assert (Y[labels[:, None] == labels] >= 0).all()
    assert (Y[labels[:, None] != labels] <= 0).all()
    # each point drew 10 and 7; the union with the draws of others at most doubles the total
    similar, dissimilar = (Y == 1).sum(axis=1), (Y == -1).sum(axis=1)
    assert similar.min() >= 10
    assert dissimilar.min() >= 7
    assert 10 * 400 < similar.sum() < 20 * 400
    assert 7 * 400 < dissimilar.sum() < 14 * 400
    assert similar.max() < 40, "no point is drawn far more often than others"


def test_small_classes_are_drawn_whole():
    labels = np.array([0] * 50 + [1] * 3)
    Y = check_invariants(Affinity.from_labels(labels, n_similar=5, n_dissimilar=5, random_state=1))
    assert (Y[50:, 50:] + np.eye(3, dtype=int) == 1).all()


@pytest.mark.parametrize("density", [0.03, 0.3, 0.9])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.coo_array])
def test_all_pairs_of_tags(density, container):
    tags = (np.random.default_rng(2).random((60, 20)) < density).astype(int)
    Y = check_invariants(Affinity.from_tags(container(tags), min_shared=2, n_similar=None, n_dissimilar=None))
    expected = np.where(tags @ tags.T >= 2, 1, -1)
    np.fill_diagonal(expected, 0)
    assert (expected == Y).all()


@pytest.mark.parametrize("density", [0.05, 0.5, 0.9])
def test_tag_draws_hold_the_limits(density):
    tags = np.random.default_rng(3).random((300, 12)) < density
    shared = tags.astype(int) @ tags.T.astype(int)
    Y = check_invariants(Affinity.from_tags(tags, min_shared=1, n_similar=6, n_dissimilar=9, random_state=0))
    assert (Y[shared >= 1] >= 0).all()
    assert (Y[shared < 1] <= 0).all()
    others = ~np.eye(300, dtype=bool)
    assert ((Y == 1).sum(axis=1) >= np.minimum(6, ((shared >= 1) & others).sum(axis=1))).all()
    assert ((Y == -1).sum(axis=1) >= np.minimum(9, ((shared < 1) & others).sum(axis=1))).all()


def test_pairs_in_all_three_forms():
    i, j, relation = [0, 1, 4, 2], [1, 2, 0, 2], [1, -1, 1, 1]
    expected = np.zeros((5, 5), int)
    expected[0, 1] = expected[1, 0] = expected[4, 0] = expected[0, 4] = 1
    expected[1, 2] = expected[2, 1] = -1
    forms = [
        np.array([i, j, relation]).T,
        (i, j, relation),
        sparse.coo_matrix((relation, (i, j)), shape=(5, 5)),
    ]
    for pairs in forms:
        assert (check_invariants(Affinity.from_pairs(pairs, n_points=5)) == expected).all()


def test_pair_draws_hold_the_limit():
    rng = np.random.default_rng(4)
    full = np.triu(rng.choice([-1, 1], (80, 80)), 1)
    Y = check_invariants(Affinity.from_pairs(sparse.csr_matrix(full), n_similar=3, n_dissimilar=4, random_state=0))
    assert (Y[Y != 0] == (full + full.T)[Y != 0]).all()
    assert 80 * 3 <= (Y == 1).sum() <= 80 * 6
    assert 80 * 4 <= (Y == -1).sum() <= 80 * 8


@pytest.mark.parametrize("bucket_rows", [1, 2, 64, 8192])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_pair_that_one_point_drew_counts_for_both(bucket_rows, n_jobs, monkeypatch):
    monkeypatch.setattr(affinity, "BUCKET_ROWS", bucket_rows)
    monkeypatch.setattr(affinity, "ROWS_PER_CHUNK", 37)
    labels = np.random.default_rng(6).integers(-1, 5, 400)
    known = np.flatnonzero(labels >= 0)
    drawn = []

    def record(*arguments):
        found = draw_by_class(*arguments)
        drawn.append((arguments[-2], found))
        return found

    monkeypatch.setattr(affinity, "draw_by_class", record)
    pairs = Affinity.from_classes(labels, n_similar=9, n_dissimilar=12, random_state=0, n_jobs=n_jobs)
    assert len(drawn) == 2 * -(-len(known) // 37)  # once to count, and once more
    similar, dissimilar = (
        [
            (known[start + row], known[j])
            for start, draws in drawn
            for row, part in enumerate(np.split(draws[kind][1], np.cumsum(draws[kind][0])[:-1]))
            for j in part
        ]
        for kind in (0, 1)
    )
    for i, (near, far) in enumerate(both_ways(similar, dissimilar, 400)):
        assert pairs.similar(i).tolist() == near
        assert pairs.dissimilar(i).tolist() == far
    assert pairs.indices.base is None  # no room for what was drawn twice is kept


def test_same_seed_same_pairs_at_any_number_of_threads():
    labels = np.random.default_rng(5).integers(0, 10, 3000)
    tags = np.random.default_rng(5).random((1500, 30)) < 0.1
    for build, source in ((Affinity.from_labels, labels), (Affinity.from_tags, tags)):
        one, two = (build(source, random_state=7, n_jobs=n) for n in (1, 2))
        other = build(source, random_state=8)
        assert (one.indptr == two.indptr).all()
        assert (one.indices == two.indices).all()
        assert len(other.indices) != len(one.indices) or (other.indices != one.indices).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Affinity.from_labels([1, 1, 1]), "at least two classes"),
        (lambda: Affinity.from_labels([1, 2, 3]), "different labels"),
        (lambda: Affinity.from_labels([[1, 2]]), "1-D"),
        (lambda: Affinity.from_labels([1.0, np.inf, 1.0]), "finite"),
        (
            lambda: Affinity.from_labels([1, 1, 2], n_similar=0),
            "'n_similar' parameter must be an integer of at least 1",
        ),
        (lambda: Affinity.from_tags(np.eye(3), min_shared=0), "'min_shared'"),
        (lambda: Affinity.from_tags(np.full((3, 2), np.inf)), "finite"),
        (lambda: Affinity.from_tags(np.ones((1, 2))), "at least one known pair"),
        (lambda: Affinity.from_pairs([[0, 1, 1]]), "'n_points'"),
        (lambda: Affinity.from_pairs([[0, 5, -1]], n_points=3), "from 0 to 2"),
        (lambda: Affinity.from_pairs([[0, 1.5, -1]], n_points=3), "integers"),
        (lambda: Affinity.from_pairs([[0, 1, 1], [1, 0, -1]], n_points=3), "contradict"),
        (lambda: Affinity.from_pairs([[0, 1, 0]], n_points=3), "Got 0"),
        (lambda: Affinity.from_pairs([0, 1, 2], n_points=3), "shape"),
        (lambda: Affinity.from_pairs(sparse.eye(3, 4)), "square"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (100, 99), (100, 100), (1000, 64), (2**31, 64), (40, 2**62)])
def test_a_draw_with_little_memory_is_the_same_draw(n, k):
    size = 2 ** int(np.ceil(np.log2(2 * min(n, k) + 1)))
    numbers, stamp, few = np.zeros(size, np.int64), np.zeros(size, np.int64), np.empty(min(n, k), np.int64)
    for tag in range(1, 6):
        count = draw_few(stream(np.uint64(3), tag), n, k, numbers, stamp, tag, few)
        assert count == min(n, k) == len(set(few.tolist()))
        assert few.min() >= 0
        assert few.max() < n
        if n <= 1000:
            expected = np.empty(n, np.int64)
            assert draw(stream(np.uint64(3), tag), n, k, np.zeros(n, np.int64), 1, expected) == count
            np.testing.assert_array_equal(few, expected[:count])
