"""Trials of hash functions on the same rows, in threads or on other machines; `hashgrove.choosing` compares them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.functions import HashFunction
from hashgrove.metrics import Report, VectorReport, evaluate, evaluate_vectors
from hashgrove.runtime.estimators import describe
from hashgrove.runtime.executors import current_executor
from hashgrove.runtime.threads import beside
from hashgrove.supervision import Supervision

__all__ = ["NAMES", "Contest", "Fit"]

K = 10
NAMES = {"map": "mean average precision", "precision@10": "precision@10"}

Fit = Callable[[HashFunction, NDArray[Any], Supervision], Encoder]

log = logging.getLogger("hashgrove")


@dataclass(frozen=True, eq=False)
class Contest:
    """Settings and rows that all trials have in common.

    Attributes
    ----------
    fit : function
        Learns an encoder of the full length: ``fit(learner, X, supervision)``. It may be sent to another process.
    rows, known
        The rows to learn from, and what is known about them.
    searched, labels, options
        The rows that are searched, and their labels and options as `hashgrove.evaluate` takes them.
    metric : {"map", "precision@10"}
    n_jobs : int or None
        Number of threads.
    """

    fit: Fit
    rows: NDArray[Any]
    known: Supervision
    searched: NDArray[Any]
    labels: Any
    options: dict[str, Any]
    metric: str
    n_jobs: int | None

    def measure(self, learner: HashFunction) -> NDArray[np.float64]:
        """The values of the queries for codes of a hash function."""
        started = time.perf_counter()
        report = self.report(self.fit(learner, self.rows, self.known))
        found = report.average_precision if self.metric == "map" else report.query_precision
        found = found[~np.isnan(found)]  # of the same queries in every trial
        seconds = time.perf_counter() - started
        log.info("trial of %s: %s %.4f in %.1f s", describe(learner), NAMES[self.metric], found.mean(), seconds)
        return found

    def report(self, encoder: Encoder) -> Report | VectorReport:
        """Each row searched among the others, by what codes state or, if they do not decode, by distance."""
        codes = encoder.encode(self.searched, n_jobs=self.n_jobs)
        labels = {"y_queries": self.labels, "y_database": self.labels}
        options = {"k": K, "exclude_self": True, "n_jobs": self.n_jobs} | labels | self.options
        if encoder.decoder is None:
            return evaluate(codes, codes, knn=None, **options)
        queries = encoder.as_queries(self.searched, n_jobs=self.n_jobs).probabilities
        return evaluate_vectors(encoder.decoder.decode(codes), queries, metric="dot", **options)

    def measure_all(
        self, learners: Sequence[HashFunction], *, say: Callable[[str], object]
    ) -> list[NDArray[np.float64]]:
        """The same for several hash functions, side by side: in threads, or by the executor of the fit.

        ``say`` gets a line when a trial begins.
        """

        def announced(learner: HashFunction) -> HashFunction:
            say(f"trying {describe(learner)} on a sample")
            return learner

        if (executor := current_executor()) is not None:
            return list(executor.map(Contest.measure, map(announced, learners), prepare=_as_it_is, rows=self))
        with beside(n_jobs=self.n_jobs) as start:
            found = [start(lambda learner: self.measure(announced(learner)), learner) for learner in learners]
            return [result() for result in found]


def _as_it_is(contest: Contest, *, n_jobs: int | None) -> Contest:
    return contest
