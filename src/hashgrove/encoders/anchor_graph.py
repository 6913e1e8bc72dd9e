"""Bits that are functions on a graph of anchors: a row is known by its similarity to the anchors nearest to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.distances import DistancesTo

__all__ = ["AnchorGraph", "nearest_anchors", "truncated_similarities"]


def nearest_anchors(
    X: NDArray[Any], anchors: DistancesTo, n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The ``n_nearest`` anchors of each row, nearest first, and their squared distances."""
    distances = anchors.squared(X)
    columns = np.argpartition(distances, n_nearest - 1, axis=1)[:, :n_nearest]
    near = np.take_along_axis(distances, columns, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1), np.take_along_axis(near, order, axis=1)


def truncated_similarities(squared: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Gaussian similarities of squared distances, nearest first, made to sum to one in each row.

    >>> truncated_similarities(np.array([[1e6, 1e6]]), bandwidth=1.0).tolist()
    [[0.5, 0.5]]
    """
    similarities = np.exp((squared[:, :1] - squared) / bandwidth**2)  # the nearest is 1: a far row does not vanish
    return similarities / similarities.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class AnchorGraph(Encoder):
    """Scores of y = z(x) w', with z(x) the similarities of x to its nearest anchors, which sum to one.

    The score of a bit is a line of y for y <= 0 and another one for y > 0: (1, 1) as slopes and no intercepts is y
    itself.

    Parameters
    ----------
    anchors : float64 array of shape (n_anchors, n_features)
    weights : float64 array of shape (n_bits, n_anchors)
    slopes, intercepts : float64 array of shape (2, n_bits)
        Of the lines for y <= 0 and for y > 0.
    bandwidth : float64 array of shape ()
        The similarity is exp(-||x - a||^2 / bandwidth^2).
    n_nearest : int64 array of shape ()

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

    anchors: NDArray[np.float64]
    weights: NDArray[np.float64]
    slopes: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    n_nearest: NDArray[np.int64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.anchors.shape[1]

    @cached_property
    def _points(self) -> DistancesTo:
        return DistancesTo(self.anchors)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        columns, squared = nearest_anchors(X, self._points, int(self.n_nearest))
        similarities = np.zeros((len(X), len(self.anchors)))
        np.put_along_axis(similarities, columns, truncated_similarities(squared, float(self.bandwidth)), axis=1)
        y = similarities @ self.weights.T
        below, above = self.slopes
        return np.where(y > 0, above * y + self.intercepts[1], below * y + self.intercepts[0])

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits; the anchors, the bandwidth and the number of nearest ones must be the same."""
        first = encoders[0]
        for encoder in encoders:
            for name in ("anchors", "bandwidth", "n_nearest"):
                if not np.array_equal(getattr(encoder, name), getattr(first, name)):
                    raise ValueError(f"AnchorGraph encoders must have the same {name!r} to be concatenated.")
        return cls(
            anchors=first.anchors,
            weights=np.concatenate([encoder.weights for encoder in encoders]),
            slopes=np.concatenate([encoder.slopes for encoder in encoders], axis=1),
            intercepts=np.concatenate([encoder.intercepts for encoder in encoders], axis=1),
            bandwidth=first.bandwidth,
            n_nearest=first.n_nearest,
        )

    def _check(self) -> None:
        n_bits, n_anchors = self.weights.shape if self.weights.ndim == 2 else (0, 0)
        n_features = self.anchors.shape[-1] if self.anchors.ndim == 2 else 0
        self._check_floats(
            {
                "weights": (n_bits, n_anchors),
                "anchors": (n_anchors, n_features),
                "slopes": (2, n_bits),
                "intercepts": (2, n_bits),
                "bandwidth": (),
            }
        )
        if self.bandwidth <= 0:
            raise ValueError(f"the array 'bandwidth' must be positive. Got {self.bandwidth}.")
        if self.n_nearest.dtype != np.int64 or self.n_nearest.shape != ():
            raise ValueError(
                f"the array 'n_nearest' must be int64 of shape (). Got {self.n_nearest.dtype} of shape "
                f"{self.n_nearest.shape}."
            )
        if not 1 <= self.n_nearest <= n_anchors:
            raise ValueError(f"the array 'n_nearest' must be from 1 to {n_anchors}. Got {self.n_nearest}.")
