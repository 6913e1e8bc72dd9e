"""The number of generic bits for searches among new classes, which are not in training: a trial chooses it.

Learned bits serve the trained classes, and generic bits serve the others. How many of each are best depends on the data
and on how much either search matters. The trial hides the labels of half of the classes, learns codes with several
numbers of generic bits, and searches among held-out rows: those of the other classes, and those of the hidden ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.metrics import evaluate
from hashgrove.runtime.sharing import sharing
from hashgrove.supervision import Supervision, draw_groups

__all__ = ["GenericTrial", "choose_generic_bits"]

SHARES = (0.25, 0.375, 0.5, 0.75, 1.0)  # of the bits
SAMPLE_ROWS = 3000  # of the trial
LEAST_CLASSES = 4  # with fewer there is nothing to leave out
GROUP = 3  # one row of so many is held out

Fit = Callable[[int, NDArray[Any], Supervision, NDArray[Any] | None], Encoder]

log = logging.getLogger("hashgrove")


@dataclass(frozen=True)
class GenericTrial:
    """The mean average precision that a number of generic bits reached in a trial that left classes out.

    Attributes
    ----------
    generic_bits : int
    trained : float
        Among held-out rows of the classes that were trained on.
    new : float
        Among held-out rows of the classes whose labels were hidden.
    """

    generic_bits: int
    trained: float
    new: float

    def __str__(self) -> str:
        return f"{self.generic_bits} generic bits: trained classes {self.trained:.4f}, new classes {self.new:.4f}"


def choose_generic_bits(
    fit: Fit,
    X: NDArray[Any],
    supervision: Supervision,
    others: NDArray[Any] | None,
    rng: np.random.Generator,
    *,
    n_bits: int,
    new_classes: float,
    groups: NDArray[np.intp] | None = None,
    n_jobs: int | None = None,
) -> tuple[int, tuple[GenericTrial, ...]]:
    """The number of generic bits with the highest mean of both searches, and the trials.

    Parameters
    ----------
    fit : function
        Learns an encoder: ``fit(generic_bits, X, supervision, others)``.
    X : array of shape (n, n_features)
    supervision : Supervision
        Without class labels, or with fewer than four classes, there is no trial: the number of generic bits grows with
        ``new_classes``, from a quarter of the bits to all of them.
    others : array of shape (n_others, n_features), or None
        Rows without a label. If there are some, rows of the hidden classes join them in the trial.
    rng : Generator
        Draws the rows, and the classes that are left out.
    n_bits : int
    new_classes : float
        The weight of the search for new classes; that of the search for trained ones is the rest of 1.
    groups : array of shape (n,), optional
        Numbers of groups of rows that are not divided between training and search.
    n_jobs : int or None
    """
    counts = sorted({round(share * n_bits) for share in SHARES})
    options: dict[str, Any] = {"exclude_self": True, "knn": None, "n_jobs": n_jobs}
    sample = np.sort(rng.permutation(len(X))[:SAMPLE_ROWS])
    rows, known = X[sample], supervision.subset(sample)
    parts = _split(known, rng, None if groups is None else groups[sample]) if supervision.exclusive else None
    if parts is None:
        return round(n_bits * (SHARES[0] + (1 - SHARES[0]) * new_classes)), ()
    trained, left, *searched = parts
    unknown = None if others is None else np.concatenate([others, rows[left]])
    labels, _ = known.evaluation_labels()
    given = rows[trained], known.subset(trained), unknown
    trials = []
    with sharing():
        for count in counts:
            encoder, found = fit(count, *given), []
            for part in searched:
                codes, y = encoder.encode(rows[part], n_jobs=n_jobs), labels[part]
                found.append(evaluate(codes, codes, y_queries=y, y_database=y, **options).map)
            trials.append(GenericTrial(count, *found))
            log.info("new_classes: %s", trials[-1])
    best = max(trials, key=lambda trial: (1 - new_classes) * trial.trained + new_classes * trial.new)
    return best.generic_bits, tuple(trials)


def _split(
    supervision: Supervision, rng: np.random.Generator, groups: NDArray[np.intp] | None
) -> tuple[NDArray[np.intp], ...] | None:
    """Rows to train on, other rows of hidden classes, and the held-out rows of both kinds; None if classes are few."""
    labels, _ = supervision.evaluation_labels()
    classes = rng.permutation(np.unique(labels))
    if len(classes) < LEAST_CLASSES:
        return None
    hidden = np.isin(labels, classes[: len(classes) // 2])
    place = np.empty(len(labels), np.int64)
    place[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    is_out = place % (2 * GROUP) < 2  # two neighbours, so that most of them have another one of their class
    if groups is not None:
        is_out = draw_groups(groups, 1 / GROUP, rng)
    parts = tuple(
        np.flatnonzero(mask) for mask in (~hidden & ~is_out, hidden & ~is_out, ~hidden & is_out, hidden & is_out)
    )
    measurable = all(supervision.subset(part).has_pairs() for part in (parts[0], *parts[2:]) if len(part))
    return parts if measurable and all(len(part) for part in (parts[0], *parts[2:])) else None
