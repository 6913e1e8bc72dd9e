"""Bits that depend on the similarities of a row to its nearest anchors (anchor graph hashing)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.numerics.distances import DistancesTo

__all__ = ["AnchorGraph", "nearest_anchors", "truncated_similarities"]


def nearest_anchors(
    X: NDArray[Any], anchors: DistancesTo, n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The numbers of the ``n_nearest`` anchors of each row, nearest first, and their squared distances."""
    distances = anchors.squared(X)
    columns = np.argpartition(distances, n_nearest - 1, axis=1)[:, :n_nearest]
    near = np.take_along_axis(distances, columns, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1), np.take_along_axis(near, order, axis=1)


def truncated_similarities(squared: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Gaussian similarities from squared distances (nearest first), scaled so that each row sums to one.

    >>> truncated_similarities(np.array([[1e6, 1e6]]), bandwidth=1.0).tolist()
    [[0.5, 0.5]]
    """
    # relative to the nearest anchor, whose similarity is then 1: in a row far from all anchors not all of them vanish
    similarities = np.exp((squared[:, :1] - squared) / bandwidth**2)
    return similarities / similarities.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class AnchorGraph(Encoder):
    """Scores that are piecewise linear in y = z(x) w', where z(x) holds the similarities of x to its nearest anchors.

    The similarities sum to one. The score of a bit is one linear function of y for y <= 0 and another one for y > 0;
    with slopes 1 and intercepts 0 it is y itself.

    Parameters
    ----------
    anchors : float64 array of shape (n_anchors, n_features)
    weights : float64 array of shape (n_bits, n_anchors)
    slopes, intercepts : float64 array of shape (2, n_bits)
        Of the linear functions for y <= 0 (first row) and for y > 0 (second row).
    bandwidth : float64 array of shape ()
        The similarity is exp(-||x - a||^2 / bandwidth^2).
    n_nearest : int64 array of shape ()
        Number of nearest anchors that have a similarity; it is zero for the others.

    Examples
    --------
    >>> encoder = AnchorGraph(
    ...     anchors=np.array([[0.0], [2.0], [9.0]]),
    ...     weights=np.array([[-1.0, 1.0, 5.0]]),
    ...     slopes=np.ones((2, 1)),
    ...     intercepts=np.zeros((2, 1)),
    ...     bandwidth=np.array(1.0),
    ...     n_nearest=np.array(2),
    ... )
    >>> encoder.scores([[0.0], [1.5], [2.0]]).round(2).tolist()
    [[-0.96], [0.76], [0.96]]
    """

    anchors: Annotated[NDArray[np.float64], ("anchors", "features")]
    weights: Annotated[NDArray[np.float64], ("bits", "anchors")]
    slopes: Annotated[NDArray[np.float64], (2, "bits")]
    intercepts: Annotated[NDArray[np.float64], (2, "bits")]
    bandwidth: Annotated[NDArray[np.float64], ()]
    n_nearest: Annotated[NDArray[np.int64], ()]

    @cached_property
    def _distances(self) -> DistancesTo:
        return DistancesTo(self.anchors)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        columns, squared = nearest_anchors(X, self._distances, int(self.n_nearest))
        similarities = np.zeros((len(X), len(self.anchors)))
        np.put_along_axis(similarities, columns, truncated_similarities(squared, float(self.bandwidth)), axis=1)
        y = similarities @ self.weights.T
        below, above = self.slopes
        return np.where(y > 0, above * y + self.intercepts[1], below * y + self.intercepts[0])
