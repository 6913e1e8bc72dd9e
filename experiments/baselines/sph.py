"""Spectral hashing (Weiss, Torralba and Fergus, NIPS 2008): waves along the principal directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder, Linear
from hashgrove.hasher import Hasher
from hashgrove.numerics.principal import principal_directions

__all__ = ["SPH", "Sinusoid"]

SPAN_FLOOR = 1e-9  # share of the widest direction; a narrower direction counts as constant


class SPH(Hasher):
    """The eigenfunctions of the graph Laplacian for data that are uniform in a box, thresholded at zero.

    The box bounds the principal components. On an interval from a to b the eigenfunctions are cosines with k half
    waves, and their eigenvalues increase with k / (b - a). The ``n_bits`` functions with the smallest eigenvalues over
    all directions become the bits. So a wide direction gives several bits, with an increasing number of waves.

    Parameters
    ----------
    n_bits : int
    random_state : int, RandomState or None
        Not used, since nothing is random here. All hashers have this parameter.

    Attributes
    ----------
    encoder_ : Sinusoid
    modes_ : int array of shape (n_bits, 2)
        The principal direction and the number of half waves of each bit.
    eigenvalues_ : float64 array of shape (n_bits,)
        (pi k / (b - a))^2, in ascending order; the paper's 1 - exp(-eps^2 / 2 x this) has the same order for any eps.

    Notes
    -----
    Fitting takes O(n d^2 + d^3) for the principal directions. Encoding takes O(n_bits d) per row. The number of bits is
    not limited.

    As in the authors' code, the box reaches from the smallest to the largest value, min(n_bits, d) directions are used,
    and products of eigenfunctions of several directions are left out (`MDSH` has these). Outside the box the waves
    continue.

    References
    ----------
    Y. Weiss, A. Torralba and R. Fergus, "Spectral hashing", NIPS 2008.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(size=(200, 2)) * [4.0, 1.0]
    >>> SPH(4).fit(X).modes_.tolist()
    [[0, 1], [0, 2], [0, 3], [1, 1]]
    """

    seeded: ClassVar[bool] = False
    modes_: NDArray[np.intp]
    eigenvalues_: NDArray[np.float64]

    min_samples: ClassVar[int] = 2

    def __init__(self, n_bits: int = 64, *, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Sinusoid:
        """Choose the waves with the smallest eigenvalues along the principal directions."""
        n_bits = self.n_bits
        mean, directions = principal_directions(X, min(n_bits, X.shape[1]))
        projected = Linear(weights=directions, bias=-directions @ mean).scores(X)
        low = projected.min(axis=0)
        span = projected.max(axis=0) - low
        widest = span.max()
        if widest == 0.0:  # all rows are equal, so any wave is constant
            span[0] = widest = 1.0
        candidates = []
        for direction in np.flatnonzero(span > SPAN_FLOOR * widest):
            # faster waves than these come after the first n_bits waves of the widest direction
            waves = np.arange(1, int(n_bits * span[direction] / widest) + 2)
            candidates.append(np.stack([np.full_like(waves, direction), waves], axis=1))
        modes = np.concatenate(candidates)
        frequency = np.pi * modes[:, 1] / span[modes[:, 0]]
        chosen = np.argsort(frequency, kind="stable")[:n_bits]
        modes, frequency = modes[chosen], frequency[chosen]
        weights = frequency[:, None] * directions[modes[:, 0]]
        self.modes_ = modes
        self.eigenvalues_ = np.square(frequency)
        return Sinusoid(weights=weights, phase=-weights @ mean - frequency * low[modes[:, 0]])


@dataclass(frozen=True, eq=False)
class Sinusoid(Encoder):
    """Scores cos(X W' + phase): a bit changes with every half wave along its direction.

    Parameters
    ----------
    weights : float64 array of shape (n_bits, n_features)
        Directions, in radians per unit of a feature.
    phase : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Sinusoid(weights=np.array([[np.pi]]), phase=np.zeros(1))
    >>> encoder.encode([[0.0], [1.0], [2.0]]).tolist()
    [[1], [0], [1]]
    """

    weights: Annotated[NDArray[np.float64], ("bits", "features")]
    phase: Annotated[NDArray[np.float64], ("bits",)]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.cos(X.astype(np.float64, copy=False) @ self.weights.T + self.phase)
