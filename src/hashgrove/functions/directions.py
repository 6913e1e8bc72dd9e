"""A learner with extra columns: directions in feature or kernel space along which the labels differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Augmented, Encoder, Kernel, Linear
from hashgrove.encoders.augmented import augmented_rows
from hashgrove.functions.base import Learner
from hashgrove.numerics.canonical import canonical_directions, linear_directions
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, check_parameters
from hashgrove.supervision import Supervision

__all__ = ["LabelDirections"]


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The wrapped learner, what it has prepared, and the directions."""

    learner: Learner
    data: Any
    directions: Encoder


class LabelDirections(BaseEstimator):  # type: ignore[misc]
    """A learner that wraps another one and gives it extra columns: directions along which the labels differ.

    A tree tests one feature at a time. If classes differ along a sum of many features, as in the last layer of a
    network, or along a curve, one test of a direction achieves more than many tests of features. Encoding then needs an
    additional matrix product.

    Parameters
    ----------
    learner : {"trees", "linear-svm", "kernel-svm"}, learner or scikit-learn classifier, default="trees"
        The learner that learns each bit from the features and the directions.
    n_anchors : int or None, default=1000
        Number of random training rows that serve as centres of Gaussian features, whose directions are used. ``None``
        means directions of the features themselves.
    gamma : float or None, default=None
        Width of the kernel exp(-gamma d^2) of the Gaussian features; ``None`` means 1 / (mean squared distance to an
        anchor).
    keep_features : bool, default=True
        Whether the learner sees the features as well as the directions. Without the features, trees are learned much
        faster. The codes are then often better if the features come from a network, and worse if they do not.
    regularisation : float, default=1e-4
        Added to the diagonal of the covariance matrices, in units of their mean variance.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import BoostedTrees, FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> trees = BoostedTrees(n_trees=5)
    >>> hasher = FastHash(8, hash_function=LabelDirections(trees, n_anchors=50), random_state=0).fit(X[:500], y[:500])
    >>> hasher.transform(X[500:]).shape
    (1297, 1)
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_anchors": Integer(1, or_none=True),
        "gamma": Number(above=0, or_none=True),
        "keep_features": Flag(),
        "regularisation": Number(above=0),
    }

    def __init__(
        self,
        learner: Any = "trees",
        *,
        n_anchors: int | None = 1000,
        gamma: float | None = None,
        keep_features: bool = True,
        regularisation: float = 1e-4,
    ) -> None:
        self.learner = learner
        self.n_anchors = n_anchors
        self.gamma = gamma
        self.keep_features = keep_features
        self.regularisation = regularisation

    def prepare(
        self,
        X: NDArray[Any],
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _Prepared:
        """Find the directions, or keep those of a warm start, and prepare the wrapped learner for the wider rows."""
        from hashgrove.functions import as_learner

        check_parameters(self)
        learner = as_learner(self.learner, parameter="learner")
        if earlier is None:
            if supervision is None:
                raise ValueError("LabelDirections needs labels or tags to find directions. Got none; pass them as y.")
            directions: Encoder = self.directions(X, supervision.indicator(), rng)
            bits = None
        elif isinstance(earlier, Augmented) and earlier.keeps_features == self.keep_features:
            directions, bits = earlier.directions, earlier.bits
        else:
            raise ValueError(
                "The 'hash_function' parameter must use the same columns as in the previous fit with warm_start=True. "
                "Got other ones; keep LabelDirections and its 'keep_features' as they were, or set warm_start=False."
            )
        columns = augmented_rows(X, directions.scores(X, n_jobs=n_jobs), keep_features=self.keep_features)
        data = learner.prepare(columns, rng, supervision=supervision, earlier=bits, n_jobs=n_jobs)
        return _Prepared(learner, data, directions)

    def learn(
        self, data: _Prepared, z: NDArray[np.int8], weights: NDArray[np.float64] | None, rng: np.random.Generator
    ) -> tuple[Augmented, NDArray[np.int8]]:
        """Learn one bit from the wider rows; the encoder computes the directions from the features by itself."""
        encoder, bit = data.learner.learn(data.data, z, weights, rng)
        return Augmented(directions=data.directions, bits=encoder), bit

    @single_threaded_blas()
    def directions(self, X: NDArray[Any], labels: NDArray[np.float64], rng: np.random.Generator) -> Kernel | Linear:
        """The directions, as an encoder whose scores are the coordinates of a row along them.

        ``labels`` has one column per class or tag, which is 1 for the rows that have it.
        """
        if self.n_anchors is None:
            mean, directions, _ = linear_directions(X, labels, regularisation=self.regularisation)
            return Linear(weights=directions, bias=-directions @ mean)
        features = GaussianFeatures.draw(X, n_anchors=self.n_anchors, gamma=self.gamma, rng=rng, sharpness=1.0)
        directions, _ = canonical_directions(
            lambda start, stop: features.features(X[start:stop]), labels, regularisation=self.regularisation
        )
        return Kernel.on_features(features, directions)
