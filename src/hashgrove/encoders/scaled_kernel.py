"""Bits that are weighted sums of Gaussian bumps, for features that are scaled one by one first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.kernel import Kernel

__all__ = ["ScaledKernel"]


@dataclass(frozen=True, eq=False)
class ScaledKernel(Kernel):
    """A `Kernel` of (x - low) scale: what a kernel machine that learned from scaled features gives for unscaled ones.

    Parameters
    ----------
    support, weights, bias, gamma
        As for `Kernel`. The support vectors are scaled already.
    low, scale : float64 arrays of shape (n_features,)
        A feature whose scale is 0 is ignored.

    Examples
    --------
    >>> encoder = ScaledKernel(
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

    low: Annotated[NDArray[np.float64], ("features",)]
    scale: Annotated[NDArray[np.float64], ("features",)]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return super()._scores((X - self.low) * self.scale)

    def _check_values(self) -> None:
        super()._check_values()
        if (self.scale < 0).any():
            raise ValueError(f"the array 'scale' must not be negative. Got {self.scale.min():g}.")
