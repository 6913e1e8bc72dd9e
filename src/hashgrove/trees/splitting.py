"""The best split of each open node of a level, for leaves that are signs and for leaves that are Newton steps.

**Sign leaves** (the paper's): splits of the least weighted classification error. The value of an example is its label x
weight in fixed point, int32. If the values of a node sum to S, a stump with the sum c on its left and S - c on its
right, labelled with opposite signs, has the least error if |2c - S| is largest. So for each feature only the largest
and the smallest cumulative sum matter. The value of a leaf is the sign of the sum of its values.

**Newton leaves**: Newton steps of the logistic loss. An example with the label y, the weight w and the probability p of
being wrong has the gradient g = w y p and the curvature h = 2 w p (1 - p). With the sums G and H of a node, the step
G / (H + regularisation) gains G^2 / (H + regularisation), so the best stump has the largest sum of both sides' gains.
The value of an example holds both in fixed point, int64: `pack` and `unpack` alone know how.

A stump is searched for each item, a (node, group of eight features) or a (pair of siblings, group), since the histogram
of the larger sibling is that of their parent minus that of the smaller one.

The type of the rule, `SignRule` or `NewtonRule`, says which leaves a tree has. Four functions for kernels have a
version for each, of which only the one that is used is compiled:

- ``best_stumps(bins, rows, level, features, histograms, kept, rule)``: the best `Stumps` of all nodes of a level.
  ``bins`` and ``rows`` are those of `hashgrove.trees.binning.BinnedData`. ``features``, uint32 (n_nodes, width) or
  (1, width), has the features to try at each node, or at all nodes; the width is a multiple of LANES. ``histograms``
  (n_parents, n_groups, HISTOGRAM) are those of the previous level if it had the same features, otherwise empty.
  Those of this level are written to ``kept`` (n_nodes, n_groups, HISTOGRAM) unless it is empty.
- ``choose_groups(gains, totals, rule)``: the group of features with the best stump of each node, or -1 if a single leaf
  is as good.
- ``may_split(n, n_positive, total, rule)``: whether a node with ``n`` examples, ``n_positive`` positive values and this
  sum of values may be split.
- ``write_leaf_values(totals, values, rule)``: the values of leaves whose examples' values have these sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import pointer
from hashgrove.trees.histogram import (
    HISTOGRAM,
    LANES,
    fill_histogram,
    gathered_bins,
    is_small,
    room_for_gathered,
    small_scratch,
    small_sums,
)

__all__ = [
    "NewtonRule",
    "SignRule",
    "Stumps",
    "best_stumps",
    "choose_groups",
    "may_split",
    "newton_rule",
    "pack",
    "unpack",
    "write_leaf_values",
]

MAX_STEP = 4.0  # the largest step of a leaf, in half log-odds, before the learning rate
TINY = 1e-30  # instead of a division by zero
BLOCK = 64  # gains that are compared with the largest one at once
NOISE = 1e-9  # gains that differ by this share are equal: the rest is rounding
LOW_HALF = 2**32 - 1


class SignRule(NamedTuple):
    """Leaves -1 and +1; a node with at most ``min_points`` examples of either class is a leaf."""

    min_points: int


class NewtonRule(NamedTuple):
    """Leaves that are Newton steps. `newton_rule` makes one.

    Attributes
    ----------
    regularisation, min_half : float
        Half of what is added to the sum of curvatures of a leaf, and half of the smallest sum of curvatures of a leaf,
        both in the fixed point of the values.
    shift : int
        Thresholds divide cells of 2^shift neighbouring bins.
    """

    regularisation: float
    min_half: float
    shift: int


class Stumps(NamedTuple):
    """The best stump of each (node, group of features): gain, feature, threshold, and sum of values on its left."""

    gains: NDArray[Any]
    features: NDArray[np.uint32]
    thresholds: NDArray[np.uint8]
    lefts: NDArray[np.int64]


@kernel
def newton_rule(regularisation, min_hessian, scale, shift):
    """Newton steps, for values in fixed point with this ``scale``; no leaf has a curvature below ``min_hessian``."""
    return NewtonRule(regularisation * scale / 2, min_hessian * scale / 2, shift)


def _by_rule(for_sign_leaves: Any, for_newton_leaves: Any) -> Callable[..., Any]:
    """A function for kernels that is one of two kernels, as the type of its last argument, the rule, says."""

    def call(*arguments: Any) -> Any:
        return (for_newton_leaves if isinstance(arguments[-1], NewtonRule) else for_sign_leaves)(*arguments)

    @overload(call, strict=False, jit_options={"error_model": "numpy"})  # type: ignore[untyped-decorator, unused-ignore]
    def choose(*arguments: Any) -> Any:
        return (for_newton_leaves if arguments[-1].instance_class is NewtonRule else for_sign_leaves).py_func

    return call


@kernel
def pack(gradient, half):
    """One number, int64, for a gradient and half a curvature, both whole numbers; sums of such numbers hold both sums.

    One addition of 64 bits adds both. Since curvatures are positive, the halves never mix; and since half a curvature
    is at most the absolute gradient, both sums have the same bound, 2^31.
    """
    return (np.int64(gradient) << 32) + np.int64(half)


@kernel
def unpack(total):
    """The sum of the gradients and half the sum of the curvatures that a sum of packed values holds, as float64.

    Both are below 2^31. (A conversion from int32 is one vector instruction on all processors, one from int64 is not.)
    """
    return np.float64(np.int32(total >> 32)), np.float64(np.int32(total & LOW_HALF))


@kernel
def _may_split_sign(n, n_positive, total, rule):
    return min(n_positive, n - n_positive) > rule.min_points


@kernel
def _may_split_newton(n, n_positive, total, rule):
    return unpack(total)[1] >= 2 * rule.min_half  # enough curvature for two leaves


@kernel
def _empty_stumps(level, features):
    """Stumps that are not yet known, one for each node and group of features."""
    shape = len(level.nodes), features.shape[1] // LANES
    return Stumps(
        np.empty(shape, np.float64), np.empty(shape, np.uint32), np.empty(shape, np.uint8), np.empty(shape, np.int64)
    )


@kernel
def _families(parents, subtract):
    """Group the nodes into families, which are searched together.

    Family f has the nodes from families[f] to families[f + 1]: two siblings if the histogram of their parent is kept
    (``subtract``), otherwise one node.
    """
    n_nodes = len(parents)
    families = np.zeros(n_nodes + 1, np.int64)
    n = k = 0
    while k < n_nodes:
        has_sibling = subtract and k + 1 < n_nodes and parents[k + 1] == parents[k]
        k += 2 if has_sibling else 1
        n += 1
        families[n] = k
    return families[: n + 1]


@kernel
def _nodes_of_item(level, features, families, item):
    """(node, sibling, group, features of the group) of one item, a (family, group of features).

    The sibling, which has more examples than the node, is -1 if the family has one node. Items are sorted by group and
    then by family if all nodes have the same features, and otherwise by family.
    """
    n_groups, n_families = features.shape[1] // LANES, len(families) - 1
    if len(features) == 1:  # one group of features for all families, as long as the cache holds it
        family, group = item % n_families, item // n_families
    else:
        family, group = item // n_groups, item % n_groups
    node, sibling = families[family], -1
    if families[family + 1] - node == 2:
        sibling = node + 1
        if level.starts[sibling + 1] - level.starts[sibling] < level.starts[sibling] - level.starts[node]:
            node, sibling = sibling, node
    return node, sibling, group, features[node % len(features), group * LANES : (group + 1) * LANES]


@kernel
def _subtract(of_parent, of_node, of_sibling):
    """Write the histogram of a node's sibling."""
    for i in range(len(of_sibling)):
        of_sibling[i] = of_parent[i] - of_node[i]


@kernel
def _write_stump(stumps, node, group, gain, feature, threshold, left):
    stumps.gains[node, group] = gain
    stumps.features[node, group] = feature
    stumps.thresholds[node, group] = threshold
    stumps.lefts[node, group] = left


@kernel
def _best_sign_stumps(bins, rows, level, features, histograms, kept, rule):
    """`best_stumps` for sign leaves. O((examples visited + 256) x LANES) per item."""
    pair, scratch, small = np.empty((2, HISTOGRAM), np.int32), np.empty(2 * LANES, np.int32), small_scratch(level)
    room, current = room_for_gathered(rows, level, features), np.full(1, -1)
    stumps, families = _empty_stumps(level, features), _families(level.parents, len(histograms) > 0)
    for item in range((len(families) - 1) * (features.shape[1] // LANES)):
        node, sibling, group, lanes = _nodes_of_item(level, features, families, item)
        gathered = gathered_bins(rows, level, features, node, group, room, current)
        if is_small(level, node, sibling, kept):
            n = small_sums(bins, gathered, lanes, level, node, 0, small)
            _best_sign_of_small(small, n, lanes, level.totals, node, group, stumps)
            continue
        histogram = kept[node, group] if len(kept) > 0 else pair[0]
        fill_histogram(bins, gathered, lanes, level, node, 0, histogram)
        _best_sign_of_group(histogram, lanes, level.totals, node, group, scratch, stumps)
        if sibling >= 0:
            of_sibling = kept[sibling, group] if len(kept) > 0 else pair[1]
            _subtract(histograms[level.parents[node], group], histogram, of_sibling)
            _best_sign_of_group(of_sibling, lanes, level.totals, sibling, group, scratch, stumps)
    return stumps


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
def _best_sign_of_group(histogram, lanes, totals, node, group, scratch, stumps):
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
    _write_stump(stumps, node, group, best, lanes[lane], threshold, left)


@kernel
def _best_sign_of_small(small, n, lanes, totals, node, group, stumps):
    """The same as `_best_sign_of_group`, from the bins of a small node's examples and the sums up to them."""
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
    if abs(total) == best and not _has_first_cell(bins[lane], n):
        threshold = np.int64(0)
    for t in range(n):
        if bins[lane, t] < threshold and abs(2 * np.int64(sums[lane, t]) - total) == best:
            threshold, left = np.int64(bins[lane, t]), np.int64(sums[lane, t])
    _write_stump(stumps, node, group, best, lanes[lane], threshold, left)


@kernel
def _choose_sign(gains, totals, rule):
    """The best group of each node, or -1 if its gain is |S|, that of a stump with nothing on one side."""
    chosen = np.empty(len(totals), np.int64)
    for k in range(len(totals)):
        group = np.argmax(gains[k])
        chosen[k] = group if gains[k, group] > abs(totals[k]) else -1
    return chosen


@kernel
def _best_newton_stumps(bins, rows, level, features, histograms, kept, rule):
    """`best_stumps` for Newton leaves. O((examples visited + number of cells) x LANES) per item.

    Thresholds divide cells of 2^shift bins, and a stump gets the last bin of its cell. Ties go to the lowest threshold,
    and then to the first feature. The gain is 0 if no stump leaves enough curvature on both sides.
    """
    size = HISTOGRAM >> rule.shift
    pair, gains, small = np.empty((2, HISTOGRAM), np.int64), np.empty(HISTOGRAM, np.float64), small_scratch(level)
    room, current = room_for_gathered(rows, level, features), np.full(1, -1)
    stumps, families = _empty_stumps(level, features), _families(level.parents, len(histograms) > 0)
    for item in range((len(families) - 1) * (features.shape[1] // LANES)):
        node, sibling, group, lanes = _nodes_of_item(level, features, families, item)
        gathered = gathered_bins(rows, level, features, node, group, room, current)
        if is_small(level, node, sibling, kept):
            n = small_sums(bins, gathered, lanes, level, node, rule.shift, small)
            _best_newton_of_small(small, n, lanes, level.totals, node, group, rule, gains, stumps)
            continue
        sums = (kept[node, group] if len(kept) > 0 else pair[0])[:size]
        _fill_sums(bins, gathered, lanes, level, node, rule.shift, sums)
        _best_newton_of_group(sums, lanes, level.totals, node, group, rule, gains, stumps)
        if sibling >= 0:
            of_sibling = (kept[sibling, group] if len(kept) > 0 else pair[1])[:size]
            _subtract(histograms[level.parents[node], group], sums, of_sibling)
            _best_newton_of_group(of_sibling, lanes, level.totals, sibling, group, rule, gains, stumps)
    return stumps


@kernel
def _fill_sums(bins, gathered, lanes, level, node, shift, sums):
    """Write the sum of a node's values on the left of the stump at each (cell, lane), in a histogram's order."""
    fill_histogram(bins, gathered, lanes, level, node, shift, sums)
    for i in range(LANES, len(sums)):
        sums[i] += sums[i - LANES]


@kernel
def _split_gain(left_sum, total, regularisation, min_half):
    """The gain of a stump with this sum on its left, or 0 if a side has too little curvature."""
    gradient, half = unpack(total)
    left, left_half = unpack(left_sum)
    right, right_half = gradient - left, half - left_half
    a, b = left_half + regularisation, right_half + regularisation
    gain = (left * left * b + right * right * a) / max(a * b, TINY)
    return gain if (left_half >= min_half) & (right_half >= min_half) else 0.0


@kernel
def _split_gains(sums, total, regularisation, min_half, gains):
    """Write the gains of stumps with these sums on their left, 0 where a side has too little curvature."""
    for i in range(len(gains)):
        gains[i] = _split_gain(sums[i], total, regularisation, min_half)


@kernel
def _first_largest(bits):
    """Place of the first largest gain. Gains are not negative, so they have the order of their ``bits``, int64."""
    best = np.int64(-1)
    for i in range(len(bits)):
        best = max(best, bits[i])
    place = 0
    while place + BLOCK <= len(bits) and not _has(bits[place : place + BLOCK], best):
        place += BLOCK
    while bits[place] != best:
        place += 1
    return place


@kernel
def _has(bits, wanted):
    """Whether one of BLOCK numbers is the wanted one, without a branch."""
    found = np.int64(0)  # as wide as the numbers, so that vectors of them can be compared
    for t in range(BLOCK):
        found |= np.int64(bits[t] == wanted)
    return found > 0


@kernel
def _open_thresholds(sums, total, min_half):
    """The thresholds [first, last), as cells, outside of which no stump leaves enough curvature on both sides.

    The curvature on the left grows with the threshold, so both limits are found by bisection. The last cell, with
    nothing on its right, is not among them.
    """
    half, highest = unpack(total)[1], len(sums) // LANES - 1
    first, stop = 0, highest
    while first < stop:
        middle = (first + stop) // 2
        if _extreme_half(sums, middle, 1.0) >= min_half:
            stop = middle
        else:
            first = middle + 1
    last, stop = first, highest
    while last < stop:
        middle = (last + stop) // 2
        if half + _extreme_half(sums, middle, -1.0) < min_half:
            stop = middle
        else:
            last = middle + 1
    return first, last


@kernel
def _last_bin(cell, shift):
    """The last bin of a cell of 2^shift bins."""
    return ((cell + 1) << shift) - 1


@kernel
def _extreme_half(sums, threshold, sign):
    """The largest of ``sign`` x half the curvature on the left of a threshold, over the lanes."""
    found = -np.inf
    for q in range(LANES):
        found = max(found, sign * unpack(sums[threshold * LANES + q])[1])
    return found


@kernel
def _best_newton_of_group(sums, lanes, totals, node, group, rule, gains, stumps):
    """Write the best stump on eight features, from the sums on the left of all stumps."""
    first, last = _open_thresholds(sums, totals[node], rule.min_half)
    place, gain = 0, 0.0
    if first < last:
        candidates = gains[first * LANES : last * LANES]
        _split_gains(sums[first * LANES :], totals[node], rule.regularisation, rule.min_half, candidates)
        best = _first_largest(candidates.view(np.int64))
        if candidates[best] > 0:
            place, gain = first * LANES + best, candidates[best]
    threshold = _last_bin(place // LANES, rule.shift)
    _write_stump(stumps, node, group, gain, lanes[place % LANES], threshold, sums[place])


@kernel
def _best_newton_of_small(small, n, lanes, totals, node, group, rule, gains, stumps):
    """The same as `_best_newton_of_group`, from the cells of a small node's examples and the sums up to them."""
    cells, sums = small
    last = 255 >> rule.shift
    best, lane, threshold, left = -1.0, 0, np.int64(256), np.int64(0)
    for q in range(LANES):
        if not _has_first_cell(cells[q], n):  # then threshold 0 has nothing on its left
            gain = _split_gain(0, totals[node], rule.regularisation, rule.min_half)
            if gain > best or (gain == best and threshold > 0):
                best, lane, threshold, left = gain, q, np.int64(0), np.int64(0)
        for t in range(n):
            gains[t] = _split_gain(sums[q, t], totals[node], rule.regularisation, rule.min_half)
        for t in range(n):
            is_better = gains[t] > best or (gains[t] == best and cells[q, t] < threshold)
            if is_better and cells[q, t] < last:
                best, lane, threshold, left = gains[t], q, cells[q, t], sums[q, t]
    _write_stump(stumps, node, group, best, lanes[lane], _last_bin(threshold, rule.shift), left)


@kernel
def _has_first_cell(cells, n):
    """Whether one of the first n cells is cell 0."""
    found = False
    for t in range(n):
        found |= cells[t] == 0
    return found


@kernel
def _choose_newton(gains, totals, rule):
    """The best group of each node, or -1 if its gain is not above that of the node as a leaf."""
    chosen = np.empty(len(totals), np.int64)
    for k in range(len(totals)):
        group = np.argmax(gains[k])
        chosen[k] = group if gains[k, group] > _gain_alone(totals[k], rule.regularisation) * (1 + NOISE) else -1
    return chosen


@kernel
def _gain_alone(total, regularisation):
    """The gain of a node with this sum of values as a leaf."""
    gradient, half = unpack(total)
    return gradient * gradient / max(half + regularisation, TINY)


@kernel
def _write_signs(totals, values, rule):
    """Write the signs of leaves whose examples' values have these sums, int8."""
    for k in range(len(totals)):
        values[k] = 1 if totals[k] > 0 else -1


@kernel
def _write_newton_steps(totals, values, rule):
    """Write the Newton steps of leaves whose examples' values have these sums, float64, at most MAX_STEP."""
    for k in range(len(totals)):
        gradient, half = unpack(totals[k])
        values[k] = min(max(gradient / max(2 * (half + rule.regularisation), TINY), -MAX_STEP), MAX_STEP)


best_stumps = _by_rule(_best_sign_stumps, _best_newton_stumps)
may_split = _by_rule(_may_split_sign, _may_split_newton)
choose_groups = _by_rule(_choose_sign, _choose_newton)
write_leaf_values = _by_rule(_write_signs, _write_newton_steps)
