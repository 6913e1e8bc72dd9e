"""Supervised binary reconstructive embeddings (Kulis and Darrell, NIPS 2009): code distances fitted to labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Kernel
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.supervision import Affinity, Supervision

__all__ = ["BRE"]

LEAST_GAP = 1e-9  # share of the range of thresholds; a weight between two closer ones could round to the wrong side


class BRE(SupervisedHasher):
    """Kernel hash functions by coordinate descent on the squared error between code distance and wanted distance.

    The wanted distance is 0 for similar and 1 for dissimilar pairs; the code distance is the share of different bits.
    One weight at a time is set to its best value while all others stay fixed. As the weight goes from -inf to +inf, the
    bit of each point changes once, so a sweep over the sorted changes finds the exact minimum on that line.

    Parameters
    ----------
    n_bits : int
    n_anchors : int, default=300
        Number of random training points that serve as centres of Gaussians.
    anchors_per_bit : int, default=50
        Number of anchors that one bit uses, s in the paper.
    n_labelled : int or None, default=1000
        Number of random training points to learn from; 1,000 in the paper. None means all.
    n_similar, n_dissimilar : int or None, default=25
        Pairs drawn for each of these points; None means all. A pair counts for both of its points, so about twice as
        many are used: 50 and 50, as in the paper (5 % of 1,000 points).
    gamma : float or None
        Width of the kernel exp(-gamma d^2); None means 1 / (2 x mean squared distance to an anchor).
    n_iter : int, default=3
        Largest number of passes over all bits. The fit stops after a pass that changes nothing.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    random_state : int, RandomState or None
        Seed of the draws, the first weights and the order of the coordinates.

    Attributes
    ----------
    encoder_ : Kernel
    objective_ : ndarray
        Mean squared error over the pairs, at the start and after each bit of each pass. It never increases.

    Notes
    -----
    Deviations: the kernel is Gaussian (linear on normalised data in the paper's experiments), and all bits choose their
    anchors from one pool, so that an encoder stores ``n_anchors`` points instead of 50 per bit.

    References
    ----------
    B. Kulis and T. Darrell, "Learning to hash with binary reconstructive embeddings", NIPS 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = BRE(16, n_labelled=500, n_iter=2, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.4
    True
    """

    objective_: NDArray[np.float64]

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_anchors": Integer(1),
        "anchors_per_bit": Integer(1),
        "n_labelled": Integer(1, or_none=True),
        "n_similar": Integer(1, or_none=True),
        "n_dissimilar": Integer(1, or_none=True),
        "gamma": Number(above=0, or_none=True),
        "n_iter": Integer(1),
        "min_shared": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_anchors: int = 300,
        anchors_per_bit: int = 50,
        n_labelled: int | None = 1000,
        n_similar: int | None = 25,
        n_dissimilar: int | None = 25,
        gamma: float | None = None,
        n_iter: int = 3,
        min_shared: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.anchors_per_bit = anchors_per_bit
        self.n_labelled = n_labelled
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.gamma = gamma
        self.n_iter = n_iter
        self.min_shared = min_shared
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Kernel:
        """Coordinate descent over the weights of all bits, from random weights."""
        n_bits = self.n_bits
        anchors = GaussianFeatures.draw(X, n_anchors=self.n_anchors, gamma=self.gamma, rng=rng)
        rows = supervision.draw(self.n_labelled, rng)
        pairs = supervision.subset(rows).affinity(
            n_similar=self.n_similar, n_dissimilar=self.n_dissimilar, random_state=int(rng.integers(2**31))
        )
        ends, wanted = _ends_and_distances(pairs)
        K = np.ascontiguousarray(anchors.features(X[rows]).T)  # one row per anchor
        used = min(self.anchors_per_bit, len(K))
        chosen = np.stack([np.sort(rng.choice(len(K), size=used, replace=False)) for _ in range(n_bits)])
        W = rng.standard_normal((n_bits, used))
        values = np.stack([w @ K[c] for w, c in zip(W, chosen, strict=True)])
        different = np.zeros(len(wanted), dtype=np.int64)  # number of bits that differ, for each entry of the pairs
        for bit in values > 0:
            different += bit[ends] != bit[pairs.indices]

        objective = [_error(wanted, different, n_bits)]
        for _ in range(self.n_iter):
            moved = 0
            for p in rng.permutation(n_bits):
                before = values[p] > 0
                different -= before[ends] != before[pairs.indices]
                # the cost of a difference in bit p:
                # (wanted - (different + 1) / n_bits)^2 - (wanted - different / n_bits)^2
                cost = ((2.0 * different + 1.0) / n_bits - 2.0 * wanted) / n_bits
                order = rng.permutation(used)
                moved += descend(K, chosen[p], order, W[p], values[p], pairs.indptr, pairs.indices, cost)
                after = values[p] > 0
                different += after[ends] != after[pairs.indices]
                objective.append(_error(wanted, different, n_bits))
            if not moved:
                break
        weights = np.zeros((n_bits, len(K)))
        np.put_along_axis(weights, chosen, W, axis=1)
        self.objective_ = np.array(objective)
        return Kernel.on_features(anchors, weights)


@kernel
def descend(K, chosen, order, weights, values, indptr, indices, cost):
    """Set the weights of one bit to their best values, one after the other; returns how many changed.

    ``K`` (n_anchors, n) holds the kernel values. ``weights`` are those of the anchors ``chosen`` and are visited in
    ``order``; ``values`` (n,) is the sum of weights times kernel values. Both are updated. ``cost[e]`` is paid if the
    points i and indices[e] of entry e differ; the entries are symmetric. O(n log n + entries) per weight.
    """
    n = values.size
    bits = np.empty(n, np.bool_)
    thresholds = np.empty(n)
    moved = 0
    for q in order:
        row = K[chosen[q]]
        weight = weights[q]
        # for a weight near -inf the sign of its kernel value decides the bit of each point
        fixed = 0
        low, high = np.inf, -np.inf
        for i in range(n):
            if row[i] == 0.0:
                bits[i] = values[i] > 0
                thresholds[i] = np.inf
                fixed += 1
            else:
                bits[i] = row[i] < 0.0
                thresholds[i] = weight - values[i] / row[i]
                low, high = min(low, thresholds[i]), max(high, thresholds[i])
        n_free = n - fixed
        if n_free == 0:
            continue
        gap = LEAST_GAP * (high - low)
        by_threshold = np.argsort(thresholds)
        # energies are relative to that of a weight near -inf; each pair (i, j), (j, i) is counted once
        energy, best, current = 0.0, 0.0, 0.0
        best_weight = low - 1.0 - 0.1 * (high - low)
        for t in range(n_free):
            i = by_threshold[t]
            for e in range(indptr[i], indptr[i + 1]):
                energy += cost[e] if bits[indices[e]] == bits[i] else -cost[e]
            bits[i] = not bits[i]
            at = thresholds[i]
            if at < weight:
                current = energy
            following = thresholds[by_threshold[t + 1]] if t + 1 < n_free else np.inf
            if following - at > gap and energy < best:
                best = energy
                best_weight = 0.5 * (at + following) if t + 1 < n_free else high + 1.0 + 0.1 * (high - low)
        if best < current - 1e-9 * max(abs(current), abs(best)):
            weights[q] = best_weight
            for i in range(n):
                values[i] += (best_weight - weight) * row[i]
            moved += 1
    return moved


def _ends_and_distances(pairs: Affinity) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The first point and the wanted distance (0 if similar, 1 if dissimilar) of each entry."""
    lengths = np.diff(pairs.indptr)
    ends = np.repeat(np.arange(len(pairs)), lengths)
    similar = np.arange(len(pairs.indices)) < np.repeat(pairs.first_dissimilar, lengths)
    return ends, np.where(similar, 0.0, 1.0)


def _error(wanted: NDArray[np.float64], different: NDArray[np.int64], n_bits: int) -> float:
    return float(np.mean((wanted - different / n_bits) ** 2))
