"""Kernelised locality-sensitive hashing (Kulis and Grauman, ICCV 2009)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Kernel
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.eigen import inverse_root
from hashgrove.numerics.sampling import sample_rows
from hashgrove.runtime.parameters import Constraint, Integer, Number

__all__ = ["KLSH"]

EIGENVALUE_FLOOR = 1e-8  # share of the largest eigenvalue; directions below it are mostly rounding error
ROUNDING = 1e-14  # rounding error of an eigenvalue, per point of the kernel matrix


class KLSH(Hasher):
    """Random hyperplanes in the space of a Gaussian kernel: the expected code distance is the angle in that space.

    Such a hyperplane cannot be drawn directly. It is the sum of a few of ``n_support`` training points, whitened by the
    inverse square root of their kernel matrix; by the central limit theorem it is approximately Gaussian.

    Parameters
    ----------
    n_bits : int
    n_support : int
        Number of training points that the hyperplanes are built from; p = 300 in the paper.
    subset_size : int
        Number of these points summed for one hyperplane; t = 30 in the paper. At most half of them are used.
    gamma : float, optional
        The kernel is exp(-gamma ||x - s||^2); ``None`` means 1 / (2 x mean squared distance among these points).
    random_state : int, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    encoder_ : Kernel

    Notes
    -----
    Fitting takes O(p^2 d + p^3 + n_bits p^2), whatever the number of training points. Encoding takes
    O(p (d + n_bits)) per row. The number of bits is not limited.

    The paper allows any kernel. Here it is Gaussian, with a width that the paper does not specify. The paper assumes
    that the kernel is centred; here it is centred on the support points, for training points and queries alike.

    References
    ----------
    B. Kulis and K. Grauman, "Kernelized locality-sensitive hashing for scalable image search", ICCV 2009.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> KLSH(16, random_state=0).fit(X).transform(X).shape
    (50, 2)
    """

    min_samples: ClassVar[int] = 2
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_support": Integer(2),
        "subset_size": Integer(1),
        "gamma": Number(above=0, or_none=True),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_support: int = 300,
        subset_size: int = 30,
        gamma: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_support = n_support
        self.subset_size = subset_size
        self.gamma = gamma
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Kernel:
        """Draw the support points and, for each bit, a subset of them; whiten the sums of the subsets."""
        n_support = min(self.n_support, len(X))
        subset_size = min(self.subset_size, n_support // 2)
        gamma = self.gamma
        support = X[sample_rows(len(X), n_support, rng)].astype(np.float64)
        squared = DistancesTo(support).squared(support)
        if gamma is None:
            gamma = 1.0 / (2.0 * squared.mean()) if squared.any() else 1.0
        kernel = np.exp(-gamma * squared)
        subsets = np.zeros((self.n_bits, n_support))
        for subset in subsets:
            subset[rng.choice(n_support, size=subset_size, replace=False)] = 1.0
        means = kernel.mean(axis=0)
        centred = kernel - means - means[:, None] + means.mean()
        weights = subsets @ inverse_root(centred, floor=EIGENVALUE_FLOOR, least=ROUNDING * n_support)
        # the score is sum_i w_i (k(x, s_i) - mean_j k(x, s_j) - mean_i + mean), so centring k(x, .) centres the weights
        bias = weights.sum(axis=1) * means.mean() - weights @ means
        weights -= weights.mean(axis=1, keepdims=True)
        return Kernel.unscaled(support=support, weights=weights, bias=bias, gamma=gamma)
