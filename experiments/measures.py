"""Measures of a run. A new one is one entry in `MEASURES`; tables, claims and reports then know it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from experiments.datasets import Dataset
from experiments.specs import Spec
from hashgrove.codes import unpack
from hashgrove.functions import Codewords
from hashgrove.metrics import Report, evaluate
from hashgrove.two_step import BitRecord

__all__ = ["MEASURES", "Measure", "Outcome", "lacking", "measured", "peak_memory_gb", "slow_among"]

SVM_PENALTY = 0.01


@dataclass(frozen=True)
class Outcome:
    """The codes, reports and times at the end of a run, from which measures are computed.

    ``history`` has the record of each bit, and is empty for methods that keep none; ``codewords`` are the codes of the
    classes that were trained on, if the method has them. ``margins`` say how sure the hasher is of each bit of each
    query; ``by_margins`` gives the report with the bits of a query weighted by them, and ``by_paper`` is the report by
    the paper's protocol.
    """

    spec: Spec
    data: Dataset
    seed: int
    history: Sequence[BitRecord]
    codewords: Codewords | None
    codes: NDArray[np.uint8]
    queries: NDArray[np.uint8]
    margins: NDArray[Any]
    report: Report
    by_margins: Callable[[], Report]
    by_paper: Report
    fit_seconds: float
    encode_seconds: float


@dataclass(frozen=True)
class Measure:
    """A kind of figure: its title, its computation, and how it is shown and compared.

    ``of`` computes it from an `Outcome`; None means that the measure does not apply to the run. ``is_paper`` marks the
    measures that only the paper's figures have; a stored run without them was done before they were known. One that
    ``is_slow``, because real distances are ranked, is only computed for runs that show it.
    """

    title: str
    of: Callable[[Outcome], float | None]
    digits: int = 4
    lower_is_better: bool = False
    is_time: bool = False
    is_paper: bool = False
    is_slow: bool = False


def measured(outcome: Outcome, slow: Container[str]) -> dict[str, float]:
    """Compute all measures that apply to a run; of the slow ones, only those that are named."""
    wanted = {name: measure for name, measure in MEASURES.items() if not measure.is_slow or name in slow}
    values = {name: measure.of(outcome) for name, measure in wanted.items()}
    return {name: value for name, value in values.items() if value is not None}


def slow_among(names: Iterable[str]) -> list[str]:
    """Return the slow measures among some measures, sorted."""
    return sorted({name for name in names if MEASURES[name].is_slow})


def lacking(names: Iterable[str], found: Container[str], *, slow: Container[str] | None = None) -> list[str]:
    """Return the measures among ``names`` that a run has to be repeated for, since it did not store them.

    These are measures of the paper that are not in ``found``, and slow measures that were not asked for: ``slow`` are
    those that were; None means all.

    >>> lacking(["map", "paper_map"], {"map": 0.5})
    ['paper_map']
    """
    not_asked = [] if slow is None else [name for name in slow_among(names) if name not in slow]
    return [name for name in names if name not in found and (MEASURES[name].is_paper or name in not_asked)]


def peak_memory_gb() -> float:
    """Return the largest amount of memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)  # bytes on macOS, kilobytes elsewhere


def _precision_at(report: Report, depth: int) -> float:
    """Mean precision among the first items, at a depth of the curve."""
    return float(report.precision_curve[np.searchsorted(report.precision_depths, min(depth, report.n_database))])


def _labelled_map(outcome: Outcome) -> float | None:
    """MAP in a database whose labels are known: items have the code word of their class, queries their margins.

    None unless the classes of the database were trained on, by FastHash or by a linear classifier with a code book.
    """
    words, y = outcome.codewords, outcome.data.y_database
    if outcome.data.has_tags or outcome.spec.unseen is not None or words is None:
        return None
    return evaluate(
        words.of_labels(y),
        outcome.queries,
        y_queries=outcome.data.y_query,
        y_database=y,
        weights=outcome.margins,
        knn=None,
    ).map


def _svm_error(outcome: Outcome) -> float | None:
    """Error on the queries of one-vs-all linear SVMs that learn the classes of the database from bits of -1 and +1."""
    if not outcome.spec.classify:
        return None
    bits = outcome.spec.bits
    X, X_query = (np.where(unpack(codes, n_bits=bits), 1.0, -1.0) for codes in (outcome.codes, outcome.queries))
    model = LinearSVC(C=SVM_PENALTY, dual=False, random_state=outcome.seed).fit(X, outcome.data.y_database)
    return float(np.mean(model.predict(X_query) != outcome.data.y_query))


def _over_bits(function: Callable[[Sequence[BitRecord]], Any]) -> Callable[[Outcome], float | None]:
    """Make a measure of the record of all bits, for methods that keep one."""
    return lambda outcome: float(function(outcome.history)) if outcome.history else None


def _seconds(title: str, of: Callable[[Outcome], float | None]) -> Measure:
    return Measure(title, of, digits=1, lower_is_better=True, is_time=True)


MEASURES: Mapping[str, Measure] = {
    "map": Measure("MAP", lambda o: o.report.map),
    "precision": Measure("precision@100", lambda o: o.report.precision_at_k),
    "paper_map": Measure("the paper's MAP", lambda o: o.by_paper.map, is_paper=True),
    "paper_pr_area": Measure("the paper's PR area", lambda o: o.by_paper.pr_area, is_paper=True),
    "precision_at_10": Measure("precision@10", lambda o: _precision_at(o.report, 10)),
    "macro_map": Measure("macro MAP", lambda o: o.report.macro_map),
    "distinct": Measure("distinct codes", lambda o: float(o.report.n_distinct), digits=0),
    "pr_area": Measure("PR area", lambda o: o.report.pr_area),
    "map_by_margins": Measure("MAP by margins", lambda o: o.by_margins().map, is_slow=True),
    "precision_by_margins": Measure("precision@100 by margins", lambda o: o.by_margins().precision_at_k, is_slow=True),
    "labelled_map": Measure("MAP, labelled database", _labelled_map, is_slow=True),
    "knn_error": Measure("50-NN error", lambda o: o.report.knn_error, lower_is_better=True),
    "svm_error": Measure("SVM error", _svm_error, lower_is_better=True),
    "objective": Measure("objective", _over_bits(lambda bits: bits[-1].objective), lower_is_better=True),
    "paper_objective": Measure(
        "the paper's objective",
        _over_bits(lambda bits: bits[-1].objective_before),
        lower_is_better=True,
        is_paper=True,
    ),
    "training_error": Measure(
        "mean training error per bit",
        _over_bits(lambda bits: np.mean([bit.training_error for bit in bits])),
        lower_is_better=True,
    ),
    "fit_seconds": _seconds("training (s)", lambda o: o.fit_seconds),
    "encode_seconds": _seconds("encoding (s)", lambda o: o.encode_seconds),
    "inference_seconds": _seconds("step 1 (s)", _over_bits(lambda bits: sum(b.seconds_inference for b in bits))),
    "learning_seconds": _seconds("step 2 (s)", _over_bits(lambda bits: sum(b.seconds_learning for b in bits))),
    "peak_memory_gb": Measure("peak memory (GB)", lambda o: peak_memory_gb(), digits=2, lower_is_better=True),
}
