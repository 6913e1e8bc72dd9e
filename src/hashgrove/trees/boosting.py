"""Parts of both boosters: their settings, their memory, weight trimming, and the call that grows all trees of a bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import run_within
from hashgrove.trees.histogram import HISTOGRAM, LANES
from hashgrove.trees.prediction import MAX_DEPTH_IN_VECTORS, Forest

__all__ = [
    "DROPPED_BITS",
    "PER_NODE",
    "PER_TREE",
    "SUBSETS",
    "BoostingSettings",
    "NodeTables",
    "Workspace",
    "grow_trees",
    "heavy_limit",
    "largest_tree",
    "make_workspace",
    "tables_from",
]

DROPPED_BITS = 18  # of a float32; its exponent and the top 5 bits of its mantissa remain
KEPT_BYTES = 2**26  # largest size of the histograms that are kept for the next level
SUBSETS = ("node", "level", "tree")
PER_NODE, PER_TREE = SUBSETS.index("node"), SUBSETS.index("tree")


class BoostingSettings(NamedTuple):
    """The settings of boosting that do not depend on the kind of leaves.

    Attributes
    ----------
    max_depth : int
        Largest number of tests from the root to a leaf.
    n_features : int
        Number of features that are drawn.
    subset : int
        Whether they are drawn for each node, for each level, or once for the tree: a place in SUBSETS.
    trimming : float
        Share of the total weight that a tree leaves out, starting with the lightest examples.
    early_stopping : bool
        Whether boosting ends as soon as no training row is wrong.
    """

    max_depth: int
    n_features: int
    subset: int
    trimming: float
    early_stopping: bool


class Workspace(NamedTuple):
    """Memory that is allocated once for all trees of a bit.

    Attributes
    ----------
    examples, values : arrays of shape (2, n + 1)
        The examples of two levels, and their values. The level at depth d writes the next one to row d % 2, so the
        examples of the root may be in row 1.
    right_examples, right_values : arrays of shape (n + 1,)
        The examples on the right of a split, and their values.
    histograms : array of shape (2, n_nodes, n_groups, HISTOGRAM)
        The histograms of two levels that have at most so many nodes; those of larger levels are not kept.
    leaves : uint32 array of shape (n,)
        The leaf of each row in the tree that was grown last.
    """

    examples: NDArray[np.uint32]
    values: NDArray[Any]
    right_examples: NDArray[np.uint32]
    right_values: NDArray[Any]
    histograms: NDArray[Any]
    leaves: NDArray[np.uint32]


class NodeTables(NamedTuple):
    """The tables of trees, as in `Forest`, and the sum of the values of each node's examples."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    total: NDArray[np.int64]
    value: NDArray[Any]


def make_workspace(bins: NDArray[np.uint8], settings: BoostingSettings, dtype: type[np.generic]) -> Workspace:
    """Memory for trees on these ``bins``, (n_features, n), and values of this type."""
    n_columns, n = bins.shape
    room = n + 1  # the partition of a node may write one entry too many
    n_groups = -(-min(settings.n_features, n_columns) // LANES)
    n_kept = 0
    if settings.subset == PER_TREE and settings.max_depth > 1:  # the last level, which is not kept, has twice as many
        size = n_groups * HISTOGRAM * np.dtype(dtype).itemsize
        n_kept = min(2 ** (settings.max_depth - 2), KEPT_BYTES // size)
    return Workspace(
        np.empty((2, room), np.uint32),
        np.empty((2, room), dtype),
        np.empty(room, np.uint32),
        np.empty(room, dtype),
        np.empty((2, n_kept, n_groups, HISTOGRAM), dtype),
        np.empty(n, np.uint32),
    )


def grow_trees(
    boost: Callable[..., bool],
    *arguments: Any,
    settings: BoostingSettings,
    n_rows: int,
    n_rounds: int,
    dtype: type[np.generic],
    beside: Callable[[NDArray[np.int64]], AbstractContextManager[None]],
) -> Forest:
    """The trees of one bit, with leaves of this type, which ``boost(*arguments, tables, tree_ptr, done, stop)`` grows.

    It writes one tree after the other to ``tables``, and where each begins to ``tree_ptr``. It counts the rounds and
    the trees in ``done``, and returns False if the tables have no room for another tree. It then goes on with larger
    ones. This happens with deep trees only. ``beside(done)`` is a block around all of it.
    """
    shallow = largest_tree(min(settings.max_depth, MAX_DEPTH_IN_VECTORS), n_rows)
    size = max(n_rounds * shallow, largest_tree(settings.max_depth, n_rows))
    tables = NodeTables(*(np.empty(size, each) for each in (np.uint32, np.uint8, np.uint32, np.int64, dtype)))
    tree_ptr, done = np.zeros(n_rounds + 1, np.int32), np.zeros(2, np.int64)
    with beside(done):
        while not _call_stoppable(boost, *arguments, tables, tree_ptr, done):
            tables = NodeTables(*(np.concatenate([table, table]) for table in tables))
    tree_ptr = tree_ptr[: done[1] + 1]
    n_nodes = tree_ptr[-1]
    return Forest(
        np.array([0, done[1]], np.int32),
        tree_ptr,
        tables.feature[:n_nodes].copy(),
        tables.threshold[:n_nodes].copy(),
        tables.child[:n_nodes].copy(),
        tables.value[:n_nodes].copy(),
    )


def _call_stoppable(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function(*arguments, stop)`` and return its result; Ctrl-C sets ``stop[0]``, which asks it to end.

    Python sees Ctrl-C in the main thread only, and not while that runs compiled code. So the main thread waits.

    >>> _call_stoppable(lambda x, stop: (x, bool(stop[0])), 5)
    (5, False)
    """
    stop = np.zeros(1, np.bool_)
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments, stop)
    return run_within(threading.TIMEOUT_MAX, lambda: function(*arguments, stop), stop=lambda: stop.fill(True))


@kernel
def largest_tree(max_depth, n_examples):
    """The largest number of nodes of a tree on so many examples."""
    return min((1 << (min(max_depth, 32) + 1)) - 1, 2 * n_examples + 1)


@kernel
def tables_from(tables, start):
    """The part of the tables from node ``start`` on."""
    return NodeTables(
        tables.feature[start:], tables.threshold[start:], tables.child[start:], tables.total[start:],
        tables.value[start:],
    )  # fmt: skip


@kernel
def heavy_limit(w, w_bits, trimming):
    """(limit, mass): example i is kept if ``w_bits[i] >> DROPPED_BITS`` is at least the limit; the mass of those kept.

    Weight trimming (section 4.1 of the paper) without a sort: the heaviest examples that hold 1 - ``trimming`` of the
    mass of ``w`` (float32, not negative; ``w_bits`` is the same viewed as int32). The weights are summed by their
    exponent and the top 5 bits of their mantissa, since floats that are not negative have the same order as their bit
    patterns. So examples within 3 % of the limit are kept, too.
    """
    mass = np.zeros(1 << (31 - DROPPED_BITS), np.float64)
    for i in range(np.uint64(len(w))):
        mass[np.uint32(w_bits[i]) >> np.uint32(DROPPED_BITS)] += w[i]
    wanted = mass.sum() * (1 - trimming)
    limit = len(mass) - 1
    total = mass[limit]
    while total < wanted and limit > 0:
        limit -= 1
        total += mass[limit]
    if trimming == 0:
        limit = 0
    return limit, total
