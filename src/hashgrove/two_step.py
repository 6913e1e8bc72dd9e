"""Algorithm 1 of the paper: for each bit, infer its values (step 1), then learn a function that gives them (step 2).

Lin, Shen & van den Hengel, "Supervised Hashing Using Graph Cuts and Boosted Decision Trees", TPAMI 2015.

`hashgrove.step_one` knows the bits so far and infers the next one. `two_step` is the loop over the bits. It knows no
estimator: `hashgrove.FastHash` consumes its bits, and decides what happens after each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, tee
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.functions import BatchLearner, HashFunction, JointLearner, Learner, StartingLearner
from hashgrove.step_one import AnyStepOne, Objective, PackedSigns, Target

__all__ = ["BitRecord", "NewBits", "local_calls", "two_step"]

BATCH = 64  # bits that a learner of batches learns together
BATCH_VALUES = 2**23  # of bits that are started together, over all rows

Execute = Callable[[Callable[[Any, Target], Any], Iterable[Target]], Iterable[Any]]


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


def two_step(
    step_one: AnyStepOne,
    learner: HashFunction,
    prepared: Callable[[], Any],
    *,
    stagewise: bool = True,
    execute: Execute | None = None,
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
    execute : function, optional
        Carries out independent pieces of work: ``execute(learn, targets)`` gives ``learn(data, target)`` for each
        target, in order, with ``data`` the result of ``learner.prepare``. By default they are learned in this thread,
        one by one.
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
        pieces, again = tee(_inferred_bits(step_one))  # Step 1 needs nothing of step 2
        learn, targets = partial(_learn, learner), (target for target, _ in pieces)
        here = (call() for call in local_calls(learner, prepared, targets))
        functions = here if execute is None else execute(learn, targets)
        for function, (target, objective) in zip(functions, again, strict=True):
            yield _learned(target, function, objective, "inferred bits")


def _in_batch(learner: BatchLearner, data: Any, batch: Sequence[tuple[Target, Objective]]) -> Iterator[NewBits]:
    """Bits whose hash functions do not depend on each other, learned in the same passes over the rows."""
    started = time.perf_counter()
    learned = learner.learn_batch(data, np.stack([target.z for target, _ in batch]))
    seconds = (time.perf_counter() - started) / len(batch)
    for (target, objective), (encoder, output) in zip(batch, learned, strict=True):
        yield _learned(target, _Function(encoder, output, seconds, type(learner).__name__), objective, "inferred bits")


def _all_at_once(
    step_one: AnyStepOne, learner: JointLearner, prepared: Callable[[], Any], *, stagewise: bool
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


def _inferred_bits(step_one: AnyStepOne) -> Iterator[tuple[Target, Objective]]:
    """The remaining bits, each inferred after the inferred values of those before it."""
    while step_one.n_known < step_one.n_bits:
        target = step_one.infer()
        yield target, step_one.add(target.z)


@dataclass(frozen=True, eq=False)
class _Function(PackedSigns):
    """The hash function of one bit, what it gives for the training points, and how it was learned."""

    encoder: Encoder
    output: NDArray[np.int8]
    seconds: float
    learner: str


def _learn(learner: Learner, data: Any, target: Target) -> _Function:
    started = time.perf_counter()
    encoder, output = learner.learn(data, target.z, target.weights, target.rng)
    return _Function(encoder, output, time.perf_counter() - started, type(learner).__name__)


def local_calls(
    learner: Learner, prepared: Callable[[], Any], targets: Iterable[Target]
) -> Iterator[Callable[[], _Function]]:
    """Calls that learn the hash functions of these bits in this process, by any thread and in any order.

    A `StartingLearner` starts many bits before the first of their calls is given. Learned one by one, say in other
    processes, they become the same.
    """
    targets = iter(targets)
    if not (isinstance(learner, StartingLearner) and learner.starts_together):
        for target in targets:
            yield partial(_learn_prepared, learner, prepared, target)
        return
    for first in targets:
        size = max(1, min(BATCH, BATCH_VALUES // len(first.z)))
        batch = [first, *islice(targets, size - 1)]
        data, started = prepared(), time.perf_counter()
        found = learner.start_bits(data, np.stack([target.z for target in batch]), [t.weights for t in batch])
        seconds = (time.perf_counter() - started) / len(batch)
        for target, one in zip(batch, found, strict=True):
            yield partial(_learn_started, learner, data, one, target, seconds)


def _learn_prepared(learner: Learner, prepared: Callable[[], Any], target: Target) -> _Function:
    return _learn(learner, prepared(), target)


def _learn_started(learner: StartingLearner, data: Any, one: Any, target: Target, seconds: float) -> _Function:
    started = time.perf_counter()
    encoder, output = learner.learn_started(data, one, target.z, target.weights, target.rng)
    return _Function(encoder, output, seconds + time.perf_counter() - started, type(learner).__name__)


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
