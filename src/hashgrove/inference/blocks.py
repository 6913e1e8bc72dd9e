"""Algorithm 2: groups of points without a dissimilar pair inside, so that a cut can set each group at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.supervision import Affinity

__all__ = ["Blocks", "class_blocks", "greedy_blocks", "single_blocks"]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Block b is ``members[indptr[b]:indptr[b + 1]]``, sorted. Blocks cover all points and may overlap."""

    indptr: NDArray[np.int64]
    members: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.indptr) - 1


def class_blocks(classes: NDArray[np.int32]) -> Blocks:
    """One block per class.

    >>> class_blocks(np.array([1, 0, 1], np.int32)).members.tolist()
    [1, 0, 2]
    """
    members = np.argsort(classes, kind="stable").astype(np.uint32)
    return Blocks(np.concatenate([[0], np.cumsum(np.bincount(classes))]), members)


def single_blocks(n_points: int) -> Blocks:
    """Blocks of one point: Block GraphCut becomes ICM."""
    return Blocks(np.arange(n_points + 1), np.arange(n_points, dtype=np.uint32))


def greedy_blocks(affinity: Affinity, rng: np.random.Generator) -> Blocks:
    """Algorithm 2 of the paper, in the authors' order of candidates.

    The root of a block is a random point that has no block yet. Candidates are first the points similar to it,
    those with a block too, and then every point without one, in random order.
    """
    order = rng.permutation(len(affinity)).astype(np.uint32)
    return Blocks(*_greedy(affinity.indptr, affinity.first_dissimilar, affinity.indices, order))


@kernel
def _greedy(indptr, first_dissimilar, indices, order):
    """Admitting a point marks its dissimilar points, so a candidate costs one look: O(pairs + blocks x open points)."""
    n = len(order)
    block_of = np.full(n, -1, np.int64)  # the last block that took the point
    forbidden = np.full(n, -1, np.int64)  # the last block that the point is dissimilar to
    open_points = order.copy()
    n_open = n
    blocks = [np.int64(0)]
    members = [order[0]]
    members.clear()
    block = 0
    while n_open > 0:
        root = open_points[0]
        similar = indices[indptr[root] : first_dissimilar[root]]
        for t in range(1 + len(similar) + n_open):
            if t == 0:
                j = root
            elif t <= len(similar):
                j = similar[t - 1]
            else:
                j = open_points[t - 1 - len(similar)]
            if block_of[j] == block or forbidden[j] == block:
                continue
            block_of[j] = block
            members.append(j)
            for e in range(first_dissimilar[j], indptr[j + 1]):
                forbidden[indices[e]] = block
        still_open = 0
        for t in range(n_open):
            if block_of[open_points[t]] < 0:
                open_points[still_open] = open_points[t]
                still_open += 1
        n_open = still_open
        blocks.append(np.int64(len(members)))
        block += 1
    starts = np.array(blocks)
    flat = np.array(members)
    for b in range(block):
        flat[starts[b] : starts[b + 1]].sort()
    return starts, flat
