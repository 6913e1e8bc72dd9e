"""Leaves that are -1 or +1, as in the paper: splits of the least weighted classification error.

Examples have signed weights y_i w_i, which sum to S at a node. A stump with the sum c on its left and S - c on its
right, labelled with opposite signs, has the least error if |2c - S| is largest. So for each feature only the largest
and the smallest cumulative sum matter. The value of a leaf is the sign of the sum of its signed weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hashgrove.functions.gathered import gathered_bins, room_for_gathered
from hashgrove.functions.levels import (
    HISTOGRAM,
    LANES,
    KeptHistograms,
    OpenNodes,
    Stumps,
    fill_histogram,
    nodes_of_item,
    search_level,
)
from hashgrove.functions.small_nodes import is_small, small_scratch, small_sums
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import pointer

__all__ = ["SignLeaves"]


class SignLeaves(NamedTuple):
    """Leaves -1 and +1. A node with at most ``min_points`` examples of either class is a leaf.

    The value of an example is its label x weight in fixed point, int32; absolute weights sum to less than 2^31.
    """

    min_points: int
    min_low: int = 0

    def best_stumps(
        self,
        bins: NDArray[np.uint8],
        rows: NDArray[np.uint8],
        level: OpenNodes,
        features: NDArray[np.uint32],
        histograms: NDArray[np.int32],
        *,
        memory: KeptHistograms | None,
        n_jobs: int | None = None,
    ) -> tuple[Stumps, NDArray[np.int32]]:
        """The stumps of least error of all nodes of a level; see `hashgrove.functions.levels.search_level`."""
        return search_level(
            _search, bins, rows, level, features, histograms, gain_type=np.int64, memory=memory, n_jobs=n_jobs
        )

    def choose(self, stumps: Stumps, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of features with the best stump of each node, or -1 if it has no fewer errors than the majority."""
        return _choose(stumps.gains, totals)

    def leaf_values(self, totals: NDArray[np.int64]) -> NDArray[np.int8]:
        """The values of leaves whose examples have these sums."""
        return np.where(totals > 0, 1, -1).astype(np.int8)


@kernel
def _search(bins, rows, level, features, families, histograms, kept, stumps, first, last):
    """Find the stumps of the items [first, last). O((examples visited + 256) x LANES) per item."""
    pair, scratch, small = np.empty((2, HISTOGRAM), np.int32), np.empty(2 * LANES, np.int32), small_scratch(level)
    room, current = room_for_gathered(rows, level, features), np.full(1, -1)
    for item in range(first, last):
        node, sibling, group, lanes = nodes_of_item(level, features, families, item)
        gathered = gathered_bins(rows, level, features, node, group, room, current)
        if is_small(level, node, sibling, kept):
            n = small_sums(bins, gathered, lanes, level, node, small)
            _best_of_small(small, n, lanes, level.totals, node, group, stumps)
            continue
        histogram = kept[node, group] if len(kept) > 0 else pair[0]
        fill_histogram(bins, gathered, lanes, level, node, histogram)
        _best_of_group(histogram, lanes, level.totals, node, group, scratch, stumps)
        if sibling >= 0:
            of_sibling = kept[sibling, group] if len(kept) > 0 else pair[1]
            of_sibling[:] = histograms[level.parents[node], group] - histogram
            _best_of_group(of_sibling, lanes, level.totals, sibling, group, scratch, stumps)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _write_extremes(typing_context: Any, histogram: Any, extremes: Any) -> Any:
    """Write the largest cumulative sum of each lane, and then the smallest ones, to ``extremes``.

    The sums, over no bin up to all bins but the last, stay in registers, all lanes in one vector.
    """
    vector = ir.VectorType(ir.IntType(32), LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        bins, found = (
            pointer(context, builder, kind, array, word(0), vector)
            for kind, array in zip(signature.args, arguments, strict=True)
        )
        total, highest, lowest = (cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(3))
        with cgutils.for_range(builder, word(HISTOGRAM // LANES - 1)) as loop:
            of_bin = builder.load(builder.gep(bins, [loop.index]), align=4)
            now = builder.add(builder.load(total), of_bin)
            builder.store(now, total)
            for extreme, beyond in ((highest, ">"), (lowest, "<")):
                so_far = builder.load(extreme)
                builder.store(builder.select(builder.icmp_signed(beyond, now, so_far), now, so_far), extreme)
        builder.store(builder.load(highest), found, align=4)
        builder.store(builder.load(lowest), builder.gep(found, [word(1)]), align=4)
        return context.get_dummy_value()

    return types.void(histogram, extremes), generate


@kernel
def _best_of_group(histogram, lanes, totals, node, group, scratch, stumps):
    """Write the best stump on eight features; ties go to the first feature, and then to the lowest threshold."""
    _write_extremes(histogram, scratch)
    highest, lowest = scratch[:LANES], scratch[LANES:]
    total = totals[node]
    best, lane = np.int64(-1), 0
    for q in range(LANES):
        gain = max(2 * np.int64(highest[q]) - total, total - 2 * np.int64(lowest[q]))
        if gain > best:
            best, lane = gain, q
    left, threshold = np.int64(histogram[lane]), 0
    while threshold < 255 and abs(2 * left - total) != best:
        threshold += 1
        left += histogram[threshold * LANES + lane]
    stumps.gains[node, group] = best
    stumps.features[node, group] = lanes[lane]
    stumps.thresholds[node, group] = threshold
    stumps.lefts[node, group] = left


@kernel
def _best_of_small(small, n, lanes, totals, node, group, stumps):
    """The same as `_best_of_group`, from the bins of a small node's examples and the sums up to them."""
    bins, sums = small
    total = totals[node]
    best, lane = np.int64(-1), 0
    for q in range(LANES):
        highest = lowest = np.int32(0)
        for t in range(n):
            left = sums[q, t] if bins[q, t] < 255 else np.int32(0)
            highest, lowest = max(highest, left), min(lowest, left)
        gain = max(2 * np.int64(highest) - total, total - 2 * np.int64(lowest))
        if gain > best:
            best, lane = gain, q
    # the lowest threshold with this gain; threshold 0 may have nothing on its left
    threshold, left = np.int64(256), np.int64(0)
    if abs(total) == best and bins[lane, :n].min() > 0:
        threshold = np.int64(0)
    for t in range(n):
        if bins[lane, t] < threshold and abs(2 * np.int64(sums[lane, t]) - total) == best:
            threshold, left = np.int64(bins[lane, t]), np.int64(sums[lane, t])
    stumps.gains[node, group] = best
    stumps.features[node, group] = lanes[lane]
    stumps.thresholds[node, group] = threshold
    stumps.lefts[node, group] = left


@kernel
def _choose(gains, totals):
    """The best group of each node, or -1 if its gain is |S|, that of a stump with nothing on one side."""
    chosen = np.empty(len(totals), np.int64)
    for k in range(len(totals)):
        group = np.argmax(gains[k])
        chosen[k] = group if gains[k, group] > abs(totals[k]) else -1
    return chosen
