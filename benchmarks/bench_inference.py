"""Step 1 with Block GraphCut: the cuts of one bit against other exact solvers, and 64 bits against ICM and Spectral."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import maximum_flow

from contest import OURS, Contender, Contest, Entry, Setting, Target, best, main, race, timed, with_held
from hashgrove import ICM, Affinity, BlockGraphCut, Spectral, losses
from hashgrove.inference import BinaryQuadratic, PairDistances
from hashgrove.inference.blocks import Blocks
from hashgrove.inference.mincut import minimise
from hashgrove.runtime.compiling import kernel

LOSS = losses.ksh
SPECTRAL_BITS = 2  # it takes 20 s per bit
BIT = 16  # the bit whose cuts are timed; at a power of two KSH's coefficients are small whole numbers
ZEROS = "Block-GC from zeros"
SOLVERS = {"Block-GC": BlockGraphCut(), ZEROS: BlockGraphCut(start="zeros"), "ICM": ICM(), "Spectral": Spectral()}

# objectives after 64 bits in a first sketch: (problem, share of wrong bits) -> solver -> value
SKETCHED = {
    ("classes", 0.0): {"ICM": 0.5255, "Block-GC": 0.4003, "Spectral": 0.4040},
    ("classes", 0.12): {"ICM": 0.634, "Block-GC": 0.541, "Spectral": 0.550},
    ("many classes", 0.0): {"ICM": 0.6309, "Block-GC": 0.5461, "Spectral": 0.5561},
    ("tags", 0.0): {"ICM": 0.7253, "Block-GC": 0.6740, "Spectral": 0.6512},
}


def topical_tags(n: int, *, n_tags: int = 268, mean: float = 4.7, n_topics: int = 40) -> sparse.csr_array:
    """Make tags like those of ESP GAME in the paper: as many tags, as many per point, frequencies like 1 / rank.

    Each point has one topic of eight tags. Three quarters of its tags come from the topic, the others from all tags.
    """
    rng = np.random.default_rng(0)
    share = 1 / (np.arange(n_tags) + 10.0)
    share /= share.sum()
    topics = np.stack([rng.choice(n_tags, size=8, replace=False, p=share) for _ in range(n_topics)])
    rows = np.repeat(np.arange(n), 1 + rng.poisson(mean - 1, size=n))
    anywhere = rng.choice(n_tags, size=len(rows), p=share)
    of_topic = topics[rng.integers(n_topics, size=n)[rows], rng.integers(8, size=len(rows))]
    columns = np.where(rng.random(len(rows)) < 0.75, of_topic, anywhere)
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n_tags))


@lru_cache(maxsize=1)
def affinity_of(kind: str, n: int) -> Affinity:
    """Draw 100 similar and 100 dissimilar neighbours per point."""
    if kind == "tags":
        return Affinity.from_tags(topical_tags(n), random_state=0)
    n_classes = 10 if kind == "classes" else max(10, n * 397 // 100_000)
    return Affinity.from_labels(np.random.default_rng(0).integers(n_classes, size=n), random_state=0)


class Bits(NamedTuple):
    """The state after some bits, and the seconds of each."""

    distances: PairDistances
    blocks: Any
    seconds: list[float]
    objective: float


def infer(affinity: Affinity, solver: Any, n_bits: int, flip: float) -> Bits:
    """Infer ``n_bits`` bits on one thread, after each of which a share ``flip`` of the values is made wrong."""
    state = solver.prepare(affinity, np.random.default_rng(0))
    distances = PairDistances(affinity, n_bits=64, n_jobs=1)
    seconds = []

    def step(r: int, rng: np.random.Generator) -> None:
        problem = BinaryQuadratic(affinity, distances.values, losses.coefficients(LOSS, r + 1))
        z = solver.solve(state, problem, rng)
        problem.weights()
        distances.add_bit(np.where(wrong, -z, z).astype(np.int8))

    for r in range(n_bits):
        rng = np.random.default_rng([1, r])
        wrong = rng.random(len(affinity)) < flip
        seconds.append(timed(partial(step, r, rng))[1])
    return Bits(distances, state, seconds, distances.mean(*losses.loss_tables(LOSS, n_bits)))


class Cut(NamedTuple):
    """The problem min sum_i field_i z_i - sum_{i<j} weights_ij z_i z_j over signs z, as a symmetric graph in CSR."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]
    weights: NDArray[np.int32]
    field: NDArray[np.int64]

    def energy_of_flow(self, flow: int) -> int:
        """Return the minimum, given the maximum flow."""
        return 2 * flow - int(np.abs(self.field).sum()) - int(self.weights.sum(dtype=np.int64)) // 2

    def energy(self, z: NDArray[np.int8]) -> int:
        """Return the value at ``z``."""
        pair = np.repeat(z, np.diff(self.indptr)) * self.weights.astype(np.int64) @ z[self.indices]
        return int(self.field @ z) - int(pair) // 2


def sweep_blocks(
    problem: BinaryQuadratic, blocks: Blocks, rng: np.random.Generator, minimum: Callable[[Cut], NDArray[np.int8]]
) -> NDArray[np.int8]:
    """Sweep over the blocks twice, like `BlockGraphCut`, with any solver; coefficients are made small integers."""
    divisor = np.gcd.reduce(np.concatenate(problem.coefficients))
    A = problem.matrix() / divisor
    z = np.ones(A.shape[0], np.int8)
    for _ in range(2):
        for b in rng.permutation(len(blocks)):
            members = blocks.members[blocks.indptr[b] : blocks.indptr[b + 1]].astype(np.int64)
            rows = A[members]
            inside = rows[:, members]
            inside.sort_indices()
            field = (rows @ z - inside @ z[members]).astype(np.int64)
            indices, weights = inside.indices.astype(np.uint32), -inside.data.astype(np.int32)
            z[members] = minimum(Cut(inside.indptr.astype(np.int64), indices, weights, field))
    return z


def minimise_one(cut: Cut) -> NDArray[np.int8]:
    """Solve one problem with our minimiser."""
    z = np.empty(len(cut.field), np.int8)
    minimise(cut.indptr, cut.indices, cut.weights, cut.field.copy(), z)
    return z


@kernel
def _minimise_all(starts, first_entry, indptr, indices, weights, field, z):
    """Solve all problems, as a sweep does; problem p has the nodes [starts[p], starts[p + 1])."""
    for p in range(len(starts) - 1):
        a, b = starts[p], starts[p + 1]
        c, d = first_entry[p], first_entry[p + 1]
        minimise(indptr[a + p : b + p + 1], indices[c:d], weights[c:d], field[a:b], z[a:b])


def our_minima(cuts: list[Cut]) -> Contender:
    """Return a contender that solves all problems in one compiled loop; its answer is the signs."""

    def prepare() -> Any:
        starts = np.cumsum([0] + [len(cut.field) for cut in cuts])
        entries = np.cumsum([0] + [len(cut.indices) for cut in cuts])
        return starts, entries, *(np.concatenate([getattr(cut, name) for cut in cuts]) for name in Cut._fields)

    def run(data: Any) -> NDArray[np.int8]:
        *graph, field = data
        z = np.empty(len(field), np.int8)
        _minimise_all(*graph, field.copy(), z)
        return z

    return Contender(name=OURS, prepare=prepare, run=run, note="cuts alone")


def flow_network(cut: Cut) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return tails, heads and capacities. The source is node n, the sink n + 1; a positive field flows to the sink.

    An arc of capacity 0 from source to sink makes both exist even if all fields have the same sign.
    """
    n = len(cut.field)
    tails = np.repeat(np.arange(n, dtype=np.int32), np.diff(cut.indptr))
    positive, negative = np.flatnonzero(cut.field > 0), np.flatnonzero(cut.field < 0)
    return (
        np.concatenate([tails, positive, np.full(len(negative) + 1, n)]).astype(np.int32),
        np.concatenate([cut.indices, np.full(len(positive), n + 1), negative, [n + 1]]).astype(np.int32),
        np.concatenate([cut.weights, cut.field[positive], -cut.field[negative], [0]]).astype(np.int64),
    )


def ortools_solver(cut: Cut) -> Any:
    """Run the push-relabel algorithm of ortools; return the solver."""
    from ortools.graph.python import max_flow

    tails, heads, capacities = flow_network(cut)
    n = len(cut.field)
    solver = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(tails, heads, capacities)
    if solver.solve(n, n + 1) != solver.OPTIMAL:
        raise AssertionError("ortools found no maximum flow")
    return solver


def scipy_flow(cut: Cut) -> int:
    """Compute the maximum flow with Dinic's algorithm in scipy."""
    tails, heads, capacities = flow_network(cut)
    n = len(cut.field)
    graph = sparse.csr_array((capacities.astype(np.int32), (tails, heads)), shape=(n + 2, n + 2))
    return int(maximum_flow(graph, n, n + 1).flow_value)


def pymaxflow_flow(cut: Cut) -> int:
    """Compute the maximum flow with Boykov-Kolmogorov in PyMaxflow (GPL: used only if it is installed)."""
    import maxflow

    n = len(cut.field)
    graph = maxflow.GraphInt(n, len(cut.indices) // 2)
    nodes = graph.add_nodes(n)
    tails = np.repeat(np.arange(n, dtype=np.uint32), np.diff(cut.indptr))
    once = tails < cut.indices
    graph.add_edges(tails[once], cut.indices[once], cut.weights[once], cut.weights[once])
    graph.add_grid_tedges(nodes, np.maximum(-cut.field, 0), np.maximum(cut.field, 0))
    return int(graph.maxflow())


PEERS: dict[str, tuple[Callable[[Cut], int], str]] = {
    "ortools": (lambda cut: ortools_solver(cut).optimal_flow(), "ortools"),
    "scipy": (scipy_flow, "scipy"),
    "PyMaxflow": (pymaxflow_flow, "maxflow"),
}


def cuts(kind: str, n: int, flip: float) -> Contest:
    """Solve the cuts of bit `BIT` on one thread; the time of a peer includes building its network."""
    affinity = affinity_of(kind, n)
    solver = BlockGraphCut()
    before = infer(affinity, solver, BIT - 1, flip)
    problem = BinaryQuadratic(affinity, before.distances.values, losses.coefficients(LOSS, BIT))
    problems: list[Cut] = []

    def keep_and_solve(cut: Cut) -> NDArray[np.int8]:
        problems.append(cut)
        return minimise_one(cut)

    sweep_blocks(problem, before.blocks, np.random.default_rng(2), keep_and_solve)

    def whole_bit(_: None) -> Any:
        problem.weights()
        return solver.solve(before.blocks, problem, np.random.default_rng(2))

    def all_flows(flow: Callable[[Cut], int], _: None) -> list[int]:
        return [flow(cut) for cut in problems]

    whole = Contender(name="hashgrove, whole bit", run=whole_bit, note="blocks, fields, cuts, weights")
    peers = [Contender(name=name, run=partial(all_flows, flow), needs=needs) for name, (flow, needs) in PEERS.items()]
    entries = race([our_minima(problems), whole, *peers], rounds=5, patience=3)
    starts = np.cumsum([0] + [len(cut.field) for cut in problems])
    minima = [cut.energy(entries[0].answer[a:b]) for cut, a, b in zip(problems, starts, starts[1:], strict=False)]
    for entry in entries[2:]:
        theirs = [cut.energy_of_flow(flow) for cut, flow in zip(problems, entry.answer, strict=True)]
        if theirs != minima:
            raise AssertionError(f"{entry.name} finds other minima than hashgrove")
        entry.agreement = f"same energy in all {len(problems):,} cuts"
    cut, bit = entries[0].seconds, entries[1].seconds
    peer = min(entry.seconds for entry in entries[2:])
    targets = [
        Target("cuts at least 10x the fastest exact peer", 10, peer / cut),
    ]
    sizes = np.diff(before.blocks.indptr)
    facts = {
        "whole bit against the same with the fastest peer's cuts": f"{(bit - cut + peer) / bit:.2f}",
        "blocks": f"{len(sizes):,}, mean {sizes.mean():.1f} points, largest {sizes.max():,}",
        "pairs": repr(affinity),
    }
    return Contest(entries, targets, facts)


def all_bits(kind: str, n: int, flip: float, n_bits: int, solvers: list[str]) -> Contest:
    """Infer all bits on one thread with each solver: total time, and mean loss per pair at the end."""
    affinity = affinity_of(kind, n)
    entries, targets = [], []
    sketched = SKETCHED.get((kind, flip), {}) if n_bits == 64 else {}
    for name in solvers:
        bits = infer(affinity, SOLVERS[name], n_bits, flip)
        note = f"objective {bits.objective:.4f}" + (f", sketched {sketched[name]}" if name in sketched else "")
        entries.append(Entry(f"hashgrove, {name}", 1, sum(bits.seconds), 1, 0.0, note, bits.objective))
        if name in ("Block-GC", ZEROS) and sketched:
            what = f"objective of {name} at most the sketch's"
            targets.append(Target(what, sketched["Block-GC"], bits.objective, at_most=True))
    if kind == "classes" and n_bits == 64:
        reached = best(entries, "hashgrove, Block-GC")
        targets += [Target("64 bits in under 20 s, one thread", 20, reached, at_most=True)] if reached else []
    return Contest(entries, targets)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests for the paper's three kinds of problem; Spectral takes long and has contests of few bits."""
    sizes = {"classes": 50_000, "tags": 18_000, "many classes": 100_000}
    if setting.tiny:
        sizes = {"classes": 300, "tags": 200, "many classes": 300}
    n_bits = 4 if setting.tiny else 64
    found: dict[str, Callable[[], Contest]] = {}
    for kind, n in sizes.items():
        for flip in (0.0, 0.12):
            problem = f"{n:,} points, {kind}, {flip:.0%} of the bits wrong"
            found[f"cuts of bit {BIT}: {problem}"] = partial(cuts, kind, n, flip)
            if not flip or kind == "classes":
                solvers = ["Block-GC", ZEROS, "ICM"]
                found[f"{n_bits} bits: {problem}"] = partial(all_bits, kind, n, flip, n_bits, solvers)
    for kind in ("classes", "tags"):
        problem = f"{sizes[kind]:,} points, {kind}, 0% of the bits wrong"
        found[f"{SPECTRAL_BITS} bits by Spectral: {problem}"] = partial(
            all_bits, kind, sizes[kind], 0.0, SPECTRAL_BITS, ["Spectral"]
        )
    held = [] if setting.tiny else [f"cuts of bit {BIT}: {sizes['classes']:,} points, classes, 12% of the bits wrong"]
    return with_held(found, held, __file__, setting)


if __name__ == "__main__":
    main("inference", contests)
