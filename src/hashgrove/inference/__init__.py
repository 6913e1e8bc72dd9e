"""Step 1: find the best values of one bit, min z'Az over z in {-1, +1}^n (section 3 of the paper).

`Solver` is the contract. ``SOLVERS`` lists the solvers that `hashgrove.FastHash` accepts by name. A new solver is one
file here and one line in that table.
"""

from typing import Any

from hashgrove.inference.base import Solver
from hashgrove.inference.graph_cut import ICM, BlockGraphCut
from hashgrove.inference.quadratic import BinaryQuadratic, PairDistances
from hashgrove.inference.spectral import Spectral
from hashgrove.runtime.parameters import ParameterError

__all__ = ["ICM", "SOLVERS", "BinaryQuadratic", "BlockGraphCut", "PairDistances", "Solver", "Spectral", "as_solver"]

SOLVERS: dict[str, type[Solver]] = {"block-gc": BlockGraphCut, "icm": ICM, "spectral": Spectral}


def as_solver(choice: Any) -> Solver:
    """Turn the name of a solver, or a solver, into a solver."""
    if isinstance(choice, str) and choice in SOLVERS:
        return SOLVERS[choice]()
    if hasattr(choice, "solve") and not isinstance(choice, type):
        return choice
    raise ParameterError("inference", f"must be one of {sorted(SOLVERS)} or a solver. Got {choice!r} instead.")
