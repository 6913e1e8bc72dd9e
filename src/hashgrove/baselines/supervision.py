"""What supervised baselines learn from: class labels, tags or pairs, as blocks of the pairwise label matrix.

S_ij is +1 for a similar pair, -1 for a dissimilar one and 0 where nothing is known, by the rules of
`hashgrove.supervision.affinity`; S_ii is +1. The n x n matrix itself is never made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hashgrove.hasher import Hasher
from hashgrove.supervision.affinity import Affinity, check_labels, check_target, label_indicator

__all__ = ["ClassSimilarity", "SupervisedHasher", "Supervision"]


class SupervisedHasher(Hasher):
    """A hasher whose `fit` needs labels; it gives subclasses one way to read them."""

    def _start(
        self, X: ArrayLike, y: Any, affinity: Any = None
    ) -> tuple[NDArray[Any], Supervision, np.random.Generator]:
        """Checked features, what to learn from, and the source of randomness."""
        self._check_n_bits()
        X = self._check_X(X, reset=True)
        target = Supervision.from_target(
            X, y, affinity, estimator=type(self).__name__, min_shared=getattr(self, "min_shared", 1)
        )
        return X, target, np.random.default_rng(self._seed())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True, eq=False)
class Supervision:
    """Labels of the training points in one of three forms; exactly one of the first three fields is set.

    Attributes
    ----------
    classes : int64 array of shape (n_points,), or None
    tags : scipy.sparse.csr_array of 0 and 1, shape (n_points, n_tags), or None
    pairs : scipy.sparse.csr_array of -1 and +1, shape (n_points, n_points), or None
    min_shared : int
        Tags that similar points share, at least.

    Examples
    --------
    >>> target = Supervision.from_target(np.zeros((3, 1)), ["cat", "dog", "cat"], None, estimator="KSH")
    >>> target.block(np.arange(3), np.arange(2))
    array([[ 1., -1.],
           [-1.,  1.],
           [ 1., -1.]])
    """

    classes: NDArray[np.int64] | None
    tags: Any
    pairs: Any
    min_shared: int

    @classmethod
    def from_target(cls, X: NDArray[Any], y: Any, affinity: Any, *, estimator: str, min_shared: int = 2) -> Supervision:
        """Check what `fit` was given."""
        kind, target = check_target(X, y, affinity, estimator=estimator)
        if kind == "labels":
            return cls(check_labels(target), None, None, min_shared)
        if kind == "tags":
            if not isinstance(min_shared, Integral) or min_shared < 1:
                raise ValueError(f"The 'min_shared' parameter must be an integer >= 1. Got {min_shared!r} instead.")
            tags = sparse.csr_array(target)
            if tags.dtype.kind in "fc" and not np.isfinite(tags.data).all():
                raise ValueError("Labels, tags and pairs must be finite. Got NaN or infinity.")
            tags.eliminate_zeros()
            if not tags.nnz:
                raise ValueError("The 'y' parameter must have a tag at least. Got a matrix of zeros.")
            return cls(None, (tags != 0).astype(np.float64), None, int(min_shared))
        if kind == "pairs":
            target = Affinity.from_pairs(target, n_points=len(X), n_similar=None, n_dissimilar=None)
        return cls(None, None, _signed_matrix(target), min_shared)

    def __len__(self) -> int:
        for form in (self.classes, self.tags, self.pairs):
            if form is not None:
                return int(form.shape[0])
        return 0

    def indicator(self) -> NDArray[np.float64]:
        """One column a class or tag, 1 where the point has it; not for pairs."""
        return label_indicator(self.tags if self.classes is None else self.classes)

    def draw(self, n_points: int | None, rng: np.random.Generator) -> NDArray[np.intp]:
        """Rows of ``n_points`` points about which something is known, or of all of them, in order."""
        known = np.arange(len(self)) if self.pairs is None else np.flatnonzero(np.diff(self.pairs.indptr))
        if n_points is None or n_points >= len(known):
            return known
        return np.sort(rng.choice(known, size=n_points, replace=False))

    def block(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """S of these rows and columns, dense."""
        if self.classes is not None:
            return np.where(self.classes[rows][:, None] == self.classes[columns], 1.0, -1.0)
        if self.tags is not None:
            shared = (self.tags[rows] @ self.tags[columns].T).toarray()
            S = np.where(shared >= self.min_shared, 1.0, -1.0)
        else:
            S = self.pairs[rows][:, columns].toarray()
        S[rows[:, None] == columns] = 1.0
        return S

    def matrix(self, rows: NDArray[Any]) -> Any:
        """S of these points among themselves: something that multiplies, and has `squared_norm`."""
        if self.classes is not None:
            return ClassSimilarity(self.classes[rows])
        return DenseSimilarity(self.block(rows, rows))

    def affinity(self, rows: NDArray[Any], *, n_similar: int | None, n_dissimilar: int | None, seed: int) -> Affinity:
        """At most so many similar and dissimilar neighbours of each of these points, among these points."""
        settings: dict[str, Any] = {"n_similar": n_similar, "n_dissimilar": n_dissimilar, "random_state": seed}
        if self.classes is not None:
            return Affinity.from_labels(self.classes[rows], **settings)
        if self.tags is not None:
            return Affinity.from_tags(self.tags[rows], min_shared=self.min_shared, **settings)
        return Affinity.from_pairs(self.pairs[rows][:, rows], **settings)


@dataclass(frozen=True, eq=False)
class ClassSimilarity:
    """S of class labels: S = 2 Z Z' - 1 1' with Z the indicator of classes, so a product costs O(n), not O(n^2).

    >>> (ClassSimilarity(np.array([0, 1, 0])) @ np.array([1.0, 2.0, 4.0])).tolist()
    [3.0, -3.0, 3.0]
    """

    classes: NDArray[np.int64]

    def __matmul__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        columns = values if values.ndim == 2 else values[:, None]
        product = 2.0 * (self._indicator @ columns)[self.classes] - columns.sum(axis=0)
        return product if values.ndim == 2 else product[:, 0]

    @cached_property
    def _indicator(self) -> Any:
        n_points = len(self.classes)
        return sparse.csr_array((np.ones(n_points), (self.classes, np.arange(n_points))))

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(len(self.classes)) ** 2


@dataclass(frozen=True, eq=False)
class DenseSimilarity:
    """S as an array."""

    values: NDArray[np.float64]

    def __matmul__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.values @ values

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(np.square(self.values).sum())


def _signed_matrix(affinity: Affinity) -> Any:
    """The pairs as a sparse matrix of -1 and +1."""
    lengths = np.diff(affinity.indptr)
    place = np.arange(len(affinity.indices)) - np.repeat(affinity.indptr[:-1], lengths)
    similar = place < np.repeat(affinity.middle - affinity.indptr[:-1], lengths)
    matrix = sparse.csr_array(
        (np.where(similar, 1.0, -1.0), affinity.indices.astype(np.int64), affinity.indptr),
        shape=(len(affinity), len(affinity)),
    )
    matrix.sort_indices()
    return matrix
