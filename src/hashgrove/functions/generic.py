"""Generic bits: codes of whatever varies in the rows, with the variation inside classes made small.

Learned bits tell apart what the labels tell apart. Generic bits keep something of everything else, so that items of one
class do not all get the same code and items of classes that were never seen do not collapse. They are the rotation of
iterative quantisation (ITQ), applied to the directions v that maximise v' S_total v / v' (S_within + r I) v. S_total
comes from all rows, with labels and without; S_within and r from the rows with labels. r is the mean variation inside
classes, and more, up to three times as much, if there are fewer such rows than features: then there are directions in
which these rows do not vary inside classes at all, but new rows do. All is computed in float32, which is enough: with
r I, no direction varies more than d + 1 times as much inside classes as another one, for d features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
LARGEST_LEVEL = 3.0  # of what is added to the variation inside classes, in units of its mean


def count_generic_bits(asked: int | None, n_bits: int, learner: HashFunction) -> int:
    """Number of generic bits among ``n_bits``: as many as asked for, or what suits the hash function."""
    if asked is None:
        return int(n_bits * getattr(learner, "generic_share", 0.0))
    if asked > n_bits:
        raise ParameterError("generic_bits", f"must be at most n_bits={n_bits}. Got {asked} instead.")
    return int(asked)


@shared
def learn_generic_bits(
    X: NDArray[Any],
    supervision: Supervision,
    *,
    n_bits: int,
    rng: np.random.Generator,
    others: NDArray[Any] | None = None,
) -> Linear:
    """Learn ``n_bits`` generic bits from at most 20,000 of the rows, and as many others.

    The variation inside classes comes from the class means for class labels, from what a regression on the tags leaves
    for tags, and from the differences of similar points for pairs. The variation in total is that of all rows, also of
    ``others``, about which nothing is known.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> from hashgrove.supervision import ClassLabels
    >>> labels = ClassLabels(np.arange(60) % 3)
    >>> learn_generic_bits(X, labels, n_bits=4, rng=np.random.default_rng(0)).encode(X).shape
    (60, 1)
    """
    found = GenericDirections.learn(X, supervision, n_directions=n_bits, rng=rng, others=others)
    rotation, _ = quantising_rotation(found.rows @ found.directions.T, n_bits=n_bits, n_iter=N_ITER, rng=rng)
    weights = rotation.T @ found.directions
    return Linear(
        weights=found.sketch.expand(weights).astype(np.float32),
        bias=np.asarray(-weights @ found.mean, dtype=np.float32),
        unit=UNIT,
    )


class GenericDirections(NamedTuple):
    """The directions that vary most in total, relative to the variation inside classes.

    Attributes
    ----------
    sketch : Sketch
        Of very wide rows.
    mean : float32 array of shape (n_columns,)
        Of all rows, scaled to length 1 and sketched.
    rows : float32 array of shape (n, n_columns)
        The rows that the directions were learned from, less the mean.
    directions : float32 array of shape (n_directions, n_columns)
    """

    sketch: Sketch
    mean: NDArray[np.float32]
    rows: NDArray[np.float32]
    directions: NDArray[np.float32]

    @classmethod
    def learn(
        cls,
        X: NDArray[Any],
        supervision: Supervision,
        *,
        n_directions: int,
        rng: np.random.Generator,
        others: NDArray[Any] | None = None,
    ) -> GenericDirections:
        """The directions with the largest v' S_total v / v' (S_within + r I) v."""
        chosen = supervision.draw(MAX_ROWS, rng)
        supervision = supervision.subset(chosen)
        sketch = Sketch.draw(X.shape[1], MAX_FEATURES, rng)
        parts = [X[chosen]] if others is None else [X[chosen], others[:MAX_ROWS]]
        rows = np.concatenate([sketch.apply(unit_rows(part)) for part in parts])
        mean = _mean(rows)
        rows -= mean
        total = rows.T @ rows / len(rows)
        known = rows[: len(chosen)]
        within = supervision.within_scatter(known if others is None else known - _mean(known))
        level = np.trace(within) / len(within) * min(max(len(within) / len(chosen), 1.0), LARGEST_LEVEL)
        within[np.diag_indices(len(within))] += level if level > 0 else 1.0
        last = (max(len(total) - n_directions, 0), len(total) - 1)
        vectors = eigh(total, within.astype(np.float32), subset_by_index=last)[1]
        directions = with_fixed_signs(vectors.T[::-1])
        return cls(sketch, mean, rows, directions)


def _mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows.mean(axis=0, dtype=np.float64).astype(np.float32)
