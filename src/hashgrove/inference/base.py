"""The contract of a solver of step 1."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hashgrove.inference.quadratic import BinaryQuadratic
from hashgrove.supervision import Affinity

__all__ = ["Solver"]


class Solver(Protocol):
    """Finds good values of one bit, given the pairs of points and the bits so far.

    Any object with these two methods can be passed as ``FastHash(inference=...)``.
    """

    def prepare(self, affinity: Affinity, rng: np.random.Generator) -> Any:
        """Check the parameters and compute what all bits share, once per fit. The result is passed to `solve`."""

    def solve(self, state: Any, problem: BinaryQuadratic, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return values of one bit, -1 or +1 for each point, for which ``problem.objective`` is small."""
