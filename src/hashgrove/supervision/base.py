"""`Supervision`: labels, tags or pairs of the training points, read once and given to each method in the form it needs.

S_ij is +1 for a similar pair, -1 for a dissimilar pair, and 0 if nothing is known. The full n x n matrix S is never
stored for labels and tags. Methods ask for parts of it, products with it, or a sample of its pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.supervision.affinity import Affinity
from hashgrove.supervision.similarity import DenseSimilarity, Similarity

__all__ = ["Supervision"]


class Supervision(ABC):
    """Everything that is known about n training points; `ClassLabels`, `Tags` and `Pairs` are the three forms.

    Attributes
    ----------
    weights : float64 array of shape (n,), or None
        How much each point counts, with mean 1; None if all count the same.
    """

    weights: NDArray[np.float64] | None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def known(self) -> NDArray[np.bool_]:
        """Whether anything is known about each point."""

    @abstractmethod
    def subset(self, rows: NDArray[Any]) -> Self:
        """The supervision of these points only; ``rows`` are their numbers or a mask."""

    @property
    def has_labels(self) -> bool:
        """Whether points have labels, classes or tags, which a classifier can learn."""
        return True

    @property
    def exclusive(self) -> bool:
        """Whether labels exclude each other: a point has one class, but any number of tags."""
        return False

    @property
    def class_names(self) -> tuple[Any, ...]:
        """The classes, if points have classes; otherwise none."""
        return ()

    @abstractmethod
    def indicator(self) -> sparse.csr_array:
        """One column per class or tag, which is 1 for the points that have it, in float64; ValueError for pairs."""

    def class_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of the rows of ``values`` over the points of each class; ValueError unless points have classes."""
        raise ValueError("This method needs class labels as y. Got tags or pairs.")

    def sample_of_classes(self, n_points: int, rng: np.random.Generator) -> NDArray[np.intp] | None:
        """Numbers of about ``n_points`` random points, and of some points of every class; None without classes."""
        return None

    @abstractmethod
    def within_scatter(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The covariance of what varies between similar points; ``rows`` are theirs, with mean 0."""

    @abstractmethod
    def evaluation_labels(self) -> tuple[Any, dict[str, Any]]:
        """The labels as `hashgrove.evaluate` takes them, and its options that go with them; ValueError for pairs."""

    @abstractmethod
    def signs(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """S for these rows and columns, as a dense array. A point is similar to itself."""

    @abstractmethod
    def affinity(
        self, *, n_similar: int | None, n_dissimilar: int | None, random_state: Any, n_jobs: int | None = None
    ) -> Affinity:
        """Draw at most this many similar and dissimilar pairs for each point; ``None`` means all."""

    @abstractmethod
    def check_pairs(self) -> None:
        """Raise ValueError unless some points are similar and some are dissimilar."""

    def facts(self) -> dict[str, Any]:
        """The kind and number of labels, and how many points have some; JSON values, for a model file."""
        kind = "classes" if self.exclusive else "tags" if self.has_labels else "pairs"
        found: dict[str, Any] = {"labelled": int(self.known.sum()), "labels": kind}
        return found | ({"n_labels": int(self.indicator().shape[1])} if self.has_labels else {})

    def has_pairs(self) -> bool:
        """Whether some points are similar and some are dissimilar."""
        try:
            self.check_pairs()
        except ValueError:
            return False
        return True

    def similarity(self, rows: NDArray[Any]) -> Similarity:
        """S of these points among themselves, as a matrix to multiply with."""
        return DenseSimilarity(self.signs(rows, rows))

    def arrays(self) -> list[Any]:
        """All arrays and sparse matrices that the supervision is made of, for a fingerprint."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return [value for value in values if value is None or isinstance(value, np.ndarray) or sparse.issparse(value)]

    def draw(self, n_points: int | None, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw ``n_points`` random points about which something is known, or all of them; returns sorted numbers."""
        known = np.flatnonzero(self.known)
        if n_points is None or n_points >= len(known):
            return known
        return np.sort(rng.choice(known, size=n_points, replace=False))

    def draw_unknown(self, n_points: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw ``n_points`` random points about which nothing is known, or all of them; returns sorted numbers."""
        unknown = np.flatnonzero(~self.known)
        return unknown if n_points >= len(unknown) else np.sort(rng.choice(unknown, size=n_points, replace=False))
