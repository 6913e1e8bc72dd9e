"""Step 1: minimum cuts, blocks and solvers, compared with exhaustive search and with scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from hashgrove import Affinity, losses
from hashgrove.inference import ICM, SOLVERS, BinaryQuadratic, BlockGraphCut, PairDistances, Spectral
from hashgrove.inference.blocks import class_blocks, greedy_blocks
from hashgrove.inference.graph_cut import _sweep
from hashgrove.inference.mincut import _cut, minimise
from naive import coefficient_matrix, least, pair_matrix


def cut(kernel, W, field, *arguments):
    graph = csr_array(W)
    graph.sort_indices()
    z = np.zeros(len(W), np.int8)
    arrays = graph.indptr.astype(np.int64), graph.indices.astype(np.uint32), graph.data.astype(np.int32)
    kernel(*arrays, np.array(field, np.int64), z, *arguments)
    assert set(z.tolist()) <= {-1, 1}
    return z.astype(int)


def energy(W, field, z):
    return field @ z - z @ W @ z // 2


def energy_by_scipy(W, field):
    """The smallest energy, by scipy's integer maximum flow: the minimum cut is half of it plus a constant."""
    n = len(W)
    capacity = np.zeros((n + 2, n + 2), np.int32)
    capacity[:n, :n] = W
    capacity[n, :n] = np.maximum(-field, 0)
    capacity[:n, n + 1] = np.maximum(field, 0)
    flow = maximum_flow(csr_array(capacity), n, n + 1).flow_value
    return 2 * flow - np.abs(field).sum() - W.sum() // 2


@st.composite
def problems(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density, high, strength = (
        draw(st.floats(0, 1)),
        draw(st.sampled_from([1, 3, 1000])),
        draw(st.sampled_from([1, 5, 30])),
    )
    W = np.triu(rng.integers(0, high + 1, (n, n)) * (rng.random((n, n)) < density), 1)
    field = rng.integers(-strength * high, strength * high + 1, n) * (rng.random(n) < draw(st.floats(0, 1)))
    return W + W.T, field


@settings(deadline=None, max_examples=300)
@given(problems())
def test_mincut_against_scipy(problem):
    W, field = problem
    assert energy(W, field, cut(minimise, W, field)) == energy_by_scipy(W, field)


def test_the_certificate_keeps_to_the_weights_of_edges():
    """Node 4 has room for the fields of nodes 0 and 1, but the edges to it are too light for them."""
    W = np.zeros((5, 5), int)
    for i, j, weight in ((0, 1, 8), (2, 3, 8), (0, 2, 1), (1, 3, 1), (0, 4, 6), (1, 4, 6)):
        W[i, j] = W[j, i] = weight
    field = np.array([11, 11, -7, -7, -30])
    assert energy_by_scipy(W, field) == -68
    assert energy(W, field, cut(minimise, W, field)) == -68


@settings(deadline=None, max_examples=300)
@given(problems(), st.sampled_from([-1, 1]))
def test_push_relabel_alone_against_scipy(problem, heavy):
    """Without persistency and certificate, which would leave little for the flow to do."""
    W, field = problem
    assert energy(W, field, cut(_cut, W, field, np.int64(heavy), len(field))) == energy_by_scipy(W, field)


def test_mincut_on_a_larger_graph():
    rng = np.random.default_rng(0)
    W = np.triu(rng.integers(0, 50, (400, 400)) * (rng.random((400, 400)) < 0.05), 1)
    W = W + W.T
    field = rng.integers(-300, 301, 400)
    assert energy(W, field, cut(minimise, W, field)) == energy_by_scipy(W, field)


def random_problem(seed, *, n=60, n_classes=4, loss=losses.ksh, n_bits=5, weighted=False):
    rng = np.random.default_rng(seed)
    affinity = Affinity.from_labels(rng.integers(0, n_classes, n), n_similar=8, n_dissimilar=8, random_state=seed)
    distances = PairDistances(affinity, n_bits=n_bits + 1)
    bits = rng.choice([-1, 1], (n_bits, n)).astype(np.int8)
    for bit in bits:
        distances.add_bit(bit)
    weights = rng.integers(0, 5, n) / 4 if weighted else None
    return BinaryQuadratic(affinity, distances.values, losses.coefficients(loss, n_bits + 1), weights), bits


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", losses.LOSSES.values())
@pytest.mark.parametrize("seed", range(3))
def test_one_submodular_block_is_solved_exactly(loss, seed, weighted):
    """With all other points fixed at +1, the cut finds the same minimum of a block as exhaustive search."""
    problem, bits = random_problem(seed, n=24, n_classes=2, loss=loss, weighted=weighted)
    block = np.flatnonzero(problem.affinity.classes == 0)[:12]
    A = problem.matrix().toarray()
    z = np.ones(24, np.int8)
    a = problem.affinity
    _sweep(np.array([0]), np.array([0, len(block)]), block.astype(np.uint32), *problem.entries, z)

    def objective(inside):
        full = np.ones(24)
        full[block] = inside
        return full @ A @ full

    assert problem.objective(z) == least(objective, len(block))
    expected = coefficient_matrix(pair_matrix(a), bits, loss)
    if weighted:
        expected = expected * np.outer(problem.point_weights, problem.point_weights)
    np.testing.assert_allclose(A / np.abs(A).max(), expected / np.abs(expected).max(), atol=1e-6)


@pytest.mark.parametrize("solver", [BlockGraphCut(), ICM()])
@pytest.mark.parametrize("tags", [False, True])
def test_a_block_update_never_raises_the_objective(solver, tags):
    rng = np.random.default_rng(0)
    problem, _ = random_problem(1)
    if tags:
        affinity = Affinity.from_tags(rng.random((80, 10)) < 0.3, n_similar=8, n_dissimilar=8, random_state=0)
        distances = PairDistances(affinity, n_bits=3)
        for _ in range(2):
            distances.add_bit(rng.choice([-1, 1], 80).astype(np.int8))
        problem = BinaryQuadratic(affinity, distances.values, losses.coefficients(losses.hinge, 3))
    a = problem.affinity
    blocks = solver.prepare(a, rng)
    z = rng.choice([-1, 1], len(a)).astype(np.int8)
    before, fell = problem.objective(z), False
    for b in [*rng.permutation(len(blocks)), *rng.permutation(len(blocks))]:
        _sweep(np.array([0]), blocks.indptr[b : b + 2], blocks.members, *problem.entries, z)
        after = problem.objective(z)
        assert after <= before
        fell |= after < before
        before = after
    assert fell


def test_block_graph_cut_beats_icm():
    """Block-GC's objective, summed over many problems, is below that of ICM."""
    totals = dict.fromkeys(SOLVERS, 0.0)
    for seed in range(20):
        problem, _ = random_problem(seed, n=200, n_classes=5, n_bits=8)
        rng = np.random.default_rng(seed)
        for name, solver in SOLVERS.items():
            z = solver().solve(solver().prepare(problem.affinity, rng), problem, rng)
            assert z.dtype == np.int8
            assert set(z.tolist()) <= {-1, 1}
            totals[name] += problem.objective(z)
    assert totals["block-gc"] < totals["icm"]
    assert totals["block-gc"] < 0


@pytest.mark.parametrize("solver", [BlockGraphCut, ICM])
def test_zeros_are_a_better_start_than_ones(solver):
    totals = {"ones": 0, "zeros": 0}
    for seed in range(20):
        problem, _ = random_problem(seed, n=200, n_classes=5, n_bits=8)
        for start in totals:
            rng = np.random.default_rng(seed)
            z = solver(start=start).solve(solver().prepare(problem.affinity, rng), problem, rng)
            assert set(z.tolist()) <= {-1, 1}
            totals[start] += problem.objective(z)
    assert totals["zeros"] < totals["ones"] < 0


@pytest.mark.parametrize(("name", "value"), [("start", "random"), ("n_sweeps", 0), ("n_sweeps", 1.5)])
def test_parameters_of_the_block_search_are_checked(name, value):
    problem, _ = random_problem(0)
    solver = BlockGraphCut(**{name: value})
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be .* Got {value!r} instead"):
        solver.prepare(problem.affinity, np.random.default_rng(0))


def test_spectral_is_near_the_exhaustive_minimum():
    for seed in range(10):
        problem, _ = random_problem(seed, n=12, n_classes=2)
        A = problem.matrix().toarray()
        z = Spectral().solve(None, problem, np.random.default_rng(0))
        assert problem.objective(z) <= 0.7 * least(lambda s, A=A: s @ A @ s, 12)


def test_greedy_blocks_cover_all_points_and_have_no_dissimilar_pair():
    rng = np.random.default_rng(0)
    affinity = Affinity.from_tags(rng.random((300, 20)) < 0.15, n_similar=20, n_dissimilar=20, random_state=0)
    Y = pair_matrix(affinity)
    blocks = greedy_blocks(affinity, rng)
    members = np.split(blocks.members.astype(int), blocks.indptr[1:-1])
    assert set(np.concatenate(members)) == set(range(300))
    assert len(blocks) < 150
    for block in members:
        assert (np.diff(block) > 0).all()
        assert (Y[np.ix_(block, block)] >= 0).all()
    assert len(blocks.members) > 300, "similar points may join several blocks"


def test_class_blocks():
    blocks = class_blocks(np.array([2, 0, 1, 0], np.int32))
    assert [b.tolist() for b in np.split(blocks.members, blocks.indptr[1:-1])] == [[1, 3], [2], [0]]


def test_two_points_only():
    problem = BinaryQuadratic(
        affinity := Affinity.from_pairs([[0, 1, -1]], n_points=2),
        np.zeros(2, np.uint8),
        losses.coefficients(losses.ksh, 1),
    )
    for solver in (BlockGraphCut(), ICM(), Spectral()):
        z = solver.solve(solver.prepare(affinity, np.random.default_rng(0)), problem, np.random.default_rng(0))
        assert z[0] == -z[1]


def test_a_point_of_weight_two_counts_like_two_equal_points():
    """The mean loss with weights, and with repeated points, follows from the definition."""
    classes, weights = np.array([0, 0, 1, 1, 2]), np.array([1, 2, 1, 2, 1])
    points = np.repeat(np.arange(5), weights)
    z = np.array([1, -1, 1, 1, -1], np.int8)
    everything = {"n_similar": None, "n_dissimilar": None}
    once = PairDistances(Affinity.from_labels(classes, **everything), n_bits=1, weights=weights / 2)
    repeated = PairDistances(Affinity.from_labels(classes[points], **everything), n_bits=1)
    once.add_bit(z)
    repeated.add_bit(z[points])
    Y, D = (np.where(classes[:, None] == classes, 1, -1), z[:, None] != z)
    both = np.outer(weights, weights) * ~np.eye(5, dtype=bool)
    tables = losses.loss_tables(losses.ksh, 1)
    loss = np.where(Y > 0, tables[0][D.astype(int)], tables[1][D.astype(int)])
    assert once.mean(*tables) == pytest.approx((both * loss).sum() / both.sum())
    assert repeated.mean(*tables) == pytest.approx(
        # copies of a point are similar pairs at distance 0, which a weighted point does not have with itself
        ((both * loss).sum() + 4 * tables[0][0]) / (both.sum() + 4)
    )
