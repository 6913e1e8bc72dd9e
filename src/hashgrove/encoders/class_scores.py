"""Bits from class probabilities of a linear classifier and a code book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from hashgrove.encoders.base import Encoder

__all__ = ["ClassScores"]


@dataclass(frozen=True, eq=False)
class ClassScores(Encoder):
    """Scores P(X) C + offset: probabilities of a linear classifier times code words.

    Parameters
    ----------
    weights : float64 array of shape (n_classes, n_features)
    bias : float64 array of shape (n_classes,)
    book : float64 array of shape (n_classes, n_bits)
    offset : float64 array of shape (n_bits,)
    exclusive : uint8 array of shape ()
        1: classes exclude each other, probabilities by softmax. 0: tags, each with its own sigmoid.

    Examples
    --------
    >>> encoder = ClassScores(
    ...     weights=np.array([[1.0], [-1.0]]),
    ...     bias=np.zeros(2),
    ...     book=np.array([[1.0, 1.0], [1.0, -1.0]]),
    ...     offset=np.zeros(2),
    ...     exclusive=np.array(1, np.uint8),
    ... )
    >>> encoder.scores([[0.5]]).round(3).tolist()
    [[1.0, 0.462]]
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    book: NDArray[np.float64]
    offset: NDArray[np.float64]
    exclusive: NDArray[np.uint8]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.book.shape[1]

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.weights.shape[1]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return self.probabilities(X) @ self.book + self.offset

    def probabilities(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Probability of each class or tag, shape (n, n_classes)."""
        decision = X.astype(np.float64, copy=False) @ self.weights.T + self.bias
        return softmax(decision, axis=1) if self.exclusive else expit(decision)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """The code books of one classifier, side by side."""
        first = encoders[0]
        for encoder in encoders:
            if not (
                np.array_equal(encoder.weights, first.weights)
                and np.array_equal(encoder.bias, first.bias)
                and encoder.exclusive == first.exclusive
            ):
                raise ValueError("ClassScores encoders must have the same classifier to be concatenated.")
        return cls(
            weights=first.weights,
            bias=first.bias,
            book=np.hstack([encoder.book for encoder in encoders]),
            offset=np.concatenate([encoder.offset for encoder in encoders]),
            exclusive=first.exclusive,
        )

    def _check(self) -> None:
        n_classes, n_features = self.weights.shape if self.weights.ndim == 2 else (0, 0)
        n_bits = self.book.shape[-1] if self.book.ndim == 2 else 0
        shapes = {
            "weights": (n_classes, n_features),
            "bias": (n_classes,),
            "book": (n_classes, n_bits),
            "offset": (n_bits,),
        }
        self._check_floats(shapes)
        if self.exclusive.dtype != np.uint8 or self.exclusive.shape != () or self.exclusive > 1:
            raise ValueError(
                "the array 'exclusive' must be one uint8, 0 or 1. "
                f"Got {self.exclusive.dtype} of shape {self.exclusive.shape}."
            )
