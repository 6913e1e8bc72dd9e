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
from hashgrove.functions.base import HashFunction
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.numerics.sketch import Sketch
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.sharing import shared
from hashgrove.supervision import Supervision

__all__ = ["count_generic_bits", "learn_generic_bits"]

MAX_ROWS = 20_000  # that the directions are learned from
MAX_FEATURES = 2048  # more features are sketched first
N_ITER = 50


def count_generic_bits(asked: int | None, n_bits: int, learner: HashFunction) -> int:
    """Number of generic bits among ``n_bits``: as many as asked for, or what suits the hash function."""
    if asked is None:
        return int(n_bits * getattr(learner, "generic_share", 0.0))
    if asked >= n_bits:
        raise ParameterError(
            "generic_bits",
            f"must be below n_bits={n_bits}, so that some bits are learned. "
            f"Got {asked} instead; for generic bits only, use ITQ.",
        )
    return int(asked)


@shared
def learn_generic_bits(X: NDArray[Any], supervision: Supervision, *, n_bits: int, rng: np.random.Generator) -> Linear:
    """Learn ``n_bits`` generic bits from at most 20,000 of the rows.

    The variation inside classes comes from the class means for class labels, from what a regression on the tags leaves
    for tags, and from the differences of similar points for pairs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> from hashgrove.supervision import ClassLabels
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
    within = supervision.within_scatter(rows)
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
