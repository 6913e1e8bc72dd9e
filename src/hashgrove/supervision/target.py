"""`Target`: the arguments of `fit` to learn from, which become a `Supervision`."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length

from hashgrove.runtime.parameters import Integer, ParameterError
from hashgrove.supervision.affinity import Affinity
from hashgrove.supervision.base import Supervision
from hashgrove.supervision.forms import ClassLabels, Pairs, Tags
from hashgrove.supervision.reading import is_tags, read_classes, read_pairs, read_tags, read_triplets

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """The arguments of `fit` to learn from, before they are read. One of the first three must be set."""

    y: Any = None
    affinity: Any = None
    triplets: Any = None
    unlabelled: Any = None
    sample_weight: Any = None

    def read(self, X: Sized, *, min_shared: int, method: str) -> Supervision:
        """The supervision of the rows of ``X``; raises ValueError if the target cannot be used."""
        given = [name for name in ("y", "affinity", "triplets") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"Only one of y, affinity and triplets can be learned from. Got {' and '.join(given)}.")
        if not given:
            raise ValueError(
                f"This {method} estimator requires y to be passed, but the target y is None. "
                "Pass class labels or tags as y, pairs as affinity, or triplets."
            )
        n_points = X.shape[0] if hasattr(X, "shape") else len(X)
        weights = None if self.sample_weight is None else _check_weights(self.sample_weight, n_points)
        if self.y is None:
            return self._read_pairs(X, n_points, weights)
        check_consistent_length(X, self.y)
        if not is_tags(self.y):
            classes, names = read_classes(self.y, unlabelled=self.unlabelled)
            return ClassLabels(classes, weights, names)
        Integer(1).check("min_shared", min_shared)
        return Tags(*read_tags(self.y, unlabelled=self.unlabelled), int(min_shared), weights)

    def _read_pairs(self, X: Sized, n_points: int, weights: NDArray[np.float64] | None) -> Pairs:
        if self.triplets is not None:
            return Pairs(read_triplets(self.triplets, n_points=n_points), weights=weights)
        if isinstance(self.affinity, Affinity):
            check_consistent_length(X, self.affinity)
            return Pairs(self.affinity.signs(), self.affinity, weights)
        return Pairs(read_pairs(self.affinity, n_points=n_points), weights=weights)


def _check_weights(weights: Any, n_points: int) -> NDArray[np.float64]:
    """One weight per point, of mean 1; a single number stands for equal weights."""
    name = "sample_weight"
    given = np.full(n_points, weights) if isinstance(weights, Real) else weights
    array: NDArray[np.float64] = check_array(given, dtype=np.float64, ensure_2d=False, input_name=name)
    if array.shape != (n_points,):
        raise ParameterError(name, f"must have one number per row, {n_points}. Got shape {array.shape} instead.")
    if (array < 0).any():
        raise ParameterError(name, f"must not be negative. Got {array.min():g}.")
    if not array.any():
        raise ParameterError(name, "must have a weight above 0. Got zeros only.")
    return array / array.mean()
