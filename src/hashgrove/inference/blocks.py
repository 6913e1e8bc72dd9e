"""Algorithm 2: blocks of points without a dissimilar pair inside, so that one graph cut can solve each block."""

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
    """One block per point. Block GraphCut with these blocks is ICM."""
    return Blocks(np.arange(n_points + 1), np.arange(n_points, dtype=np.uint32))


def greedy_blocks(affinity: Affinity, rng: np.random.Generator) -> Blocks:
    """Algorithm 2 of the paper, in the authors' order of candidates.

    A block starts with a random point that is in no block yet. Then come the candidates: first all points that are
    similar to it, even if they are in a block already, and then, in random order, all points that are in no block. A
    candidate joins the block if it is not dissimilar to any point in it.
    """
    order = rng.permutation(len(affinity)).astype(np.uint32)
    return Blocks(*_greedy(affinity.indptr, affinity.first_dissimilar, affinity.indices, order))


@kernel
def _greedy(indptr, first_dissimilar, indices, order):
    """The starts and members of greedy blocks, with candidates in ``order``. O(pairs + blocks x points without block).

    A point that joins a block marks the points dissimilar to it, so each candidate needs only one look-up.
    """
    n = len(order)
    block_of = np.full(n, -1, np.int64)  # the last block that the point joined
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
