"""``hash_function="auto"``: finds the hash function that suits the data by trying each on a sample.

No hash function is best everywhere. Posterior bits lead with many labels and few rows per label, trees lead where
classes are not linearly separable. Rules of thumb (the number of labels, the accuracy of single bits, shorter codes)
choose wrongly, so the trial is the real thing in small: at most 4,000 rows, a fifth of them held out, codes of the full
length, and the mean average precision among rows that were held out. It depends on the data and the seed only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from hashgrove.encoders import Encoder
from hashgrove.functions import BoostedTrees, Learner, PosteriorBits
from hashgrove.metrics import evaluate
from hashgrove.runtime.estimators import describe
from hashgrove.runtime.sharing import sharing
from hashgrove.supervision import Supervision

__all__ = ["Candidate", "Choice", "Trial", "candidates", "choose"]

SAMPLE_ROWS = 4000  # of the trial
HELD_OUT = 0.2
MORE_ROWS = 2000  # that were not in the sample; they join the held-out rows
LEAST_ROWS = 50  # with fewer rows there is nothing to try
DECISIVE_LEAD = 0.02  # if the first hash function leads the second by more than this, the others are not tried
TRIAL_SHARE = 0.5  # of the trees and of the anchors that a trial uses

Fit = Callable[[Learner, NDArray[Any], Supervision], Encoder]

log = logging.getLogger("hashgrove")


@dataclass(frozen=True)
class Trial:
    """A hash function that was tried, and the mean average precision on held-out rows."""

    hash_function: str
    map: float


@dataclass(frozen=True)
class Choice:
    """A chosen hash function, and why it was chosen.

    Attributes
    ----------
    hash_function : Learner
    trials : tuple of Trial
        In the order in which they were tried; empty if there was no trial.
    n_rows, n_held_out : int
        Number of rows that were trained on in a trial, and of rows that were searched.
    why : str
        One sentence.
    """

    hash_function: Learner
    trials: tuple[Trial, ...]
    n_rows: int
    n_held_out: int
    why: str

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "hash_function": describe(self.hash_function),
            "trials": [{"hash_function": trial.hash_function, "map": round(trial.map, 4)} for trial in self.trials],
            "n_rows": self.n_rows,
            "n_held_out": self.n_held_out,
            "why": self.why,
        }

    def __str__(self) -> str:
        lines = [f"{trial.map:.4f}  {trial.hash_function}" for trial in self.trials]
        return "\n".join([f"chosen: {describe(self.hash_function)}", self.why, *lines])


@dataclass(frozen=True)
class Candidate:
    """A hash function to try, and by how much its mean average precision must lead to be worth its encoding time."""

    hash_function: Learner
    lead: float = 0.0


def candidates() -> tuple[Candidate, ...]:
    """The hash functions that are tried for labels and tags; the first one wins a draw."""
    return (
        Candidate(PosteriorBits()),
        Candidate(BoostedTrees(start="linear")),
        Candidate(BoostedTrees.paper(start="linear", features_per_node=32)),
        Candidate(BoostedTrees(start="kernel"), lead=0.01),
    )


def choose(fit: Fit, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Choice:
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
    """
    if not supervision.has_labels:
        return Choice(BoostedTrees(start="linear"), (), 0, 0, "Pairs have no labels, which posterior bits need.")
    order = rng.permutation(len(X))
    sample, others = order[:SAMPLE_ROWS], order[SAMPLE_ROWS : SAMPLE_ROWS + MORE_ROWS]
    n_out = int(HELD_OUT * len(sample))
    held_out, trained = np.sort(np.concatenate([sample[:n_out], others])), np.sort(sample[n_out:])
    if len(sample) < LEAST_ROWS or not supervision.subset(trained).has_pairs():
        return Choice(PosteriorBits(), (), 0, 0, f"There are too few rows for a trial: {len(X)}.")
    if not supervision.subset(held_out).has_pairs():
        why = "The held-out rows have no similar or no dissimilar pair, so nothing can be measured."
        return Choice(PosteriorBits(), (), 0, 0, why)
    tried = candidates()
    with sharing():
        trials = _try_all(fit, [candidate.hash_function for candidate in tried], X, supervision, trained, held_out)
    best = int(np.argmax([trial.map - candidate.lead for trial, candidate in zip(trials, tried, strict=False)]))
    why = f"It has the highest mean average precision among {len(held_out):,} rows that the trial had not seen."
    if trials[best].map < max(trial.map for trial in trials):
        why = "It is nearly as good as a hash function that takes longer to encode."
    choice = Choice(tried[best].hash_function, tuple(trials), len(trained), len(held_out), why)
    log.info("hash_function='auto': %s", choice)
    return choice


def _try_all(
    fit: Fit,
    learners: Sequence[Learner],
    X: NDArray[Any],
    supervision: Supervision,
    trained: NDArray[np.int64],
    held_out: NDArray[np.int64],
) -> list[Trial]:
    """Learn with each hash function and search the held-out rows."""
    rows, known, searched = X[trained], supervision.subset(trained), X[held_out]  # the same objects in every trial
    labels, options = supervision.subset(held_out).evaluation_labels()
    trials: list[Trial] = []
    for learner in learners:
        if len(trials) == 2 and trials[0].map - trials[1].map > DECISIVE_LEAD:
            break  # where posterior bits lead trees so far, other trees do not catch up
        started = time.perf_counter()
        codes = fit(_smaller(learner), rows, known).encode(searched)
        report = evaluate(
            codes, codes, y_queries=labels, y_database=labels, k=10, exclude_self=True, knn=None, **options
        )
        trials.append(Trial(describe(learner), report.map))
        log.info("trial of %s: MAP %.4f in %.1f s", describe(learner), report.map, time.perf_counter() - started)
    return trials


def _smaller(learner: Learner) -> Learner:
    """The same learner with fewer trees and anchors, for a trial."""
    sizes = {name: getattr(learner, name, None) for name in ("n_trees", "n_anchors")}
    fewer = {name: max(1, int(size * TRIAL_SHARE)) for name, size in sizes.items() if size is not None}
    return clone(learner).set_params(**fewer) if fewer else learner
