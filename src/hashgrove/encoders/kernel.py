"""Gaussian functions around points: weighted sums of them as bits, and single ones as features of other encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.unit_rows import unit_products

__all__ = ["Kernel", "UnitKernel"]


@dataclass(frozen=True, eq=False)
class Kernel(Encoder):
    """Scores sum_q w_q exp(-gamma ||(x - low) scale - s_q||^2) + b per bit; all bits share the support vectors s_q.

    Parameters
    ----------
    support : float64 array of shape (n_support, n_features)
        Of scaled features.
    weights : float64 array of shape (n_bits, n_support)
    bias : float64 array of shape (n_bits,)
    gamma : float64 array of shape ()
    low, scale : float64 arrays of shape (n_features,)
        The scaling of features. A feature whose scale is 0 is ignored. `Kernel.unscaled` takes features as they are.

    Examples
    --------
    >>> encoder = Kernel(
    ...     support=np.array([[0.0], [1.0]]),
    ...     weights=np.array([[1.0, -1.0]]),
    ...     bias=np.zeros(1),
    ...     gamma=np.array(2.0),
    ...     low=np.array([10.0]),
    ...     scale=np.array([0.5]),
    ... )
    >>> encoder.scores([[10.0], [11.0]]).round(3).tolist()
    [[0.865], [0.0]]
    """

    support: Annotated[NDArray[np.float64], ("support", "features")]
    weights: Annotated[NDArray[np.float64], ("bits", "support")]
    bias: Annotated[NDArray[np.float64], ("bits",)]
    gamma: Annotated[NDArray[np.float64], ()]
    low: Annotated[NDArray[np.float64], ("features",)]
    scale: Annotated[NDArray[np.float64], ("features",)]

    @classmethod
    def unscaled(
        cls, *, support: NDArray[np.float64], weights: NDArray[np.float64], bias: NDArray[np.float64], gamma: float
    ) -> Self:
        """The encoder of features as they are.

        >>> encoder = Kernel.unscaled(support=np.zeros((1, 1)), weights=np.ones((1, 1)), bias=np.zeros(1), gamma=1.0)
        >>> encoder.scores([[0.0]]).tolist()
        [[1.0]]
        """
        n_features = support.shape[1]
        return cls(
            support=support,
            weights=weights,
            bias=bias,
            gamma=np.array(gamma, np.float64),
            low=np.zeros(n_features),
            scale=np.ones(n_features),
        )

    @classmethod
    def on_features(
        cls, features: GaussianFeatures, weights: NDArray[np.float64], bias: NDArray[np.float64] | float = 0.0
    ) -> Self:
        """The encoder whose scores are ``features.features(X) @ weights.T + bias``.

        Parameters
        ----------
        features : GaussianFeatures
            Kernel values around anchors, less their mean over the training rows. The anchors become support vectors.
        weights : float64 array of shape (n_bits, n_anchors)
        bias : float or float64 array of shape (n_bits,), default=0.0

        Examples
        --------
        >>> from hashgrove.numerics.gaussian import GaussianFeatures
        >>> X = np.array([[0.0], [1.0], [3.0]])
        >>> features = GaussianFeatures.draw(X, n_anchors=2, gamma=1.0, rng=np.random.default_rng(0))
        >>> weights = np.array([[1.0, -2.0]])
        >>> bool(np.allclose(Kernel.on_features(features, weights).scores(X), features.features(X) @ weights.T))
        True
        """
        return cls.unscaled(
            support=features.points,
            weights=np.ascontiguousarray(weights),
            bias=np.asarray(bias - weights @ features.mean, dtype=np.float64),
            gamma=features.gamma,
        )

    @cached_property
    def _active(self) -> tuple[DistancesTo, NDArray[np.float64]]:
        """The support vectors that some bit uses, and their weights."""
        used = _used(self.weights)
        return DistancesTo(self.support[used]), self.weights[:, used]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        support, weights = self._active
        distances = support.squared((X - self.low) * self.scale)
        return np.exp(-self.gamma * distances) @ weights.T + self.bias

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits, without the support vectors that no bit uses.

        The ``encoders`` must have the same gamma. The encoders of one fit share their support vectors. If the support
        vectors differ (after a warm start), the result has all of them, equal ones only once.
        """
        first = encoders[0].support
        if not all(encoder.support is first or np.array_equal(encoder.support, first) for encoder in encoders):
            encoders = _on_common_support(encoders)
        joined = super().concatenate(encoders)
        used = _used(joined.weights)
        return replace(joined, support=joined.support[used], weights=joined.weights[:, used])

    def _check_values(self) -> None:
        if self.gamma <= 0:
            raise ValueError(f"the array 'gamma' must be positive. Got {self.gamma}.")
        if (self.scale < 0).any():
            raise ValueError(f"the array 'scale' must not be negative. Got {self.scale.min():g}.")


def _used(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Numbers of the support vectors that have a weight in some bit, or [0] if none has: one must remain."""
    used = np.flatnonzero(weights.any(axis=0))
    return used if used.size else np.arange(1)


def _on_common_support(encoders: Sequence[Any]) -> list[Any]:
    """The same encoders, each on the distinct support vectors of all of them."""
    distinct: dict[int, NDArray[np.float64]] = {id(encoder.support): encoder.support for encoder in encoders}
    support, rows = np.unique(np.concatenate(list(distinct.values())), axis=0, return_inverse=True)
    ends = np.cumsum([len(vectors) for vectors in distinct.values()])
    places = dict(zip(distinct, np.split(rows.ravel(), ends[:-1]), strict=True))
    spread = []
    for encoder in encoders:
        weights = np.zeros((len(support), encoder.n_bits))
        np.add.at(weights, places[id(encoder.support)], encoder.weights.T)  # an encoder may have equal support vectors
        spread.append(replace(encoder, support=support, weights=weights.T))
    return spread


@dataclass(frozen=True, eq=False)
class UnitKernel(Encoder):
    """Scores exp(-gamma ||x - a||^2) of rows x scaled to length 1, for each anchor a of length 1; in float32.

    All scores are positive. The encoder serves as the first part of an `Lifted` one, not for codes.

    Parameters
    ----------
    anchors : float32 array of shape (n_bits, n_features)
        Rows of length 1; a row of zeros stays one.
    gamma : float32 array of shape ()

    Examples
    --------
    >>> encoder = UnitKernel(anchors=np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), gamma=np.array(0.5, np.float32))
    >>> encoder.scores([[5.0, 0.0]]).round(3).tolist()
    [[1.0, 0.36800000071525574]]
    """

    anchors: Annotated[NDArray[np.float32], ("bits", "features")]
    gamma: Annotated[NDArray[np.float32], ()]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float32]:
        # ||x - a||^2 = 2 - 2 x.a for rows of length 1
        products = unit_products(X, self.anchors)
        products -= np.float32(1)
        products *= np.float32(2) * self.gamma
        return np.exp(products, out=products)

    def _check_values(self) -> None:
        if self.gamma <= 0:
            raise ValueError(f"the array 'gamma' must be positive. Got {self.gamma}.")
        lengths = np.einsum("ij,ij->i", self.anchors, self.anchors, dtype=np.float64)  # without a copy in float64
        wrong = lengths[(np.abs(lengths - 1) > 1e-3) & (lengths > 0)]
        if len(wrong):
            raise ValueError(f"the array 'anchors' must have rows of length 1. Got {np.sqrt(wrong[0]):.3g}.")
