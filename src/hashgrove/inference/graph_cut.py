"""Algorithm 3, Block GraphCut: find the exact best values of one block of points at a time, with all others fixed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.inference.blocks import Blocks, class_blocks, greedy_blocks, single_blocks
from hashgrove.inference.mincut import minimise
from hashgrove.inference.quadratic import BinaryQuadratic, coefficient
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Constraint, Integer, OneOf, check_parameters
from hashgrove.supervision import Affinity

__all__ = ["ICM", "BlockGraphCut"]

STARTS = {"ones": 1, "zeros": 0}


class _BlockSearch(BaseEstimator, ABC):  # type: ignore[misc]
    """Passes over all blocks of points; subclasses choose the blocks."""

    constraints: ClassVar[dict[str, Constraint]] = {"n_sweeps": Integer(1), "start": OneOf(tuple(STARTS))}

    def __init__(self, *, n_sweeps: int = 2, start: str = "zeros") -> None:
        self.n_sweeps = n_sweeps
        self.start = start

    def prepare(self, affinity: Affinity, rng: np.random.Generator) -> Blocks:
        """Check the parameters and make the blocks, once per fit."""
        check_parameters(self)
        return self._blocks(affinity, rng)

    @abstractmethod
    def _blocks(self, affinity: Affinity, rng: np.random.Generator) -> Blocks: ...

    def solve(self, state: Blocks, problem: BinaryQuadratic, rng: np.random.Generator) -> NDArray[np.int8]:
        """Find the values of one bit, -1 or +1 for each point."""
        z = np.full(len(problem.affinity), STARTS[self.start], np.int8)
        for _ in range(self.n_sweeps):
            _sweep(rng.permutation(len(state)), state.indptr, state.members, *problem.entries, z)
        return z


class BlockGraphCut(_BlockSearch):
    """Block GraphCut (Block-GC), the paper's solver.

    The blocks are the classes if the affinity comes from class labels; otherwise Algorithm 2 makes them. An update of a
    block never increases the objective.

    Parameters
    ----------
    n_sweeps : int, default=2
        Number of passes over all blocks, each in a new random order.
    start : {"zeros", "ones"}, default="zeros"
        The values of all points before the first pass. With zeros, only the blocks that have been solved already count,
        which gives a lower objective. With ones, as in the authors' code, the first blocks are solved with all other
        points at +1.
    """

    @classmethod
    def paper(cls) -> Self:
        """The solver with the authors' settings."""
        return cls(n_sweeps=2, start="ones")

    def _blocks(self, affinity: Affinity, rng: np.random.Generator) -> Blocks:
        return greedy_blocks(affinity, rng) if affinity.classes is None else class_blocks(affinity.classes)


class ICM(_BlockSearch):
    """Iterated conditional modes: Block GraphCut with blocks of one point. The paper's Block-GC-1, from its start."""

    def __init__(self, *, n_sweeps: int = 2, start: str = "ones") -> None:
        super().__init__(n_sweeps=n_sweeps, start=start)

    def _blocks(self, affinity: Affinity, rng: np.random.Generator) -> Blocks:
        return single_blocks(len(affinity))


@kernel
def _sweep(
    order, block_ptr, members, indptr, first_dissimilar, indices, distances, similar, dissimilar, point_weights, z
):
    """Solve each block in ``order`` exactly, with all other points fixed; updates ``z`` (int8).

    Similar pairs inside the block are edges of the graph. Every other pair of a point in the block contributes to the
    field of that point (equations 17 and 18 of the paper, divided by 2). O(entries), plus the cuts.
    """
    n = len(z)
    largest = entries = 0
    for b in range(len(order)):
        size = edges = 0
        for t in range(block_ptr[b], block_ptr[b + 1]):
            size += 1
            edges += first_dissimilar[members[t]] - indptr[members[t]]
        largest = max(largest, size)
        entries = max(entries, edges)
    outside = np.uint32(n)
    position = np.full(n, outside, np.uint32)  # of each point in the present block
    field = np.empty(largest, np.int64)
    values = np.empty(largest, np.int8)
    edge_ptr = np.zeros(largest + 1, np.int64)
    heads = np.empty(entries, np.uint32)
    weights = np.empty(entries, np.int32)
    for b in order:
        block = members[block_ptr[b] : block_ptr[b + 1]]
        size = len(block)
        for t in range(size):
            position[block[t]] = t
        filled = np.uint64(0)
        for t in range(size):
            i = np.uint64(block[t])
            total = np.int64(0)
            for e in range(np.uint64(indptr[i]), np.uint64(first_dissimilar[i])):
                j = indices[e]
                a = coefficient(similar, distances[e], point_weights, i, j)
                if position[j] != outside:
                    heads[filled] = position[j]
                    weights[filled] = -a
                    filled += np.uint64(1)
                else:
                    total += a * z[j]
            for e in range(np.uint64(first_dissimilar[i]), np.uint64(indptr[i + np.uint64(1)])):
                total += coefficient(dissimilar, distances[e], point_weights, i, indices[e]) * z[indices[e]]
            field[t] = total
            edge_ptr[t + 1] = filled
        minimise(edge_ptr[: size + 1], heads, weights, field[:size], values[:size])
        for t in range(size):
            z[block[t]] = values[t]
            position[block[t]] = outside
