"""Algorithm 1 of the paper: for each bit, infer its values (step 1), then learn a function that gives them (step 2).

Lin, Shen & van den Hengel, "Supervised Hashing Using Graph Cuts and Boosted Decision Trees", TPAMI 2015.

`StepOne` knows the bits so far and infers the next one. `two_step` is the loop over the bits. It knows no estimator:
`hashgrove.FastHash` consumes its bits, and decides what happens after each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove import losses
from hashgrove.encoders import Encoder
from hashgrove.functions import BatchLearner, HashFunction, JointLearner, Learner
from hashgrove.inference import BinaryQuadratic, PairDistances, Solver
from hashgrove.runtime.streams import substream
from hashgrove.supervision import Affinity

__all__ = ["BitRecord", "NewBits", "Objective", "SampledStepOne", "StepOne", "Target", "two_step"]

BATCH = 64  # bits that a learner of batches learns together


class Objective(NamedTuple):
    """Mean loss over the pairs with a bit, and without it but still divided by the number of bits including it."""

    after: float
    before: float


@dataclass(frozen=True)
class BitRecord:
    """The record of how one bit was learned.

    Attributes
    ----------
    bit : int
        Number of the bit, starting from 0.
    objective : float
        Mean loss over the pairs, with this bit included.
    objective_before : float
        The same with distances in the bits before this one, but still divided by the number of bits including it. The
        objective in the paper's Table 5 is that of the last bit.
    objective_of : {"learned bits", "inferred bits"}
        The bits that both are taken over: the outputs of the hash functions or, if not stagewise, the values that step
        1 inferred, without the errors of the hash functions.
    training_error : float
        Share of the training points whose learned bit differs from the inferred bit.
    ones : float
        Share of the training points whose learned bit is one; 0 or 1 means that the bit is constant.
    seconds_inference, seconds_learning : float
        Time that step 1 and step 2 took.
    hash_function : str
        The class of the learner.
    """

    bit: int
    objective: float
    objective_before: float
    objective_of: str
    training_error: float
    ones: float
    seconds_inference: float
    seconds_learning: float
    hash_function: str = ""


class NewBits(NamedTuple):
    """Bits of Algorithm 1 that were learned together: one, unless the learner learns all at once.

    Attributes
    ----------
    encoder : Encoder
        The hash functions of the bits.
    inferred, outputs : lists of int8 arrays of shape (n,)
        For each bit the values that step 1 inferred for the training points, and those that the hash function gives,
        -1 or +1.
    records : list of BitRecord
    """

    encoder: Encoder
    inferred: list[NDArray[np.int8]]
    outputs: list[NDArray[np.int8]]
    records: list[BitRecord]


@dataclass(frozen=True, eq=False)
class Target:
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
        z = np.where(self._means(found.z) > 0, 1, -1).astype(np.int8)[self._classes]
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


def two_step(
    step_one: StepOne | SampledStepOne,
    learner: HashFunction,
    prepared: Callable[[], Any],
    *,
    stagewise: bool = True,
    execute: Callable[[Callable[..., Any], Iterable[Any]], Iterable[Any]] = map,
) -> Generator[NewBits, None, None]:
    """Algorithm 1: yields the bits from ``step_one.n_known`` to ``step_one.n_bits``, one after the other.

    A `JointLearner` learns them together, from all inferred bits, and they are yielded together.

    Parameters
    ----------
    step_one : StepOne
        It may know some bits already: those of a warm start or of a checkpoint.
    learner : Learner
        Step 2.
    prepared : function
        Gives the result of ``learner.prepare``, and waits for it: step 1 needs nothing of it.
    stagewise : bool
        Whether the output of each hash function feeds the next bit, as in the paper. If not, the bits that step 1
        inferred do, and the hash functions are independent pieces of work.
    execute : function, default=map
        Applies a function to independent pieces of work and gives the results in their order. The default learns them
        in this thread, one by one.
    """
    if isinstance(learner, JointLearner):
        yield from _all_at_once(step_one, learner, prepared, stagewise=stagewise)
    elif stagewise:
        while step_one.n_known < step_one.n_bits:
            target = step_one.infer()  # Step 1
            function = _learn(learner, prepared(), target)  # Step 2
            objective = step_one.add(function.output)  # the real output feeds the next bit
            yield _learned(target, function, objective, "learned bits")
    elif isinstance(learner, BatchLearner):
        pieces = _inferred_bits(step_one)
        while batch := list(islice(pieces, BATCH)):
            yield from _in_batch(learner, prepared(), batch)
    else:
        pieces = _inferred_bits(step_one)  # Step 1 needs nothing of step 2
        for target, objective, function in execute(
            lambda piece: (*piece, _learn(learner, prepared(), piece[0])), pieces
        ):
            yield _learned(target, function, objective, "inferred bits")


def _in_batch(learner: BatchLearner, data: Any, batch: Sequence[tuple[Target, Objective]]) -> Iterator[NewBits]:
    """Bits whose hash functions do not depend on each other, learned in the same passes over the rows."""
    started = time.perf_counter()
    learned = learner.learn_batch(data, np.stack([target.z for target, _ in batch]))
    seconds = (time.perf_counter() - started) / len(batch)
    for (target, objective), (encoder, output) in zip(batch, learned, strict=True):
        yield _learned(target, _Function(encoder, output, seconds, type(learner).__name__), objective, "inferred bits")


def _all_at_once(
    step_one: StepOne | SampledStepOne, learner: JointLearner, prepared: Callable[[], Any], *, stagewise: bool
) -> Iterator[NewBits]:
    """All bits, learned together after the last one was inferred."""
    name = type(learner).__name__
    if stagewise:
        raise ValueError(f"The 'stagewise' parameter must be None or False for {name}, which learns all bits together.")
    if 0 < step_one.n_known < step_one.n_bits:
        raise ValueError(
            f"{name} learns all bits together and cannot add {step_one.n_bits - step_one.n_known} to the "
            f"{step_one.n_known} learned before. Set warm_start=False, or use another checkpoint."
        )
    pieces = list(_inferred_bits(step_one))
    if pieces:
        data, started = prepared(), time.perf_counter()
        encoder, outputs = learner.learn_all(data, np.stack([target.z for target, _ in pieces]), pieces[0][0].rng)
        seconds = (time.perf_counter() - started) / len(pieces)
        records = [
            _record(target, _Function(encoder, output, seconds, name), objective, "inferred bits")
            for (target, objective), output in zip(pieces, outputs, strict=True)
        ]
        yield NewBits(encoder, [target.z for target, _ in pieces], list(outputs), records)


def _inferred_bits(step_one: StepOne | SampledStepOne) -> Iterator[tuple[Target, Objective]]:
    """The remaining bits, each inferred after the inferred values of those before it."""
    while step_one.n_known < step_one.n_bits:
        target = step_one.infer()
        yield target, step_one.add(target.z)


class _Function(NamedTuple):
    """The hash function of one bit, what it gives for the training points, and how it was learned."""

    encoder: Encoder
    output: NDArray[np.int8]
    seconds: float
    learner: str


def _learn(learner: Learner, data: Any, target: Target) -> _Function:
    started = time.perf_counter()
    encoder, output = learner.learn(data, target.z, target.weights, target.rng)
    return _Function(encoder, output, time.perf_counter() - started, type(learner).__name__)


def _learned(target: Target, function: _Function, objective: Objective, objective_of: str) -> NewBits:
    record = _record(target, function, objective, objective_of)
    return NewBits(function.encoder, [target.z], [function.output], [record])


def _record(target: Target, function: _Function, objective: Objective, objective_of: str) -> BitRecord:
    return BitRecord(
        bit=target.bit,
        objective=objective.after,
        objective_before=objective.before,
        objective_of=objective_of,
        training_error=float((function.output != target.z).mean()),
        ones=float((function.output > 0).mean()),
        seconds_inference=target.seconds,
        seconds_learning=function.seconds,
        hash_function=function.learner,
    )
