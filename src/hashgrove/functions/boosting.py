"""Boosted trees as hash functions (section 4.1 of the paper): discrete AdaBoost with weight trimming and LazyBoost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Encoder
from hashgrove.encoders.binning import bin_features, fit_bins
from hashgrove.encoders.trees import MAX_VOTES, Trees
from hashgrove.functions.tree import Tree, grow
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, OneOf, check_parameters
from hashgrove.supervision import Supervision

__all__ = ["BinnedData", "BoostedTrees"]

DROPPED_BITS = 18  # of a float32; its exponent and the top 5 bits of its mantissa remain


@dataclass(frozen=True, eq=False)
class BinnedData:
    """Training rows in 256 bins per feature, one row of ``bins`` per feature, and the binning that made them."""

    bins: NDArray[np.uint8]
    low: NDArray[np.float64]
    scale: NDArray[np.float64]
    n_jobs: int | None


class BoostedTrees(BaseEstimator):  # type: ignore[misc]
    """A weighted vote of small decision trees, the paper's hash function.

    Parameters
    ----------
    n_trees : int, default=200
        Number of trees, that is, of boosting rounds.
    max_depth : int, default=4
        Largest number of tests from the root to a leaf. Memory grows with the number of nodes that a tree really has.
    features_per_node : int or None, default=200
        Number of random features that a node chooses from (LazyBoost). ``None``, or a number above the number of
        features, means all features.
    subset : {"node", "tree"}, default="node"
        Whether these features are drawn again for each node, as in the paper, or once per tree, which is faster.
    trimming : float, default=0.1
        Share of the total weight that is left out when a tree is grown, starting with the lightest examples. These
        examples still count for the weight of the tree's vote and are reweighted.
    min_points : int, default=5
        A node with this many examples or fewer of either class is a leaf.
    early_stopping : bool, default=False
        Whether to stop as soon as the vote is right for all training examples. This saves time and trees on small data,
        but costs quality, because later rounds still widen the margin.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 2))
    >>> z = np.where(X[:, 0] > X[:, 1], 1, -1).astype(np.int8)
    >>> learner = BoostedTrees(n_trees=20)
    >>> encoder, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
    >>> float((bit == z).mean()) > 0.95
    True
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_trees": Integer(1, 4096),
        "max_depth": Integer(1, 64),
        "features_per_node": Integer(1, or_none=True),
        "subset": OneOf(("node", "tree")),
        "trimming": Number(low=0, below=1),
        "min_points": Integer(0, 2**31),
        "early_stopping": Flag(),
    }

    def __init__(
        self,
        *,
        n_trees: int = 200,
        max_depth: int = 4,
        features_per_node: int | None = 200,
        subset: str = "node",
        trimming: float = 0.1,
        min_points: int = 5,
        early_stopping: bool = False,
    ) -> None:
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.features_per_node = features_per_node
        self.subset = subset
        self.trimming = trimming
        self.min_points = min_points
        self.early_stopping = early_stopping

    def prepare(
        self,
        X: NDArray[Any],
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> BinnedData:
        """Check the parameters and bin the training rows, once per fit."""
        check_parameters(self)
        low, scale = (earlier.low, earlier.scale) if isinstance(earlier, Trees) else fit_bins(X)
        return BinnedData(bin_features(X, low, scale, n_jobs=n_jobs), low, scale, n_jobs)

    def learn(
        self,
        data: BinnedData,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Trees, NDArray[np.int8]]:
        """Learn one bit by AdaBoost; returns the encoder, and the values that it gives for the training rows."""
        n_features, n = data.bins.shape
        w = (np.ones(n) if weights is None else weights).astype(np.float32)
        margin = np.zeros(n)
        trees: list[Tree] = []
        alphas: list[float] = []
        seeds = rng.integers(2**63, size=self.n_trees, dtype=np.uint64)
        for seed in seeds:
            index, signed = _trim(w, w.view(np.int32), z, self.trimming)
            tree = grow(
                data.bins,
                index,
                signed,
                max_depth=self.max_depth,
                n_features=n_features if self.features_per_node is None else self.features_per_node,
                per_node=self.subset == "node",
                min_points=self.min_points,
                seed=seed,
                n_jobs=data.n_jobs,
            )
            leaf = _encoder(data, [tree], np.ones(1)).bits_of_bins(data.bins, n_jobs=data.n_jobs)[0]
            alpha, wrong = _reweight(z, leaf, w, margin)
            if alpha > 0:
                trees.append(tree)
                alphas.append(alpha)
                if self.early_stopping and wrong == 0:
                    break
        if not trees:  # no tree beats a coin, so all rows get the heavier class
            sign = 1 if np.dot(w, z) > 0 else -1
            trees, alphas = [_constant(sign)], [1.0]
        encoder = _encoder(data, trees, np.array(alphas))
        bits = encoder.bits_of_bins(data.bins, n_jobs=data.n_jobs)[0]
        return encoder, np.where(bits, 1, -1).astype(np.int8)


def _constant(sign: int) -> Tree:
    """A tree that is a single leaf."""
    zero = np.zeros(1, np.uint32)
    return Tree(zero, np.zeros(1, np.uint8), zero, np.full(1, sign, np.int8))


def _encoder(data: BinnedData, trees: list[Tree], alphas: NDArray[np.float64]) -> Trees:
    """The encoder of one bit. The weights of the trees become integers that sum to at most `MAX_VOTES`."""
    votes = np.maximum(np.floor(alphas / alphas.sum() * (MAX_VOTES - len(alphas))), 1).astype(np.int16)
    sizes = [len(tree.value) for tree in trees]
    return Trees(
        low=data.low,
        scale=data.scale,
        bit_ptr=np.array([0, len(trees)], np.int32),
        weights=votes,
        tree_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        **{name: np.concatenate([getattr(tree, name) for tree in trees]) for name in Tree._fields},
    )


@kernel
def _trim(w, w_bits, y, trimming):
    """The heaviest examples, which hold 1 - ``trimming`` of the weight: their numbers, and label x weight.

    Instead of a sort, the weights are summed by their exponent and the top 5 bits of their mantissa. (Positive floats
    have the same order as their bit patterns.) So examples within 3 % of the limit are kept, too. ``w_bits`` is ``w``
    viewed as int32. The returned weights are in fixed point: they sum to 2^30. O(n).
    """
    n = np.uint64(len(w))
    mass = np.zeros(1 << (31 - DROPPED_BITS), np.float64)
    for i in range(n):
        mass[np.uint32(w_bits[i]) >> np.uint32(DROPPED_BITS)] += w[i]
    wanted = mass.sum() * (1 - trimming)
    limit = len(mass) - 1
    total = mass[limit]
    while total < wanted and limit > 0:
        limit -= 1
        total += mass[limit]
    if trimming == 0:
        limit = 0
    scale = np.float64(1 << 30) / total
    index, signed = np.empty(n + np.uint64(1), np.uint32), np.empty(n + np.uint64(1), np.int32)
    kept = np.uint64(0)
    for i in range(n):  # without a branch: an example that is not kept is overwritten by the next
        index[kept] = i
        signed[kept] = np.int32(np.rint(y[i] * (w[i] * scale)))
        kept += np.uint64((w_bits[i] >> DROPPED_BITS) >= limit)
    return index[:kept], signed[:kept]


@kernel
def _reweight(y, leaf, w, margin):
    """One step of AdaBoost: returns the tree's weight alpha and the number of examples that the vote now gets wrong.

    ``leaf`` (bool) is the tree's output. ``w`` (float32, rescaled to mean 1) and ``margin`` (float64), the weighted
    vote of the trees so far, are updated unless alpha <= 0. O(n).
    """
    n = len(y)
    sums = np.zeros((2, 8), np.float64)  # wrong and right; eight partial sums can be added to in parallel
    for i in range(np.uint64(n)):
        sums[np.uint64(leaf[i] == (y[i] > 0)), i % np.uint64(8)] += w[i]
    wrong, right = sums[0].sum(), sums[1].sum()
    # a tree without errors gets the weight of a tree that is wrong on half an example
    alpha = 0.5 * np.log(right / max(wrong, (right + wrong) / (2 * n))) if right > 0 else 0.0
    if alpha <= 0:
        return 0.0, n
    rescale = n / (right * np.exp(-alpha) + wrong * np.exp(alpha))
    down, up = np.float32(np.exp(-alpha) * rescale), np.float32(np.exp(alpha) * rescale)
    errors = 0
    for i in range(np.uint64(n)):
        label = y[i] > 0
        w[i] *= down if leaf[i] == label else up
        margin[i] += alpha if leaf[i] else -alpha
        errors += (margin[i] > 0) != label
    return alpha, errors
