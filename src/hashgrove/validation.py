"""Validation: how good the codes of a fit are on rows that it has not seen, beside what needs no labels.

Users should learn how good their codes are before they trust them. `validate` measures the codes on held-out rows, and
beside them the vectors themselves (cosine similarity) and codes of the same length that are learned without labels
(ITQ). Codes that lose against one of these are not worth their labels, and a warning says so.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing, check_consistent_length

from hashgrove.baselines import ITQ, LSH
from hashgrove.hasher import Hasher
from hashgrove.metrics import count_distinct, evaluate, evaluate_vectors
from hashgrove.runtime.parameters import Number
from hashgrove.supervision import MIN_SHARED, Supervision, Target

__all__ = ["Measured", "Validation", "hold_out", "validate", "validated_fit"]

K = 10
MAX_ROWS = 10_000  # that are searched
CODES, VECTORS = "these codes", "float vectors, cosine"


@dataclass(frozen=True)
class Measured:
    """One line of the comparison; ``distinct`` is None for vectors."""

    method: str
    n_bytes: int
    map: float
    precision_at_10: float
    distinct: int | None


@dataclass(frozen=True)
class Validation:
    """How good the codes are on held-out rows, each of which was searched for among the others.

    Attributes
    ----------
    rows : tuple of Measured
        The codes first, then what they are compared with.
    n_rows : int
        Number of held-out rows.
    """

    rows: tuple[Measured, ...]
    n_rows: int

    @property
    def map(self) -> float:
        """Mean average precision of the codes."""
        return self.rows[0].map

    def warnings(self) -> list[str]:
        """What is wrong with the codes, one sentence each."""
        codes, *others = self.rows
        return [
            f"On held-out rows the codes are worse than {other.method}: MAP {codes.map:.3f} against {other.map:.3f}. "
            "More labelled rows may help; otherwise use these instead."
            for other in others
            if codes.map < other.map
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {"n_rows": self.n_rows, "rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        lines = [
            f"{'on ' + format(self.n_rows, ',') + ' held-out rows':<28} {'bytes':>6} {'MAP':>7} {'P@10':>7}  distinct"
        ]
        for row in self.rows:
            distinct = "" if row.distinct is None else f"{row.distinct:,}"
            figures = f"{row.n_bytes:>6,} {row.map:>7.4f} {row.precision_at_10:>7.4f}"
            lines.append(f"{row.method:<28} {figures}  {distinct}".rstrip())
        return "\n".join(lines)


def validated_fit(
    hasher: Any, X: Any, y: Any, validation: Any, unlabelled: Any, sample_weight: Any, **options: Any
) -> Any:
    """Fit a FastHash, measure it on held-out rows, and keep the result as ``validation_``.

    ``validation`` is the share of the rows to hold out, or rows of their own with their labels.
    """
    seed = hasher._seed()
    check_consistent_length(X, y, sample_weight)
    if isinstance(validation, Real):
        (X, y, sample_weight), validation = hold_out(float(validation), X, y, sample_weight, seed=seed)
    elif not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError(
            "The 'validation' parameter must be a share between 0 and 1, or rows and their labels (X, y). "
            f"Got {type(validation).__name__} instead."
        )
    _check(hasher, X, *validation, unlabelled=unlabelled)
    hasher.fit(X, y, unlabelled=unlabelled, sample_weight=sample_weight, **options)
    hasher.validation_ = validate(hasher, X, *validation, unlabelled=unlabelled, seed=seed)
    return hasher


def _check(hasher: Hasher, X_train: Any, X: Any, y: Any, *, unlabelled: Any) -> None:
    """Refuse rows that could not be measured after a fit, before it has taken its time."""
    if sparse.issparse(X_train) or sparse.issparse(X):
        raise TypeError("The 'X' parameter must be a dense array with validation. Got a sparse matrix instead.")
    if np.shape(X)[1:] != np.shape(X_train)[1:]:
        raise ValueError(
            f"The 'validation' parameter must have rows with the {np.shape(X_train)[1]} features of 'X'. "
            f"Got shape {np.shape(X)} instead."
        )
    _read(hasher, X, y, unlabelled).check_pairs()


def _read(hasher: Hasher, X: Any, y: Any, unlabelled: Any) -> Supervision:
    shared = getattr(hasher, "min_shared", MIN_SHARED)
    return Target(y, unlabelled=unlabelled).read(X, min_shared=shared, method=type(hasher).__name__)


def hold_out(
    share: float, X: Any, y: Any, sample_weight: Any, *, seed: int
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
    """Split off a random ``share`` of the rows: (X, y, sample_weight) to train on, and (X, y) to validate on."""
    Number(above=0, below=1).check("validation", share)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    order = np.random.default_rng([seed, 5]).permutation(n)
    n_out = max(2, round(share * n))
    held_out, trained = np.sort(order[:n_out]), np.sort(order[n_out:])
    weights = None if sample_weight is None else _safe_indexing(sample_weight, trained)
    return (
        (_safe_indexing(X, trained), _safe_indexing(y, trained), weights),
        (_safe_indexing(X, held_out), _safe_indexing(y, held_out)),
    )


def validate(hasher: Hasher, X_train: Any, X: Any, y: Any, *, unlabelled: Any = None, seed: int = 0) -> Validation:
    """Measure a fitted hasher on held-out rows beside cosine similarity and unsupervised codes of the same length.

    Parameters
    ----------
    hasher : Hasher
        Fitted.
    X_train : array of shape (n_train, n_features)
        The rows it was trained on; the unsupervised codes learn from them, too.
    X, y : array of shape (n, n_features), and class labels or tags
        Rows it was not trained on. Rows without a label are left out, and at most 10,000 random ones are used.
    unlabelled : label
        The value in ``y`` of rows without a label.
    seed : int
        Seed of the unsupervised codes, and of the sample if there are more rows.
    """
    truth = _read(hasher, X, y, unlabelled)
    chosen = truth.draw(MAX_ROWS, np.random.default_rng([seed, 6]))
    rows, (labels, options) = _safe_indexing(X, chosen), truth.subset(chosen).truth()
    X, X_train = np.asarray(rows), np.asarray(X_train)
    options |= {"k": K, "exclude_self": True, "n_jobs": getattr(hasher, "n_jobs", None)}

    def of_codes(name: str, codes: NDArray[np.uint8]) -> Measured:
        report = evaluate(codes, codes, y_queries=labels, y_database=labels, knn=None, **options)
        return Measured(name, codes.shape[1], report.map, report.precision_at_k, count_distinct(codes))

    n_bits = hasher.encoder_.n_bits
    rival = ITQ(n_bits, random_state=seed) if n_bits <= X.shape[1] else LSH(n_bits, random_state=seed)
    name = f"{type(rival).__name__}, {n_bits} bits, no labels"
    vectors = evaluate_vectors(X, X, y_queries=labels, y_database=labels, **options)
    found = Validation(
        rows=(
            of_codes(CODES, hasher.transform(rows)),
            Measured(VECTORS, 4 * X.shape[1], vectors.map, vectors.precision_at_k, None),
            of_codes(name, rival.fit(X_train).transform(X)),
        ),
        n_rows=len(X),
    )
    for sentence in found.warnings():
        warnings.warn(sentence, stacklevel=3)
    return found
