"""A walk through a deep tree, for up to 64 rows at a time: they take their steps together, so none waits for memory."""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel

__all__ = ["walk"]


@kernel
def walk(bins, unit, places, root, feature, threshold, child, nodes):
    """Write the leaf that each row reaches in the tree with this root to ``nodes``, uint64.

    The bin of feature j in row i is ``bins[j * unit + places[i]]``, where ``unit`` and ``places`` are uint64.
    """
    n = np.uint64(len(places))
    nodes[:n] = root
    n_moved = n
    while n_moved > 0:
        n_moved = np.uint64(0)
        for i in range(n):  # without a branch: a row in a leaf stays there
            node = nodes[i]
            left = np.uint64(child[node])
            passed = np.uint64(bins[np.uint64(feature[node]) * unit + places[i]] > threshold[node])
            moves = np.uint64(left > 0)
            nodes[i] = root + left + passed if moves > 0 else node
            n_moved += moves
