"""Bits that are sums of Gaussian bumps around support vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.gaussian import GaussianFeatures

__all__ = ["Kernel"]


@dataclass(frozen=True, eq=False)
class Kernel(Encoder):
    """Scores sum_q w_q exp(-gamma ||x - s_q||^2) + b for each bit, over support vectors that all bits share.

    Parameters
    ----------
    support : float64 array of shape (n_support, n_features)
    weights : float64 array of shape (n_bits, n_support)
    bias : float64 array of shape (n_bits,)
    gamma : float64 array of shape ()

    Examples
    --------
    >>> encoder = Kernel(
    ...     support=np.array([[0.0], [2.0]]),
    ...     weights=np.array([[1.0, -1.0]]),
    ...     bias=np.zeros(1),
    ...     gamma=np.array(0.5),
    ... )
    >>> encoder.scores([[0.0], [1.0]]).round(3).tolist()
    [[0.865], [0.0]]
    """

    support: NDArray[np.float64]
    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    gamma: NDArray[np.float64]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.support.shape[1]

    @classmethod
    def on_features(
        cls, features: GaussianFeatures, weights: NDArray[np.float64], bias: NDArray[np.float64] | float = 0.0
    ) -> Kernel:
        """The encoder of bits whose scores are ``features.features(X) @ weights.T + bias``."""
        return cls(
            support=features.points,
            weights=np.ascontiguousarray(weights),
            bias=np.asarray(bias - weights @ features.mean, dtype=np.float64),
            gamma=np.array(features.gamma),
        )

    @cached_property
    def _active(self) -> tuple[DistancesTo, NDArray[np.float64]]:
        """The support vectors in use, and their weights."""
        used = _used(self.weights)
        return DistancesTo(self.support[used]), self.weights[:, used]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        support, weights = self._active
        return np.exp(-self.gamma * support.squared(X)) @ weights.T + self.bias

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits, without the support vectors that no bit uses.

        The ``encoders`` must have the same gamma. Those of one `fit` share their support vectors; others (of
        a fit that goes on from an earlier one) are put together, equal support vectors once.
        """
        first = encoders[0]
        if any(encoder.gamma != first.gamma for encoder in encoders):
            values = sorted({float(encoder.gamma) for encoder in encoders})
            raise ValueError(f"Kernel encoders must have the same 'gamma' to be concatenated. Got {values}.")
        support, weights = first.support, [encoder.weights for encoder in encoders]
        if not all(_same(encoder.support, support) for encoder in encoders):
            support, weights = _merge(encoders)
        stacked = np.concatenate(weights)
        used = _used(stacked)
        return cls(
            support=support[used],
            weights=stacked[:, used],
            bias=np.concatenate([encoder.bias for encoder in encoders]),
            gamma=first.gamma,
        )

    def _check(self) -> None:
        n_bits, n_support = self.weights.shape if self.weights.ndim == 2 else (0, 0)
        n_features = self.support.shape[-1] if self.support.ndim == 2 else 0
        self._check_floats(
            {"weights": (n_bits, n_support), "support": (n_support, n_features), "bias": (n_bits,), "gamma": ()}
        )
        if self.gamma <= 0:
            raise ValueError(f"the array 'gamma' must be positive. Got {self.gamma}.")


def _used(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Support vectors with a weight in some bit; where there is none, the first one, so that one is left."""
    used = np.flatnonzero(weights.any(axis=0))
    return used if used.size else np.arange(1)


def _same(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return a is b or np.array_equal(a, b)


def _merge(encoders: Sequence[Kernel]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """The distinct support vectors of all encoders, and the weights of each encoder on them."""
    distinct: dict[int, NDArray[np.float64]] = {id(encoder.support): encoder.support for encoder in encoders}
    support, rows = np.unique(np.concatenate(list(distinct.values())), axis=0, return_inverse=True)
    ends = np.cumsum([len(vectors) for vectors in distinct.values()])
    places = dict(zip(distinct, np.split(rows.ravel(), ends[:-1]), strict=True))
    weights = []
    for encoder in encoders:
        spread = np.zeros((len(support), encoder.n_bits))
        np.add.at(spread, places[id(encoder.support)], encoder.weights.T)  # a row may be there twice
        weights.append(spread.T)
    return support, weights
