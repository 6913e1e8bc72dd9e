"""Leaves that are real numbers: Newton steps of the logistic loss, from exact sums of gradients and curvatures.

An example with the label y, the weight w and the probability p of being wrong has the gradient g = w y p and the
curvature h = 2 w p (1 - p). With the sums G and H of a node, the step G / (H + regularisation) gains
G^2 / (H + regularisation), so the best stump has the largest sum of both sides' gains. A value holds both in fixed
point, g x 2^32 + h / 2: one addition of 64 bits adds both, and since h is positive, the halves never mix. (h / 2 is at
most |g|, so both sums have the same bound.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.functions.gathered import gathered_bins, room_for_gathered
from hashgrove.functions.levels import (
    HISTOGRAM,
    LANES,
    LOW,
    KeptHistograms,
    OpenNodes,
    Stumps,
    fill_histogram,
    nodes_of_item,
    search_level,
)
from hashgrove.functions.small_nodes import is_small, small_scratch, small_sums
from hashgrove.runtime.compiling import kernel

__all__ = ["NewtonLeaves"]

MAX_STEP = 4.0  # the largest step of a leaf, in half log-odds, before the learning rate
TINY = 1e-30  # instead of a division by zero
BLOCK = 64  # gains that are compared with the largest one at once
NOISE = 1e-9  # gains that differ by this share are equal: the rest is rounding


class NewtonLeaves(NamedTuple):
    """Leaves that are Newton steps.

    Attributes
    ----------
    regularisation : float
        Half of what is added to the sum of curvatures of a leaf, in the fixed point of the values.
    min_half : float
        Half of the smallest sum of curvatures of a leaf, likewise.
    """

    regularisation: float
    min_half: float

    @property
    def min_points(self) -> int:
        """No node is a leaf for want of examples of a class."""
        return -1

    @property
    def min_low(self) -> int:
        """A node that is split has enough curvature for two leaves."""
        return int(min(np.ceil(2 * self.min_half), LOW))

    def best_stumps(
        self,
        bins: NDArray[np.uint8],
        rows: NDArray[np.uint8],
        level: OpenNodes,
        features: NDArray[np.uint32],
        histograms: NDArray[np.int64],
        *,
        memory: KeptHistograms | None,
        n_jobs: int | None = None,
    ) -> tuple[Stumps, NDArray[np.int64]]:
        """The stumps of the largest gain of all nodes of a level; see `hashgrove.functions.levels.search_level`."""
        return search_level(
            _search,
            bins,
            rows,
            level,
            features,
            histograms,
            rule=self[:2],
            gain_type=np.float64,
            memory=memory,
            n_jobs=n_jobs,
        )

    def choose(self, stumps: Stumps, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of features with the best stump of each node, or -1 if a single leaf gains as much."""
        return _choose(stumps.gains, totals, self.regularisation)

    def leaf_values(self, totals: NDArray[np.int64]) -> NDArray[np.float64]:
        """The Newton steps of leaves whose examples have these sums."""
        gradient, half = totals >> 32, totals & LOW
        steps = gradient / np.maximum(2 * (half + self.regularisation), TINY)
        return np.clip(steps, -MAX_STEP, MAX_STEP)


@kernel
def _halves(total):
    """The sum of the gradients and half the sum of the curvatures that a sum of values holds, as float64.

    Both are below 2^31. (A conversion from int32 is one vector instruction on all processors, one from int64 is not.)
    """
    return np.float64(np.int32(total >> 32)), np.float64(np.int32(total & LOW))


@kernel
def _gain_alone(total, regularisation):
    """What a node with this sum of values gains as a leaf."""
    gradient, half = _halves(total)
    return gradient * gradient / max(half + regularisation, TINY)


@kernel
def _fill_sums(bins, gathered, lanes, level, node, sums):
    """Write the sum of a node's values on the left of the stump at each (threshold, lane), in a histogram's order."""
    fill_histogram(bins, gathered, lanes, level, node, sums)
    for i in range(LANES, HISTOGRAM):
        sums[i] += sums[i - LANES]


@kernel
def _split_gain(left_sum, total, regularisation, min_half):
    """The gain of a stump with this sum on its left, or 0 if a side has too little curvature."""
    gradient, half = _halves(total)
    left, left_half = _halves(left_sum)
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
def _largest(bits):
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
def _search(bins, rows, level, features, families, histograms, kept, stumps, regularisation, min_half, first, last):
    """Find the stumps of the items [first, last). O((examples visited + 256) x LANES) per item.

    Ties go to the lowest threshold, and then to the first feature. The gain is 0 if no stump leaves enough curvature on
    both sides.
    """
    pair, gains, small = np.empty((2, HISTOGRAM), np.int64), np.empty(HISTOGRAM, np.float64), small_scratch(level)
    room, current = room_for_gathered(rows, level, features), np.full(1, -1)
    for item in range(first, last):
        node, sibling, group, lanes = nodes_of_item(level, features, families, item)
        gathered = gathered_bins(rows, level, features, node, group, room, current)
        if is_small(level, node, sibling, kept):
            n = small_sums(bins, gathered, lanes, level, node, small)
            _best_of_small(small, n, lanes, level.totals, node, group, regularisation, min_half, gains, stumps)
            continue
        sums = kept[node, group] if len(kept) > 0 else pair[0]
        _fill_sums(bins, gathered, lanes, level, node, sums)
        _best_of_group(sums, lanes, level.totals, node, group, regularisation, min_half, gains, stumps)
        if sibling >= 0:
            of_sibling = kept[sibling, group] if len(kept) > 0 else pair[1]
            of_sibling[:] = histograms[level.parents[node], group] - sums
            _best_of_group(of_sibling, lanes, level.totals, sibling, group, regularisation, min_half, gains, stumps)


@kernel
def _open_thresholds(sums, total, min_half):
    """The thresholds [first, last) outside of which no stump leaves enough curvature on both sides.

    The curvature on the left grows with the threshold, so both limits are found by bisection. Threshold 255, with
    nothing on its right, is not among them.
    """
    half = _halves(total)[1]
    first, stop = 0, 255
    while first < stop:
        middle = (first + stop) // 2
        if _extreme_half(sums, middle, 1.0) >= min_half:
            stop = middle
        else:
            first = middle + 1
    last, stop = first, 255
    while last < stop:
        middle = (last + stop) // 2
        if half + _extreme_half(sums, middle, -1.0) < min_half:
            stop = middle
        else:
            last = middle + 1
    return first, last


@kernel
def _extreme_half(sums, threshold, sign):
    """The largest of ``sign`` x half the curvature on the left of a threshold, over the lanes."""
    found = -np.inf
    for q in range(LANES):
        found = max(found, sign * _halves(sums[threshold * LANES + q])[1])
    return found


@kernel
def _best_of_group(sums, lanes, totals, node, group, regularisation, min_half, gains, stumps):
    """Write the best stump on eight features."""
    first, last = _open_thresholds(sums, totals[node], min_half)
    place, gain = 0, 0.0
    if first < last:
        candidates = gains[first * LANES : last * LANES]
        _split_gains(sums[first * LANES :], totals[node], regularisation, min_half, candidates)
        best = _largest(candidates.view(np.int64))
        if candidates[best] > 0:
            place, gain = first * LANES + best, candidates[best]
    stumps.gains[node, group] = gain
    stumps.features[node, group] = lanes[place % LANES]
    stumps.thresholds[node, group] = place // LANES
    stumps.lefts[node, group] = sums[place]


@kernel
def _best_of_small(small, n, lanes, totals, node, group, regularisation, min_half, gains, stumps):
    """The same as `_best_of_group`, from the bins of a small node's examples and the sums up to them."""
    bins, sums = small
    best, lane, threshold, left = -1.0, 0, np.int64(256), np.int64(0)
    for q in range(LANES):
        if bins[q, :n].min() > 0:  # then threshold 0 has nothing on its left
            gain = _split_gain(0, totals[node], regularisation, min_half)
            if gain > best or (gain == best and threshold > 0):
                best, lane, threshold, left = gain, q, np.int64(0), np.int64(0)
        for t in range(n):
            gains[t] = _split_gain(sums[q, t], totals[node], regularisation, min_half)
        for t in range(n):
            is_better = gains[t] > best or (gains[t] == best and bins[q, t] < threshold)
            if is_better and bins[q, t] < 255:
                best, lane, threshold, left = gains[t], q, bins[q, t], sums[q, t]
    stumps.gains[node, group] = best
    stumps.features[node, group] = lanes[lane]
    stumps.thresholds[node, group] = threshold
    stumps.lefts[node, group] = left


@kernel
def _choose(gains, totals, regularisation):
    """The best group of each node, or -1 if its gain is not above that of the node as a leaf."""
    chosen = np.empty(len(totals), np.int64)
    for k in range(len(totals)):
        group = np.argmax(gains[k])
        chosen[k] = group if gains[k, group] > _gain_alone(totals[k], regularisation) * (1 + NOISE) else -1
    return chosen
