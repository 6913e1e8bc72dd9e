"""Which radius separates similar items from others: chosen from pairs of which it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.parameters import Number, ParameterError

__all__ = ["RadiusChoice", "choose_radius"]


@dataclass(frozen=True)
class RadiusChoice:
    """A radius, and how it does on the pairs that it was chosen from.

    Attributes
    ----------
    radius : int
    precision : float
        The share of similar pairs among those within the radius.
    recall : float
        The share of the similar pairs that are within the radius.
    """

    radius: int
    precision: float
    recall: float


def choose_radius(
    distances: NDArray[np.uint16], similar: NDArray[np.bool_], *, precision: float | None
) -> RadiusChoice:
    """The radius with the best F1, or the largest one with at least some precision; see `Index.suggest_radius`.

    >>> choose_radius(np.array([0, 2, 3, 9]), np.array([True, True, False, False]), precision=None)
    RadiusChoice(radius=2, precision=1.0, recall=1.0)
    """
    Number(above=0, or_none=True).check("precision", precision)
    if not similar.any() or similar.all():
        raise ParameterError("similar", "must mark both similar and other pairs. Got only one kind of them instead.")
    n_distances = int(distances.max()) + 1
    found = np.bincount(distances, minlength=n_distances).cumsum()
    hits = np.bincount(distances, weights=similar, minlength=n_distances).cumsum()
    precisions, recalls = hits / np.maximum(found, 1), hits / hits[-1]
    if precision is None:
        best = int(np.argmax(2 * hits / (found + hits[-1])))
    else:
        enough = np.flatnonzero((precisions >= precision) & (hits > 0))
        if len(enough) == 0:
            raise ParameterError(
                "precision",
                f"must be reached at some radius. Got {precision} instead; the best is {precisions.max():.3f}.",
            )
        best = int(enough[-1])
        best = int(np.flatnonzero(found == found[best])[0])  # the smallest of the radii with the same pairs
    return RadiusChoice(best, float(precisions[best]), float(recalls[best]))
