"""Boosted trees as hash functions (section 4.1 of the paper), with leaves that are signs or Newton steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Encoder, LeafTrees, Sum, Trees
from hashgrove.encoders.trees import BinnedTrees
from hashgrove.functions.start import LinearStart, Start
from hashgrove.runtime.memory import fits_memory, memory_limit
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, OneOf, ParameterError, check_parameters
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.stores import training_bins
from hashgrove.supervision import Supervision
from hashgrove.trees.adaboost import adaboost
from hashgrove.trees.binning import N_BINS, BinnedData
from hashgrove.trees.boosting import SUBSETS, BoostingSettings
from hashgrove.trees.logistic import logistic_boosting

__all__ = ["BoostedTrees"]

MANY_ROWS = 25_000  # from here on the learning rate is larger, and features may be drawn once per tree, if not given
FINE_ROWS, FEW_THRESHOLDS = 10_000, 64  # below so many rows a node tries fewer thresholds, if not given
DEEP = 7  # from this depth on a tree has so many small nodes that a second copy of the bins, row by row, pays
DENSE = 16  # if a node draws one of so many features: then several of them lie in one cache line of the copy
LEAST_UNIT = 1e-6  # the unit of trees that do not help, so that the linear score alone decides
RATE_OF_FEW, RATE_OF_MANY = 0.3, 0.5  # below and from this number of rows
RATE_ALONE = 0.7  # of many rows, for trees without a start, which have to learn everything themselves


class _Boosted(NamedTuple):
    """The trees of one bit, and the margin that a score of 1 adds."""

    encoder: BinnedTrees
    unit: float


class _Prepared(NamedTuple):
    """The bins of the training rows, and what the linear scores share."""

    binned: BinnedData
    start: LinearStart | None


class BoostedTrees(BaseEstimator):  # type: ignore[misc]
    """A sum of small decision trees with real leaves, or the paper's weighted vote of trees.

    Parameters
    ----------
    n_trees : int, default=290
        Number of trees, that is, of boosting rounds.
    max_depth : int, default=4
        Largest number of tests from the root to a leaf. Memory grows with the number of nodes that a tree really has.
        From depth 7 on, the binned features (one byte each) are held twice if each node draws many of them.
    features_per_node : int or None, default=32
        Number of random features that a node chooses from (LazyBoost). ``None``, or a number above the number of
        features, means all features.
    subset : {"node", "level", "tree"} or None, default=None
        Whether these features are drawn again for each node, as in the paper, for each level of a tree, or once per
        tree, which takes half the time, and is needed for bins on disk that are larger than memory. ``None`` means
        ``"tree"`` with a kernel start and 25,000 rows or more, where the codes are as good, and otherwise ``"node"``.
    trimming : float, default=0.1
        Share of the total weight that is left out when a tree is grown, starting with the lightest examples. These
        examples still count for the weight of the tree's vote and are reweighted.
    min_points : int, default=5
        With sign leaves: a node with this many examples or fewer of either class is a leaf.
    leaves : {"newton", "sign"}, default="newton"
        The value of a leaf. ``"newton"``: a real number, a Newton step of the logistic loss. ``"sign"``: -1 or +1, and
        the trees are combined by discrete AdaBoost, as in the paper; `BoostedTrees.paper` has all its settings.
    learning_rate : float or None, default=None
        With Newton leaves: the share of each step that is taken. ``None`` means 0.3; from 25,000 rows on 0.5, or 0.7
        without a start.
    regularisation : float, default=10.0
        With Newton leaves: added to the curvature of a leaf, which makes the steps of leaves with few rows smaller. A
        row of mean weight has a curvature of at most 0.5.
    min_hessian : float, default=5.0
        With Newton leaves: the smallest curvature of a leaf.
    n_thresholds : int or None, default=None
        With Newton leaves: how many thresholds a node tries per feature, from 2 to 256, rounded up to a power of two.
        Fewer take less time, which shows where a node has few rows. ``None`` means 64, and from 10,000 rows on 256.
    early_stopping : bool, default=False
        Whether to stop as soon as the vote is right for all training examples. This saves time and trees on small data,
        but costs quality, because later rounds still widen the margin.
    start : {None, "linear", "kernel"}, default=None
        Where the margin of a bit begins: at 0, or at a linear score of the features and of the probabilities of the
        labels, so that the trees learn only what that score gets wrong. This is better where classes differ along sums
        of many features, as in the last layer of a network. ``"kernel"`` takes Gaussian features instead, for classes
        that are not linearly separable; encoding then takes longer.
    n_anchors : int, default=2000
        With ``start="kernel"``: number of random training rows that serve as centres of Gaussian features.

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
        "subset": OneOf((None, *SUBSETS)),
        "trimming": Number(low=0, below=1),
        "min_points": Integer(0, 2**31),
        "leaves": OneOf(("sign", "newton")),
        "learning_rate": Number(above=0, below=10, or_none=True),
        "regularisation": Number(low=0, below=1e9),
        "min_hessian": Number(low=0, below=1e9),
        "n_thresholds": Integer(2, N_BINS, or_none=True),
        "early_stopping": Flag(),
        "start": OneOf((None, "linear", "kernel")),
        "n_anchors": Integer(1),
    }
    added: ClassVar[dict[str, Any]] = {"n_thresholds": N_BINS}  # what files before these parameters mean
    stagewise: ClassVar[bool] = False  # bits are learned in parallel, and are no worse: docs/how-it-works.md
    accepts_stored_rows: ClassVar[bool] = True

    def __init__(
        self,
        *,
        n_trees: int = 290,
        max_depth: int = 4,
        features_per_node: int | None = 32,
        subset: str | None = None,
        trimming: float = 0.1,
        min_points: int = 5,
        leaves: str = "newton",
        learning_rate: float | None = None,
        regularisation: float = 10.0,
        min_hessian: float = 5.0,
        n_thresholds: int | None = None,
        early_stopping: bool = False,
        start: str | None = None,
        n_anchors: int = 2000,
    ) -> None:
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.features_per_node = features_per_node
        self.subset = subset
        self.trimming = trimming
        self.min_points = min_points
        self.leaves = leaves
        self.learning_rate = learning_rate
        self.regularisation = regularisation
        self.min_hessian = min_hessian
        self.n_thresholds = n_thresholds
        self.early_stopping = early_stopping
        self.start = start
        self.n_anchors = n_anchors

    @property
    def accepts_store(self) -> bool:
        """Whether bins are all that is needed of the rows; the linear score of a start needs the rows themselves."""
        return self.start is None

    @property
    def generic_share(self) -> float:
        """The share of the bits that should be generic."""
        return 0.0 if self.start is None else 0.125

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Trees with the settings of the paper and its authors' code, whatever the defaults are, with ``changes``.

        >>> BoostedTrees.paper(n_trees=50).leaves
        'sign'
        """
        settings: dict[str, Any] = {
            "leaves": "sign",
            "n_trees": 200,
            "max_depth": 4,
            "features_per_node": 200,
            "subset": "node",
            "trimming": 0.1,
            "min_points": 5,
            "early_stopping": False,
        }
        return cls(**settings | changes)

    def prepare(
        self,
        X: NDArray[Any] | FeatureStore | StoredRows,
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _Prepared:
        """Check the parameters, bin the training rows and prepare the linear score, once per fit."""
        check_parameters(self)
        trees = None if earlier is None else earlier.part(BinnedTrees)  # type: ignore[type-abstract]
        found = training_bins(X, None if trees is None else (trees.low, trees.scale), n_jobs=n_jobs)
        by_row = (
            self._subset(found.bins.shape[1]) == "node"
            and not isinstance(X, FeatureStore | StoredRows)  # the copy would be in memory
            and self.max_depth >= DEEP
            and DENSE * (self.features_per_node or len(found.bins)) >= len(found.bins)
        )
        rows = np.ascontiguousarray(found.bins.T) if by_row else np.empty((0, 0), np.uint8)
        read_columns = self._reader_of(found) if isinstance(found, FeatureStore) else None
        binned = BinnedData(found.bins, found.low, found.scale, n_jobs, rows, read_columns)
        if self.start is None:
            return _Prepared(binned, None)
        if isinstance(X, FeatureStore):
            raise ParameterError("start", f"must be None to learn from a FeatureStore. Got {self.start!r} instead.")
        n_anchors = self.n_anchors if self.start == "kernel" else None
        start = LinearStart.prepare(X, supervision, rng, n_anchors=n_anchors, n_jobs=n_jobs)
        return _Prepared(binned, start)

    def _reader_of(self, store: FeatureStore) -> Callable[[NDArray[Any]], None] | None:
        """The function that reads features ahead, for a store larger than memory, which other subsets cannot use."""
        if fits_memory(store.bins.size):
            return None
        if self._subset(store.bins.shape[1]) != "tree":
            raise ParameterError(
                "subset",
                f"must be 'tree' for bins of {store.bins.size / 1e9:.1f} GB with {memory_limit() / 1e9:.1f} GB of "
                f"memory, so that a tree reads only the features that it draws. Got {self.subset!r}, with which "
                "every tree would read nearly all bins from the disk.",
            )
        return store.read_columns

    def learn(
        self,
        data: _Prepared,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Learn one bit by boosting; returns the encoder, and the values that it gives for the training rows."""
        (started,) = self.start_bits(data, z[None], [weights])
        return self.learn_started(data, started, z, weights, rng)

    @property
    def starts_together(self) -> bool:
        """Whether there are linear scores, which take as many passes over the rows for one bit as for many."""
        return self.start is not None

    def start_bits(
        self, data: _Prepared, Z: NDArray[np.int8], weights: Sequence[NDArray[np.float64] | None]
    ) -> Sequence[Start | None]:
        """The linear scores of bits."""
        return [None] * len(Z) if data.start is None else data.start.learn(Z, weights)

    def learn_started(
        self, data: _Prepared, started: Start | None, z: NDArray[np.int8], weights: Any, rng: np.random.Generator
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Boost the trees of one bit, from its linear score if it has one."""
        if started is None:
            encoder = self._boost(data.binned, z, weights, rng).encoder
            bits = encoder.bits_of_bins(data.binned.bins, n_jobs=data.binned.n_jobs)[0]
            return encoder, np.where(bits, np.int8(1), np.int8(-1))
        boosted = self._boost(data.binned, z, weights, rng, start=started.left_out)
        unit = max(boosted.unit, LEAST_UNIT)
        trees = boosted.encoder.scores_of_bins(data.binned.bins, n_jobs=data.binned.n_jobs)[0]
        bit = np.where(started.seen / unit + trees > 0, np.int8(1), np.int8(-1))
        return Sum(parts=(started.encoder(1 / unit), boosted.encoder)), bit

    def _boost(
        self,
        data: BinnedData,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
        *,
        start: NDArray[np.float64] | None = None,
    ) -> _Boosted:
        """Boost the trees of one bit from an initial margin.

        ``start`` has half the log-odds of each row; the trees learn what remains. The margin of a row is then its start
        plus ``unit`` x its score. The unit is 0 if no tree helps, except that without a start the bit is then constant.
        """
        n_features, n = data.bins.shape
        settings = BoostingSettings(
            max_depth=self.max_depth,
            n_features=n_features if self.features_per_node is None else self.features_per_node,
            subset=SUBSETS.index(self._subset(n)),
            trimming=self.trimming,
            early_stopping=self.early_stopping,
        )
        seeds = rng.integers(2**63, size=self.n_trees, dtype=np.uint64)
        binning: dict[str, Any] = {"low": data.low, "scale": data.scale}
        if self.leaves == "sign":
            voting = adaboost(data, z, weights, settings, seeds, min_points=self.min_points, start=start)
            trees = Trees(weights=voting.votes, **binning, **voting.forest._asdict())
            return _Boosted(trees, voting.total_weight)
        additive = logistic_boosting(
            data,
            z,
            weights,
            settings,
            seeds,
            learning_rate=self._rate(n),
            regularisation=self.regularisation,
            min_hessian=self.min_hessian,
            n_thresholds=self.n_thresholds or (FEW_THRESHOLDS if n < FINE_ROWS else N_BINS),
            start=start,
        )
        return _Boosted(LeafTrees(unit=np.array([additive.unit]), **binning, **additive.forest._asdict()), 1.0)

    def _subset(self, n: int) -> str:
        """For what features are drawn, with ``n`` rows."""
        return self.subset or ("tree" if self.start == "kernel" and n >= MANY_ROWS else "node")

    def _rate(self, n: int) -> float:
        """The share of each step that is taken, with ``n`` rows."""
        usual = RATE_OF_FEW if n < MANY_ROWS else RATE_ALONE if self.start is None else RATE_OF_MANY
        return usual if self.learning_rate is None else self.learning_rate
