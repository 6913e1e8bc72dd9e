"""Bits from the class probabilities of a linear classifier and a code book."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from hashgrove.encoders.base import Encoder

__all__ = ["ClassScores"]


@dataclass(frozen=True, eq=False)
class ClassScores(Encoder):
    """Scores P(X) C + offset: the class probabilities of a linear classifier times the code words of the classes.

    Parameters
    ----------
    weights : float64 array of shape (n_classes, n_features)
    bias : float64 array of shape (n_classes,)
    book : float64 array of shape (n_classes, n_bits)
        The code words C.
    offset : float64 array of shape (n_bits,)
    exclusive : uint8 array of shape ()
        1: the classes exclude each other, and a softmax gives the probabilities. 0: the classes are tags, and each has
        a sigmoid of its own.

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

    weights: Annotated[NDArray[np.float64], ("classes", "features")]
    bias: Annotated[NDArray[np.float64], ("classes",)]
    book: Annotated[NDArray[np.float64], ("classes", "bits")]
    offset: Annotated[NDArray[np.float64], ("bits",)]
    exclusive: Annotated[NDArray[np.uint8], ()]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return self.probabilities(X) @ self.book + self.offset

    def probabilities(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Probability of each class or tag, shape (n, n_classes)."""
        decision = X.astype(np.float64, copy=False) @ self.weights.T + self.bias
        return softmax(decision, axis=1) if self.exclusive else expit(decision)

    def _check_values(self) -> None:
        if self.exclusive > 1:
            raise ValueError(f"the array 'exclusive' must be 0 or 1. Got {self.exclusive}.")
