"""Algorithm 1 of the paper: for each bit, infer the best values, then learn a function that gives them.

Lin, Shen & van den Hengel, "Supervised Hashing Using Graph Cuts and Boosted Decision Trees", TPAMI 2015.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import losses
from hashgrove.functions import BitRecord, LearnedBits, Learner
from hashgrove.inference import BinaryQuadratic, PairDistances, Solver, as_solver
from hashgrove.runtime.streams import substream
from hashgrove.supervision import Supervision

if TYPE_CHECKING:
    from hashgrove.fasthash import FastHash

__all__ = ["TwoStep", "warn_of_constant_bits"]


@dataclass(frozen=True)
class TwoStep:
    """Algorithm 1 with a loss, a solver of step 1 and a learner of step 2.

    The attributes are parameters of `hashgrove.FastHash`, which describes them.
    """

    loss: losses.Loss
    solver: Solver
    learner: Learner
    n_similar: int | None
    n_dissimilar: int | None
    stagewise: bool
    weighted: bool
    loss_length: str
    n_jobs: int | None

    @classmethod
    def of(cls, hasher: FastHash, learner: Learner, *, n_bits: int) -> TwoStep:
        """Algorithm 1 with the parameters of a FastHash; where a flag is None, with what suits the hash function."""

        def flag(name: str) -> bool:
            value = getattr(hasher, name)
            return bool(getattr(learner, name, True) if value is None else value)

        return cls(
            loss=losses.check_loss(hasher.loss, n_bits),
            solver=as_solver(hasher.inference),
            learner=learner,
            n_similar=hasher.n_similar,
            n_dissimilar=hasher.n_dissimilar,
            stagewise=flag("stagewise"),
            weighted=flag("weighted"),
            loss_length=hasher.loss_length,
            n_jobs=hasher.n_jobs,
        )

    def learn(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        learned: LearnedBits,
        *,
        n_bits: int,
        repeat: bool,
        after_each: Callable[[BitRecord], None],
    ) -> list[NDArray[np.int8]]:
        """Learn the bits from ``len(learned)`` to ``n_bits``, and add each to ``learned``.

        Parameters
        ----------
        X, supervision
            The training rows, and what is known about them.
        learned : LearnedBits
            The bits of an earlier fit, or none.
        n_bits : int
        repeat : bool
            Whether to infer the earlier bits again if not ``stagewise``. If not, what they give stands in for them.
        after_each : callable
            Called with the record of each bit after it was added.

        Returns
        -------
        inferred : list of int8 arrays of shape (n,)
            The inferred values of all bits. (Of earlier bits that are not repeated, what later bits see of them.)
        """
        rng = np.random.default_rng(learned.seed)
        affinity = supervision.affinity(
            n_similar=self.n_similar, n_dissimilar=self.n_dissimilar, random_state=learned.seed, n_jobs=self.n_jobs
        )
        data = self.learner.prepare(
            X, substream(rng, 0), supervision=supervision, earlier=learned.encoder, n_jobs=self.n_jobs
        )
        state = self.solver.prepare(affinity, substream(rng, 1))
        importance = None if supervision.weights is None else supervision.weights / supervision.weights.max()
        distances = PairDistances(affinity, n_bits=n_bits, weights=importance, n_jobs=self.n_jobs)

        def problem_of(r: int) -> BinaryQuadratic:
            length = n_bits if self.loss_length == "final" else r + 1
            return BinaryQuadratic(affinity, distances.values, losses.coefficients(self.loss, length), importance)

        inferred: list[NDArray[np.int8]] = []
        for r, bit in enumerate(learned.bits):
            again = repeat and not self.stagewise
            inferred.append(self.solver.solve(state, problem_of(r), substream(rng, 2, r)) if again else bit)
            distances.add_bit(inferred[-1])

        for r in range(len(learned), n_bits):
            stream = substream(rng, 2, r)
            started = time.perf_counter()
            problem = problem_of(r)
            z = self.solver.solve(state, problem, stream)  # Step 1
            weights = problem.weights() if self.weighted else supervision.weights
            ended_inference = time.perf_counter()
            encoder, bit = self.learner.learn(data, z, weights, stream)  # Step 2
            ended = time.perf_counter()
            seen = bit if self.stagewise else z
            tables = losses.loss_tables(self.loss, r + 1)
            before = distances.mean(*tables)
            distances.add_bit(seen)  # in Algorithm 1, the real output feeds the next bit
            record = BitRecord(
                bit=r,
                objective=distances.mean(*tables),
                objective_before=before,
                objective_of="learned bits" if self.stagewise else "inferred bits",
                training_error=float((bit != z).mean()),
                ones=float((bit > 0).mean()),
                seconds_inference=ended_inference - started,
                seconds_learning=ended - ended_inference,
                hash_function=type(self.learner).__name__,
            )
            inferred.append(z)
            learned.add(encoder, seen, record)
            after_each(record)
        return inferred


def warn_of_constant_bits(history: Sequence[BitRecord]) -> None:
    """Warn if more than half of the bits are the same for all points."""
    constant = sum(record.ones in (0, 1) for record in history)
    if 2 * constant > len(history):
        warnings.warn(
            f"{constant} of {len(history)} bits are the same for all points. More bits do not lower the loss: "
            "use fewer bits.",
            stacklevel=6,
        )
