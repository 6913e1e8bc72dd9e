"""The three forms of a `Supervision`: class labels, tags, and pairs (triplets are read as pairs)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.numerics.principal import scatter_matrix
from hashgrove.runtime.threads import chunks
from hashgrove.supervision.affinity import ROWS_PER_CHUNK, Affinity
from hashgrove.supervision.base import Supervision
from hashgrove.supervision.reading import UNLABELLED
from hashgrove.supervision.similarity import ClassSimilarity, Similarity

__all__ = ["MIN_SHARED", "ClassLabels", "Pairs", "Tags"]

LEAST_OF_CLASS = 50  # points of a class in a sample of classes
MIN_SHARED = 2  # number of tags that similar points share, for methods without a min_shared parameter; as in the paper


@dataclass(frozen=True, eq=False)
class ClassLabels(Supervision):
    """Class labels: points of the same class are similar, all others are dissimilar.

    Attributes
    ----------
    classes : int64 array of shape (n,)
        Class numbers from 0; -1 for points without a label.
    names : tuple
        The label that each number stands for; empty if nobody said.

    Examples
    --------
    >>> labels = ClassLabels(np.array([0, 1, 0, -1]))
    >>> labels.signs(np.arange(4), np.arange(2)).tolist()
    [[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [0.0, 0.0]]
    """

    classes: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    names: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each point has a label."""
        return self.classes != UNLABELLED

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max()) + 1

    @property
    def exclusive(self) -> bool:
        """True: a point has one class."""
        return True

    @property
    def class_names(self) -> tuple[Any, ...]:
        """The labels that the numbers stand for."""
        return self.names

    def subset(self, rows: NDArray[Any]) -> ClassLabels:
        """The labels of these points."""
        return ClassLabels(self.classes[rows], _rows_of(self.weights, rows), self.names)

    def joined_by(self, further: NDArray[np.int64], *, weight: float) -> ClassLabels:
        """These labels, and those of further points: numbers from 0 of further classes, which have no names.

        Each further point counts ``weight`` times as much as a point of these.

        Examples
        --------
        >>> both = ClassLabels(np.array([0, 1])).joined_by(np.array([0, 0]), weight=0.5)
        >>> both.classes.tolist(), both.weights.round(2).tolist()
        ([0, 1, 2, 2], [1.33, 1.33, 0.67, 0.67])
        """
        first = max(self.n_classes, len(self.names))
        weights = self.weights
        if weights is not None or weight != 1:
            known = np.ones(len(self)) if weights is None else weights
            weights = np.append(known, np.full(len(further), weight * known.mean()))
            weights /= weights.mean()
        return ClassLabels(np.append(self.classes, first + further), weights)

    def indicator(self) -> sparse.csr_array:
        """One column per class, which is 1 for the points of this class."""
        known = self.known
        entries = np.ones(np.count_nonzero(known)), self.classes[known], np.append(0, np.cumsum(known))
        return sparse.csr_array(entries, shape=(len(self), self.n_classes))

    def evaluation_labels(self) -> tuple[Any, dict[str, Any]]:
        """The class numbers."""
        return self.classes, {}

    def signs(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """+1 for points of the same class, -1 for points of different classes, 0 for points without a label."""
        left, right = self.classes[rows][:, None], self.classes[columns]
        S = np.where(left == right, 1.0, -1.0)
        S[(left == UNLABELLED) | (right == UNLABELLED)] = 0.0
        return S

    def similarity(self, rows: NDArray[Any]) -> Similarity:
        """S of these labelled points among themselves; a product with it takes O(n)."""
        return ClassSimilarity(self.classes[rows])

    def class_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of the rows of ``values`` over the points of each class."""
        return np.asarray(self.indicator().T.astype(values.dtype) @ values)

    def sample_of_classes(self, n_points: int, rng: np.random.Generator) -> NDArray[np.intp] | None:
        """The same share of each class, but at least 50 points of it, if it has so many; sorted numbers."""
        order = rng.permutation(len(self))
        order = order[np.argsort(self.classes[order], kind="stable")]
        counts = np.bincount(self.classes)
        wanted = np.maximum(counts * n_points // len(self), np.minimum(counts, LEAST_OF_CLASS))
        place = np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(order[place < np.repeat(wanted, counts)])

    def within_scatter(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The covariance of the differences from the class means."""
        sums = self.class_sums(rows)
        counts = np.bincount(self.classes, minlength=len(sums)).astype(rows.dtype)
        residual = rows - (sums / np.maximum(counts, 1)[:, None])[self.classes]
        return scatter_matrix(residual, np.zeros(rows.shape[1], rows.dtype)) / len(rows)

    def check_pairs(self) -> None:
        """Raise ValueError unless there are two classes, and two points of the same class."""
        counts = np.bincount(self.classes[self.known])
        if (counts > 0).sum() < 2:
            _refuse_no_pair("dissimilar")
        if counts.max() < 2:
            _refuse_no_pair("similar")

    def affinity(self, **draws: Any) -> Affinity:
        """Draw pairs for each labelled point."""
        return Affinity.from_classes(self.classes, **draws)


@dataclass(frozen=True, eq=False)
class Tags(Supervision):
    """Tags: points that share at least ``min_shared`` tags are similar, all others are dissimilar.

    Attributes
    ----------
    tags : scipy.sparse.csr_array of 0 and 1, shape (n, n_tags)
    missing : bool array of shape (n,)
        Which points have unknown tags. (A point that is known to have no tags is dissimilar to all others.)
    min_shared : int
        Number of tags that similar points share at least.
    """

    tags: sparse.csr_array
    missing: NDArray[np.bool_]
    min_shared: int = MIN_SHARED
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.missing)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the tags of each point are known."""
        return ~self.missing

    def subset(self, rows: NDArray[Any]) -> Tags:
        """The tags of these points."""
        return replace(self, tags=self.tags[rows], missing=self.missing[rows], weights=_rows_of(self.weights, rows))

    def indicator(self) -> sparse.csr_array:
        """One column per tag, which is 1 for the points that have it."""
        return sparse.csr_array(self.tags, dtype=np.float64)

    def evaluation_labels(self) -> tuple[Any, dict[str, Any]]:
        """The tag matrix, and how many shared tags make points similar."""
        return self.tags, {"min_shared": self.min_shared}

    def signs(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """+1 for points that share enough tags, -1 for others, 0 for points with unknown tags."""
        rows, columns = np.asarray(rows), np.asarray(columns)
        shared = (self.tags[rows] @ self.tags[columns].T).toarray()
        S = np.where(shared >= self.min_shared, 1.0, -1.0)
        S[self.missing[rows][:, None] | self.missing[columns]] = 0.0
        S[rows[:, None] == columns] = 1.0
        return S

    def within_scatter(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The covariance of what a regression on the tags leaves."""
        tags, n = self.indicator(), len(rows)
        share, mean = np.asarray(tags.sum(axis=0)) / n, rows.mean(axis=0, dtype=np.float64)
        products = (tags.T @ tags).toarray() - n * np.outer(share, share)
        products[np.diag_indices(len(products))] += 1.0
        weights = np.linalg.solve(products, tags.T @ rows - n * np.outer(share, mean))
        residual = rows - (tags @ weights + (mean - share @ weights))
        return scatter_matrix(residual, np.zeros(rows.shape[1])) / len(rows)

    def check_pairs(self) -> None:
        """Raise ValueError unless some points share enough tags and some do not."""
        tags = self.tags[self.known]
        is_similar_to_itself = tags.sum(axis=1) >= self.min_shared
        n_similar = n_dissimilar = 0
        for start, stop in chunks(tags.shape[0], ROWS_PER_CHUNK):
            enough = int(np.count_nonzero((tags[start:stop] @ tags.T).data >= self.min_shared))
            similar = enough - int(np.count_nonzero(is_similar_to_itself[start:stop]))
            n_similar += similar
            n_dissimilar += (stop - start) * (tags.shape[0] - 1) - similar
            if n_similar and n_dissimilar:
                return
        _refuse_no_pair("dissimilar" if n_similar else "similar", self.min_shared)

    def affinity(self, **draws: Any) -> Affinity:
        """Draw pairs for each point with known tags."""
        return Affinity.from_tag_matrix(self.tags, self.missing, min_shared=self.min_shared, **draws)


@dataclass(frozen=True, eq=False)
class Pairs(Supervision):
    """Pairs that are known to be similar or dissimilar; nothing is known about all other pairs.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array of +1 and -1, shape (n, n)
        Symmetric, without a diagonal.
    given : Affinity, optional
        The pairs as an `Affinity` from the user. If given, all of them are used, and `affinity` draws nothing.
    """

    matrix: sparse.csr_array
    given: Affinity | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each point is in at least one pair."""
        return np.diff(self.matrix.indptr) > 0

    def subset(self, rows: NDArray[Any]) -> Pairs:
        """The pairs among these points."""
        return Pairs(sparse.csr_array(self.matrix[rows][:, rows]), weights=_rows_of(self.weights, rows))

    @property
    def has_labels(self) -> bool:
        """False: only pairs are known."""
        return False

    def indicator(self) -> sparse.csr_array:
        """Raise ValueError, since pairs have no labels."""
        raise ValueError("This method needs class labels or tags as y. Got pairs, which have no labels.")

    def evaluation_labels(self) -> tuple[Any, dict[str, Any]]:
        """Raise ValueError, since pairs have no labels."""
        return self.indicator(), {}

    def signs(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """+1 and -1 for known pairs, 0 for all others."""
        rows, columns = np.asarray(rows), np.asarray(columns)
        S = self.matrix[rows][:, columns].toarray()
        S[rows[:, None] == columns] = 1.0
        return S

    def within_scatter(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The covariance of the differences of similar points."""
        # sum of (x_i - x_j)(x_i - x_j)' over similar pairs = 2 X' (D - A) X for the matrix A of similar pairs
        similar = sparse.csr_array(self.matrix > 0, dtype=np.float64)
        degree = np.asarray(similar.sum(axis=1)).ravel()
        return rows.T @ (degree[:, None] * rows - similar @ rows) / max(degree.sum(), 1)

    def check_pairs(self) -> None:
        """Raise ValueError unless there are pairs of both kinds."""
        for kind, sign in (("similar", 1), ("dissimilar", -1)):
            if not (self.matrix.data == sign).any():
                _refuse_no_pair(kind)

    def affinity(self, **draws: Any) -> Affinity:
        """Draw from the known pairs of each point, or return the affinity that the user gave."""
        return Affinity.from_signs(self.matrix, **draws) if self.given is None else self.given


def _rows_of(weights: NDArray[np.float64] | None, rows: NDArray[Any]) -> NDArray[np.float64] | None:
    return None if weights is None else weights[rows]


def _refuse_no_pair(kind: str, min_shared: int | None = None) -> NoReturn:
    """Raise the ValueError for supervision without a similar or without a dissimilar pair."""
    hint = ""
    if min_shared is not None and min_shared > 1 and kind == "similar":
        hint = f" No two points share {min_shared} tags: try min_shared=1, for example with one-hot tags."
    raise ValueError(f"The supervision must make some pair of points {kind}. Got no such pair.{hint}")
