"""Step 1: the best values of one bit, min z'Az over z in {-1, +1}^n (section 3 of the paper).

A solver has ``prepare(affinity, rng)``, called once a fit, and ``solve(state, problem, rng)``, called once a bit.
``SOLVERS`` names those that `hashgrove.FastHash` takes by name.
"""

from hashgrove.inference.graph_cut import ICM, BlockGraphCut
from hashgrove.inference.quadratic import BinaryQuadratic, PairDistances
from hashgrove.inference.spectral import Spectral

__all__ = ["ICM", "SOLVERS", "BinaryQuadratic", "BlockGraphCut", "PairDistances", "Spectral"]

SOLVERS = {"block-gc": BlockGraphCut, "icm": ICM, "spectral": Spectral}
