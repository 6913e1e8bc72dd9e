"""Generic bits: codes of whatever varies in the rows, with the variation inside classes made small.

Learned bits tell apart what the labels tell apart. Generic bits keep something of everything else, so that items of one
class do not all get the same code and items of classes that were never seen do not collapse. They are the rotation of
iterative quantisation (ITQ), applied to the directions v that maximise v' S_total v / v' (S_within + r I) v.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.encoders import UNIT, Linear
from hashgrove.functions.base import Learner
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge
from hashgrove.numerics.principal import scatter_matrix
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.numerics.sketch import Sketch
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import ClassLabels, Pairs, Supervision, Tags

__all__ = ["count_generic_bits", "learn_generic_bits"]

MAX_ROWS = 20_000  # that the directions are learned from
MAX_FEATURES = 2048  # more features are sketched first
N_ITER = 50


def count_generic_bits(asked: int | None, n_bits: int, learner: Learner) -> int:
    """How many of ``n_bits`` bits are generic: as many as asked for, or what suits the hash function."""
    if asked is None:
        return int(n_bits * getattr(learner, "generic_share", 0.0))
    if asked >= n_bits:
        raise ValueError(
            f"The 'generic_bits' parameter must be below n_bits={n_bits}, so that some bits are learned. "
            f"Got {asked} instead; for generic bits only, use ITQ."
        )
    return int(asked)


def learn_generic_bits(X: NDArray[Any], supervision: Supervision, *, n_bits: int, rng: np.random.Generator) -> Linear:
    """Learn ``n_bits`` generic bits from at most 20,000 of the rows.

    The variation inside classes comes from the class means for class labels, from what a regression on the tags leaves
    for tags, and from the differences of similar points for pairs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> labels = ClassLabels(np.arange(60) % 3)
    >>> learn_generic_bits(X, labels, n_bits=4, rng=np.random.default_rng(0)).encode(X).shape
    (60, 1)
    """
    chosen = supervision.draw(MAX_ROWS, rng)
    supervision = supervision.subset(chosen)
    sketch = Sketch.draw(X.shape[1], MAX_FEATURES, rng)
    rows = sketch.apply(unit_rows(X[chosen])).astype(np.float64)
    mean = rows.mean(axis=0)
    rows -= mean
    total = rows.T @ rows / len(rows)
    within = _within(rows, supervision)
    level = np.trace(within) / len(within)
    within[np.diag_indices(len(within))] += level if level > 0 else 1.0
    last = (max(len(total) - n_bits, 0), len(total) - 1)
    directions = with_fixed_signs(eigh(total, within, subset_by_index=last)[1].T[::-1])
    rotation, _ = quantising_rotation(rows @ directions.T, n_bits=n_bits, n_iter=N_ITER, rng=rng)
    weights = rotation.T @ directions
    return Linear(
        weights=sketch.expand(weights).astype(np.float32),
        bias=np.asarray(-weights @ mean, dtype=np.float32),
        unit=UNIT,
    )


def _within(rows: NDArray[np.float64], supervision: Supervision) -> NDArray[np.float64]:
    """The covariance of what varies between similar points; ``rows`` have mean 0."""
    if isinstance(supervision, ClassLabels):
        _, classes = np.unique(supervision.classes, return_inverse=True)
        member = np.zeros((classes.max() + 1, len(rows)))
        member[classes, np.arange(len(rows))] = 1
        residual = rows - ((member @ rows) / member.sum(axis=1, keepdims=True))[classes]
    elif isinstance(supervision, Tags):
        tags = supervision.indicator()
        residual = rows - LeaveOneOutRidge(tags).fitted(rows, penalty=1.0)
    else:
        assert isinstance(supervision, Pairs)
        # sum of (x_i - x_j)(x_i - x_j)' over similar pairs = 2 X' (D - A) X for the matrix A of similar pairs
        similar = supervision.similar_pairs()
        degree = np.asarray(similar.sum(axis=1)).ravel()
        return rows.T @ (degree[:, None] * rows - similar @ rows) / max(degree.sum(), 1)
    return scatter_matrix(residual, np.zeros(rows.shape[1])) / len(rows)
