"""Bits from the probabilities of labels: linear scores of a row become probabilities, and a bit is a sum over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.numerics.unit_rows import unit_products

__all__ = ["Posterior", "softened"]

LEAST_LOG = np.float32(-69.0)  # a probability below exp(-69), about 1e-30, counts as this one


@dataclass(frozen=True, eq=False)
class Posterior(Encoder):
    """Scores phi(X) B' + offset, where phi is the softened probability of each class or tag; in float32.

    The probabilities come from linear scores of the rows scaled to length 1, by a softmax for classes and by one
    sigmoid per tag. They are raised to a power below 1, so that unlikely labels count too, and scaled to length 1.

    Parameters
    ----------
    weights : float32 array of shape (n_labels, n_features)
    bias : float32 array of shape (n_labels,)
    power : float32 array of shape ()
        Between 0 and 1.
    exclusive : uint8 array of shape ()
        1: classes, which exclude each other; 0: tags.
    book : float32 array of shape (n_bits, n_labels)
    offset : float32 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Posterior(
    ...     weights=np.array([[5.0, 0.0], [0.0, 5.0]], np.float32),
    ...     bias=np.zeros(2, np.float32),
    ...     power=np.array(0.5, np.float32),
    ...     exclusive=np.array(1, np.uint8),
    ...     book=np.array([[1.0, -1.0]], np.float32),
    ...     offset=np.zeros(1, np.float32),
    ... )
    >>> encoder.scores([[2.0, 0.0], [0.0, 7.0]]).round(2).tolist()
    [[0.9100000262260437], [-0.9100000262260437]]
    """

    weights: Annotated[NDArray[np.float32], ("labels", "features")]
    bias: Annotated[NDArray[np.float32], ("labels",)]
    power: Annotated[NDArray[np.float32], ()]
    exclusive: Annotated[NDArray[np.uint8], ()]
    book: Annotated[NDArray[np.float32], ("bits", "labels")]
    offset: Annotated[NDArray[np.float32], ("bits",)]

    def scaled(self, factor: float) -> Posterior:
        """The encoder whose scores are ``factor`` times these."""
        return replace(self, book=self.book * np.float32(factor), offset=self.offset * np.float32(factor))

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float32]:
        logits = unit_products(X, self.weights) + self.bias
        return softened(logits, exclusive=bool(self.exclusive), power=self.power) @ self.book.T + self.offset

    def _check_values(self) -> None:
        if self.exclusive > 1:
            raise ValueError(f"the array 'exclusive' must be 0 or 1. Got {self.exclusive}.")
        if not 0 < self.power <= 1:
            raise ValueError(f"the array 'power' must be above 0 and at most 1. Got {self.power}.")


def softened(
    logits: NDArray[np.float32], *, exclusive: bool, power: float | NDArray[np.float32]
) -> NDArray[np.float32]:
    """Probabilities raised to ``power`` and scaled to length 1, per row; classes if ``exclusive``, otherwise tags.

    >>> softened(np.array([[0.0, 0.0, -50.0]], np.float32), exclusive=True, power=0.5).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377, 0.0]]
    """
    # log of the probability up to a factor per row, which the scaling to length 1 removes
    log = logits if exclusive else -np.log(1 + np.exp(-np.maximum(logits, LEAST_LOG)))
    log = np.maximum(log - log.max(axis=1, keepdims=True), LEAST_LOG)
    phi = np.exp(log * np.float32(power))
    return phi / np.sqrt(np.einsum("ij,ij->i", phi, phi))[:, None]
