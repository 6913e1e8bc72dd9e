"""``hash_function="auto"``: finds the hash function that suits the data by trying each on a sample.

No hash function is best everywhere. Posterior bits lead with many labels and few rows per label, trees lead where
classes are not linearly separable. Rules of thumb (the number of labels, the accuracy of single bits, shorter codes)
choose wrongly, so the trial is the real thing in small: at most 4,000 rows, a part of them held out, codes of the full
length, and the measure that the user asked for among rows that were held out. Codes that decode are tried if items
will be ranked by what their codes state; their ranking by Hamming distance is behind that of other codes.

All candidates answer the same queries, so their differences are paired: one displaces a safer one only if it leads by
more than the standard error of the difference. The choice depends on the data and the seed only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from hashgrove.functions import BoostedTrees, DecodableBits, HashFunction, PosteriorBits
from hashgrove.metrics import Difference
from hashgrove.runtime.estimators import describe
from hashgrove.runtime.html import html_table
from hashgrove.runtime.sharing import sharing
from hashgrove.supervision import Supervision, draw_groups
from hashgrove.trials import NAMES, Contest, Fit

__all__ = ["Candidate", "Choice", "Trial", "candidates", "choose"]

SAMPLE_ROWS = 4000  # of the trial
MORE_ROWS = 2000  # that were not in the sample; they join the held-out rows
KERNEL_ROWS = 200_000  # with more, Gaussian features of all rows take too long
LEAST_ROWS = 50  # with fewer rows there is nothing to try
HELD_OUT = 2  # of each `GROUP` rows
GROUP, SMALL_GROUP = 10, 5  # the latter for classes with fewer than `GROUP` rows
DECISIVE_LEAD = 0.01  # if trees are behind the first candidate by more than this, no other trees are tried
TRIAL_SHARE = 0.5  # of the trees and of the anchors that a trial uses at first

log = logging.getLogger("hashgrove")


@dataclass(frozen=True)
class Trial:
    """A hash function that was tried, and what it reached on held-out rows.

    Attributes
    ----------
    hash_function : str
    value : float
        The measure, mean average precision or precision@10.
    error : float
        Standard error of the value over queries.
    n_queries : int
        Number of held-out rows that were searched for.
    """

    hash_function: str
    value: float
    error: float
    n_queries: int

    @classmethod
    def of(cls, hash_function: HashFunction, values: NDArray[np.float64]) -> Trial:
        """The trial of a hash function that reached these values for its queries."""
        n = len(values)
        error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.5
        return cls(describe(hash_function), float(values.mean()), error, n)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self) | {"value": round(self.value, 4), "error": round(self.error, 4)}

    def __str__(self) -> str:
        return f"{self.value:.4f} +- {self.error:.4f}  {self.hash_function}"


@dataclass(frozen=True)
class Choice:
    """A chosen hash function, and why it was chosen.

    Attributes
    ----------
    hash_function : HashFunction
    trials : tuple of Trial
        In the order in which they were tried; empty if there was no trial.
    n_rows, n_held_out : int
        Number of rows that were trained on in a trial, and of rows that were searched.
    why : str
        One sentence.
    metric : {"map", "precision@10"}
        What was measured.
    """

    hash_function: HashFunction
    trials: tuple[Trial, ...]
    n_rows: int
    n_held_out: int
    why: str
    metric: str = "map"

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "hash_function": describe(self.hash_function),
            "metric": self.metric,
            "trials": [trial.to_dict() for trial in self.trials],
            "n_rows": self.n_rows,
            "n_held_out": self.n_held_out,
            "why": self.why,
        }

    def _repr_html_(self) -> str:
        rows = [(trial.hash_function, f"{trial.value:.4f}", f"{trial.error:.4f}") for trial in self.trials]
        header = ("hash function", NAMES[self.metric], "standard error") if rows else ()
        return html_table(f"Chosen: {describe(self.hash_function)}", rows, header=header, notes=[self.why])

    def __str__(self) -> str:
        return "\n".join([f"chosen: {describe(self.hash_function)}", self.why, *map(str, self.trials)])


@dataclass(frozen=True)
class Candidate:
    """A hash function to try.

    Attributes
    ----------
    hash_function : Learner
    lead : float
        By how much it must lead to be worth its time.
    max_rows : int or None
        For how many rows at most it is tried.
    for_classes : bool
        Whether it is tried for class labels; otherwise for tags only.
    """

    hash_function: HashFunction
    lead: float = 0.0
    max_rows: int | None = None
    for_classes: bool = True

    def suits(self, supervision: Supervision) -> bool:
        """Whether it is worth a trial."""
        few_enough = self.max_rows is None or len(supervision) <= self.max_rows
        return few_enough and (self.for_classes or not supervision.exclusive)


def candidates() -> tuple[Candidate, ...]:
    """The hash functions that are tried for labels and tags, the safest first: an earlier one wins a draw."""
    return (
        Candidate(PosteriorBits()),
        Candidate(PosteriorBits(classifier="logistic"), lead=0.01),
        Candidate(BoostedTrees(start="linear")),
        Candidate(BoostedTrees.paper(start="linear", features_per_node=32), for_classes=False),
        Candidate(BoostedTrees(start="kernel"), lead=0.01, max_rows=KERNEL_ROWS),
    )


def choose(
    fit: Fit,
    X: NDArray[Any],
    supervision: Supervision,
    rng: np.random.Generator,
    *,
    metric: str = "map",
    decoded: bool = False,
    groups: NDArray[np.intp] | None = None,
    n_jobs: int | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Choice:
    """Choose a hash function for these rows.

    Parameters
    ----------
    fit : function
        Learns an encoder of the full length: ``fit(learner, X, supervision)``.
    X : array of shape (n, n_features)
    supervision : Supervision
        Pairs and triplets have no labels, so posterior bits cannot learn from them: trees are used without a trial.
    rng : Generator
        Draws the sample.
    metric : {"map", "precision@10"}
    decoded : bool
        Whether items with codes that decode will be ranked by what their codes state.
    groups : array of shape (n,), optional
        Numbers of groups of rows that are not divided between training and search.
    n_jobs : int or None
        Number of threads. With one, the hash functions are tried one after the other, otherwise side by side.
    say : function
        Gets a line when a trial begins.
    """
    if not supervision.has_labels:
        return Choice(BoostedTrees(start="linear"), (), 0, 0, "Pairs have no labels, which posterior bits need.")
    trained, held_out = _split(supervision, rng, groups)
    if len(X) < LEAST_ROWS:
        return Choice(PosteriorBits(), (), 0, 0, f"There are too few rows for a trial: {len(X)}.")
    for part, rows in (("remaining", trained), ("held-out", held_out)):
        if not supervision.subset(rows).has_pairs():
            why = f"The {part} rows have no similar or no dissimilar pair, so nothing can be measured."
            return Choice(PosteriorBits(), (), 0, 0, why)
    decoded = decoded and supervision.exclusive
    if decoded and metric == "map" and len(X) < GROUP * len(np.unique(supervision.evaluation_labels()[0])):
        why = f"With fewer than {GROUP} rows per class a trial is too small to be right about codes that decode."
        return Choice(DecodableBits(), (), 0, 0, why, metric)
    more = (Candidate(DecodableBits()),) if decoded else ()
    tried = tuple(one for one in (*candidates(), *more) if one.suits(supervision))
    labels, options = supervision.subset(held_out).evaluation_labels()
    contest = Contest(fit, X[trained], supervision.subset(trained), X[held_out], labels, options, metric, n_jobs)
    with sharing():
        values = _try_all(contest, tried, say)
    trials = tuple(Trial.of(tried[place].hash_function, found) for place, found in values.items())
    best = _best(tried, values)
    why = f"It has the highest {NAMES[metric]} among {len(held_out):,} rows that the trial had not seen."
    if values[best].mean() < max(trial.value for trial in trials):
        why = "It is nearly as good as a hash function that is less safe or takes longer to encode."
    choice = Choice(tried[best].hash_function, trials, len(trained), len(held_out), why, metric)
    log.info("hash_function='auto': %s", choice)
    return choice


def _split(
    supervision: Supervision, rng: np.random.Generator, groups: NDArray[np.intp] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the rows that a trial learns from, and of the rows that it searches.

    The rows of a sample are sorted by class, and two neighbours of each group are held out, so that most held-out rows
    have another one of their class, however few there are. With ``groups`` whole groups are held out instead.
    """
    order = rng.permutation(len(supervision))
    sample, others = order[:SAMPLE_ROWS], order[SAMPLE_ROWS : SAMPLE_ROWS + MORE_ROWS]
    group = GROUP
    if supervision.exclusive:
        classes, _ = supervision.subset(sample).evaluation_labels()
        sample = sample[np.argsort(classes, kind="stable")]
        if len(sample) < GROUP * len(np.unique(classes)):
            group = SMALL_GROUP
    is_out = np.arange(len(sample)) % group < HELD_OUT
    if groups is not None:
        is_out = draw_groups(groups[sample], HELD_OUT / group, rng)
        others = others[~np.isin(groups[others], groups[sample[~is_out]])]
    return np.sort(sample[~is_out]), np.sort(np.concatenate([sample[is_out], others]))


def _try_all(
    contest: Contest, tried: Sequence[Candidate], say: Callable[[str], object]
) -> dict[int, NDArray[np.float64]]:
    """The values of the queries for each hash function that was tried, by its place in the list."""
    values: dict[int, NDArray[np.float64]] = {}
    for batch in _batches(tried):
        learners = {place: tried[place].hash_function for place in batch}
        promising = [place for place in batch if not _is_hopeless(learners[place], tried, values)]
        found = contest.measure_all([_smaller(learners[place]) for place in promising], say=say)
        values |= dict(zip(promising, found, strict=True))
    if (close := _close_second(tried, values)) is not None:
        (values[close],) = contest.measure_all([tried[close].hash_function], say=say)
    return values


def _batches(tried: Sequence[Candidate]) -> tuple[list[int], list[int]]:
    """Places of the candidates that are always tried, and of those that are tried unless their kind is hopeless."""
    kinds = [type(candidate.hash_function) for candidate in tried]
    always = [place for place, kind in enumerate(kinds) if kind is kinds[0] or kind not in kinds[:place]]
    return always, [place for place in range(len(tried)) if place not in always]


def _is_hopeless(learner: HashFunction, tried: Sequence[Candidate], values: dict[int, NDArray[np.float64]]) -> bool:
    """Whether others of its kind were tried, and the first candidate, of another kind, leads all of them clearly.

    That is by more than `DECISIVE_LEAD`, and beyond the 95 % interval of the difference. The first candidate is a fair
    measure of trees because the linear score that they start from comes from the same regression.
    """
    kind = type(learner)
    of_kind = [found for place, found in values.items() if type(tried[place].hash_function) is kind]
    if not of_kind or kind is type(tried[0].hash_function):
        return False
    lead = Difference.of(values[0], max(of_kind, key=lambda found: float(found.mean())))
    return lead.mean > DECISIVE_LEAD and lead.low > 0


def _close_second(tried: Sequence[Candidate], values: dict[int, NDArray[np.float64]]) -> int | None:
    """The place of the best trees if posterior bits are the best, but not clearly better; otherwise None.

    A trial grows half of the trees and the fit all of them, while posterior bits are in a trial what they are in the
    fit. So where the two are close, the trees deserve a trial in full.
    """
    is_first_kind = {place: type(tried[place].hash_function) is type(tried[0].hash_function) for place in values}
    others = {place: found for place, found in values.items() if not is_first_kind[place]}
    best = _best(tried, values)
    if not others or not is_first_kind[best]:
        return None
    second = _best(tried, others)
    return None if Difference.of(values[best], values[second]).low > 0 else second


def _best(tried: Sequence[Candidate], values: dict[int, NDArray[np.float64]]) -> int:
    """The place of the best candidate; a later one must lead by more than its own lead and the standard error."""
    best, *later = sorted(values)
    for place in later:
        ahead = Difference.of(values[place], values[best])
        error = (ahead.high - ahead.low) / 4  # the interval reaches two standard errors to each side
        if ahead.mean > max(error, tried[place].lead - tried[best].lead):
            best = place
    return best


def _smaller(learner: HashFunction) -> HashFunction:
    """The same learner with fewer trees and anchors, for a trial."""
    sizes = {name: getattr(learner, name, None) for name in ("n_trees", "n_anchors")}
    fewer = {name: max(1, int(size * TRIAL_SHARE)) for name, size in sizes.items() if size is not None}
    return clone(learner).set_params(**fewer) if fewer else learner
