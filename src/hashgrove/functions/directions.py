"""Directions that correlate most with the labels: canonical correlation analysis, of the features or of a kernel's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Kernel, Linear
from hashgrove.numerics.canonical import canonical_directions, linear_directions
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import check_counts, check_numbers

__all__ = ["DIRECTIONS", "LabelDirections", "canonical_directions", "linear_directions"]


class LabelDirections(BaseEstimator):  # type: ignore[misc]
    """What hash functions see beside the features: directions in which the labels differ.

    A tree tests one feature at a time. Where classes differ along a sum of many features, as in the last layer of a
    network, or along a curve, one test of a direction does what many tests of features cannot.

    Parameters
    ----------
    n_anchors : int or None, default=1000
        The directions are of Gaussian features around that many training rows; ``None``: of the features themselves.
    gamma : float or None, default=None
        Width exp(-gamma d^2) of the Gaussian features; ``None`` is 1 / (mean squared distance to an anchor).
    keep_features : bool, default=True
        Hash functions see the features, too. Without them trees are learned much faster; better where the features
        are a network's, worse where they are not.
    regularisation : float, default=1e-4
        Added to the covariances, in units of their mean variance.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> labels = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> direction = LabelDirections(n_anchors=None).learn(X, labels, np.random.default_rng(0))
    >>> direction.scores(X).round(1).ravel().tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        *,
        n_anchors: int | None = 1000,
        gamma: float | None = None,
        keep_features: bool = True,
        regularisation: float = 1e-4,
    ) -> None:
        self.n_anchors = n_anchors
        self.gamma = gamma
        self.keep_features = keep_features
        self.regularisation = regularisation

    @single_threaded_blas()
    def learn(self, X: NDArray[Any], labels: NDArray[np.float64], rng: np.random.Generator) -> Kernel | Linear:
        """The directions, as an encoder whose scores are the place of a row along each of them.

        ``labels`` has one column a class or tag, 1 where the row has it.
        """
        check_counts(self, or_none=("n_anchors",))
        check_numbers(self, "regularisation", or_none=("gamma",))
        if self.n_anchors is None:
            mean, directions, _ = linear_directions(X, labels, regularisation=self.regularisation)
            return Linear(weights=directions, bias=-directions @ mean)
        anchors = GaussianFeatures.draw(X, n_anchors=self.n_anchors, gamma=self.gamma, rng=rng, sharpness=1.0)
        directions, _ = canonical_directions(
            lambda start, stop: anchors.features(X[start:stop]), labels, regularisation=self.regularisation
        )
        return anchors.encoder(directions)


DIRECTIONS: dict[str, Callable[..., LabelDirections]] = {
    "linear": partial(LabelDirections, n_anchors=None),
    "kernel": LabelDirections,
}
