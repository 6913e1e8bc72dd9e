"""Step 1 of Algorithm 1: infers the values of one bit after the other, given those of the bits before.

Of all rows or, where there are many rows with class labels, of a sample of them; once for all fits of a trial.
"""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove import losses
from hashgrove.inference import BinaryQuadratic, PairDistances, Solver
from hashgrove.runtime.streams import substream
from hashgrove.supervision import Affinity

__all__ = [
    "AnyStepOne",
    "InferredBits",
    "Objective",
    "PackedSigns",
    "ReadStepOne",
    "SampledStepOne",
    "StepOne",
    "Target",
]


class Objective(NamedTuple):
    """Mean loss over the pairs with a bit, and without it but still divided by the number of bits including it."""

    after: float
    before: float


class PackedSigns:
    """An object whose int8 arrays, of -1 and +1, take one bit per value when it is sent to another process."""

    def __getstate__(self) -> dict[str, Any]:
        is_signs = {name for name, value in vars(self).items() if getattr(value, "dtype", None) == np.int8}
        lengths = {name: len(vars(self)[name]) for name in is_signs}
        return vars(self) | {name: np.packbits(vars(self)[name] > 0) for name in is_signs} | {"lengths": lengths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, length in state.pop("lengths").items():
            state[name] = np.where(np.unpackbits(state[name], count=length), 1, -1).astype(np.int8)
        vars(self).update(state)


@dataclass(frozen=True, eq=False)
class Target(PackedSigns):
    """The result of step 1 for one bit, which is all that step 2 needs to know about it.

    Attributes
    ----------
    bit : int
        Number of the bit.
    z : int8 array of shape (n,)
        The inferred values, -1 or +1.
    weights : float64 array of shape (n,)
        How much each point matters for this bit: sum_j |a_ij|, with mean 1.
    rng : Generator
        The random stream of this bit.
    seconds : float
        Time that step 1 took.
    """

    bit: int
    z: NDArray[np.int8]
    weights: NDArray[np.float64] | None
    rng: np.random.Generator
    seconds: float


class StepOne:
    """Step 1: infers the values of one bit after the other, given those of the bits before.

    Parameters
    ----------
    affinity : Affinity
        The pairs that the loss is summed over.
    loss : Loss
    solver : Solver
    n_bits : int
        The final number of bits.
    loss_length : {"current", "final"}
        Number of bits that the loss divides distances by: those so far, or the final number.
    weighted : bool
        Whether step 2 weights each point by sum_j |a_ij|; otherwise by ``importance``.
    importance : float64 array of shape (n,), optional
        How much each point counts.
    seed : int
        Each bit has a random stream that depends on this seed and on the number of the bit only.
    n_jobs : int, optional
        Number of threads.
    """

    def __init__(
        self,
        affinity: Affinity,
        *,
        loss: losses.Loss,
        solver: Solver,
        n_bits: int,
        loss_length: str = "current",
        weighted: bool = True,
        importance: NDArray[np.float64] | None = None,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.affinity, self.loss, self.solver, self.n_bits = affinity, loss, solver, n_bits
        self.loss_length, self.weighted, self.importance = loss_length, weighted, importance
        self._rng = np.random.default_rng(seed)
        self._state = solver.prepare(affinity, substream(self._rng, 1))
        self._pair_weights = None if importance is None else importance / importance.max()
        self._distances = PairDistances(affinity, n_bits=n_bits, weights=self._pair_weights, n_jobs=n_jobs)

    @property
    def n_known(self) -> int:
        """Number of bits so far."""
        return self._distances.n_bits

    def infer(self) -> Target:
        """Infer the values of the next bit: min z'Az (equation 9)."""
        r, started = self.n_known, time.perf_counter()
        rng = substream(self._rng, 2, r)
        length = self.n_bits if self.loss_length == "final" else r + 1
        coefficients = losses.coefficients(self.loss, length)  # Proposition 1
        problem = BinaryQuadratic(self.affinity, self._distances.values, coefficients, self._pair_weights)
        z = self.solver.solve(self._state, problem, rng)
        weights = problem.weights() if self.weighted else self.importance
        return Target(r, z, weights, rng, time.perf_counter() - started)

    def add(self, bit: NDArray[np.int8]) -> Objective:
        """Add the values of the next bit, those that the bits after it will see."""
        tables = losses.loss_tables(self.loss, self.n_known + 1)
        before = self._distances.mean(*tables)
        self._distances.add_bit(bit)
        return Objective(after=self._distances.mean(*tables), before=before)


class InferredBits:
    """The bits that step 1 infers, each after the inferred values of those before it, for several readers.

    A bit is inferred once, by the reader that asks for it first.

    Parameters
    ----------
    step_one : StepOne
        With weights, for the readers that want them.
    """

    def __init__(self, step_one: StepOne) -> None:
        self.step_one = step_one
        self._bits: list[tuple[Target, Objective]] = []
        self._lock = threading.Lock()

    def bit(self, r: int) -> tuple[Target, Objective]:
        """Bit r, and the objective with it."""
        with self._lock:
            while len(self._bits) <= r:
                target = self.step_one.infer()
                self._bits.append((target, self.step_one.add(target.z)))
        return self._bits[r]


class ReadStepOne:
    """Step 1 of a fit that reads its bits from `InferredBits`, with the methods of `StepOne`.

    Parameters
    ----------
    bits : InferredBits
    n_bits : int
        The final number of bits of this fit.
    weighted : bool
        As in `StepOne`.
    """

    def __init__(self, bits: InferredBits, *, n_bits: int, weighted: bool) -> None:
        self._bits, self.n_bits, self._weighted, self.n_known = bits, n_bits, weighted, 0

    def infer(self) -> Target:
        """The next bit, with a random stream of its own."""
        target, _ = self._bits.bit(self.n_known)
        weights = target.weights if self._weighted else self._bits.step_one.importance
        return replace(target, rng=copy.deepcopy(target.rng), weights=weights)

    def add(self, bit: NDArray[np.int8]) -> Objective:
        """Go on to the bit after it; ``bit`` has the inferred values."""
        _, objective = self._bits.bit(self.n_known)
        self.n_known += 1
        return objective


class SampledStepOne:
    """Step 1 on a sample of the rows, for class labels: other rows get the values of most sampled rows of their class.

    Of many rows of a class nearly all get the same value anyway (docs/scale.md has the figures), and what step 1 takes
    no longer grows with the rows. The methods are those of `StepOne`, with values for all rows.

    Parameters
    ----------
    step_one : StepOne
        Of the sampled rows.
    classes : int64 array of shape (n,)
        The class of each row, from 0.
    chosen : array of row numbers
        The sample, with rows of every class.
    """

    def __init__(self, step_one: StepOne, classes: NDArray[np.int64], chosen: NDArray[np.intp]) -> None:
        self._step_one, self._classes, self._chosen = step_one, classes, chosen
        self._sampled = classes[chosen]
        self._sizes = np.maximum(np.bincount(self._sampled, minlength=int(classes.max()) + 1), 1)
        self.n_bits = step_one.n_bits

    @property
    def n_known(self) -> int:
        """Number of bits so far."""
        return self._step_one.n_known

    def infer(self) -> Target:
        """Infer the values of the next bit for the sample; the other rows follow their classes."""
        found = self._step_one.infer()
        z = np.where(self._means(found.z) > 0, np.int8(1), np.int8(-1))[self._classes]
        z[self._chosen] = found.z
        weights = None
        if found.weights is not None:
            weights = self._means(found.weights)[self._classes]
            weights[self._chosen] = found.weights
            weights /= weights.mean()
        return replace(found, z=z, weights=weights)

    def add(self, bit: NDArray[np.int8]) -> Objective:
        """Add the values of the next bit; the objective is that of the sample."""
        return self._step_one.add(bit[self._chosen])

    def _means(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The mean of the values of the sampled rows of each class."""
        return np.bincount(self._sampled, weights=values, minlength=len(self._sizes)) / self._sizes


AnyStepOne = StepOne | SampledStepOne | ReadStepOne
