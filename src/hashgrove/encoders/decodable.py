"""Bits that are chosen so that the class probabilities decoded from the code match those of the row.

The encoder computes class probabilities p and starts from the bits of the likely classes' code words. Then it flips,
again and again, the bit that makes the decoded probabilities most like p (analysis by synthesis), until no flip does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.decoding import Decoder, probabilities
from hashgrove.encoders.mixed import Mixed
from hashgrove.numerics.unit_rows import unit_products
from hashgrove.runtime.compiling import kernel

__all__ = ["Decodable", "as_bytes"]

LARGEST_LOGIT = 40.0  # sum of |V| over the bits plus |a|, per class, so that no product of exponentials overflows
LEAST_GAIN = 1e-6  # relative; a flip that gains less is rounding
LEAST_MARGIN = 1e-7
FLIPS_PER_BIT = 4  # after so many the search ends; it needs about 6 flips for 48 bits


class _Tables(NamedTuple):
    """The arrays of the kernel: float32 of shape (n_bits, n_labels), two of them as ``factors``, and the offset."""

    words: NDArray[np.float32]
    table: NDArray[np.float32]
    factors: NDArray[np.float32]  # exp(2 V) and exp(-2 V): how exp(z) changes when a bit becomes 1, or -1
    offset: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Decodable(Encoder):
    """Bits b for which softmax(b V + a) is close to the class probabilities p of a row; only for classes.

    The bits depend on each other, so an encoder of some of them is another encoder.

    Parameters
    ----------
    weights : float32 array of shape (n_labels, n_features)
    bias : float32 array of shape (n_labels,)
        p is the softmax of linear scores of the row, scaled to length 1.
    words : int8 array of shape (n_bits, n_labels)
        Code words of the classes, -1 or +1: the bits start as the signs of sum_c sqrt(p_c) words[:, c].
    table : float32 array of shape (n_bits, n_labels)
        V.
    offset : float32 array of shape (n_labels,)
        a.
    temperature : float32 array of shape ()
        Factor of b V + a when codes are decoded.
    names : uint8 array of shape (n_name_bytes,)
        The names of the classes, a JSON list.

    Examples
    --------
    >>> eye = np.eye(2, dtype=np.float32)
    >>> encoder = Decodable(
    ...     weights=5 * eye,
    ...     bias=np.zeros(2, np.float32),
    ...     words=np.array([[1, -1], [-1, 1]], np.int8),
    ...     table=np.array([[1, -1], [-1, 1]], np.float32),
    ...     offset=np.zeros(2, np.float32),
    ...     temperature=np.array(1, np.float32),
    ...     names=as_bytes(["cat", "dog"]),
    ... )
    >>> (encoder.scores([[2.0, 0.0], [0.0, 7.0]]) > 0).tolist()
    [[True, False], [False, True]]
    >>> encoder.decoder.likeliest(encoder.encode([[2.0, 0.0]]), 1)[0][0][0]
    'cat'
    """

    weights: Annotated[NDArray[np.float32], ("labels", "features")]
    bias: Annotated[NDArray[np.float32], ("labels",)]
    words: Annotated[NDArray[np.int8], ("bits", "labels")]
    table: Annotated[NDArray[np.float32], ("bits", "labels")]
    offset: Annotated[NDArray[np.float32], ("labels",)]
    temperature: Annotated[NDArray[np.float32], ()]
    names: Annotated[NDArray[np.uint8], ("name_bytes",)]

    @cached_property
    def decoder(self) -> Decoder:
        """The class probabilities that a code stands for."""
        return Decoder(self.table * self.temperature, self.offset * self.temperature, _names(self.names))

    @cached_property
    def _tables(self) -> _Tables:
        factors = np.exp([2 * self.table, -2 * self.table])
        return _Tables(self.words.astype(np.float32), self.table, factors, self.offset)

    def _probabilities(self, X: NDArray[Any]) -> NDArray[np.float32]:
        return probabilities(unit_products(X, self.weights) + self.bias)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float32]:
        return self.scores_of(self._probabilities(X))

    def scores_of(self, p: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores of rows with these class probabilities.

        The sign of a score is the bit, and its magnitude the cross-entropy, in nats, that another bit would cost.
        """
        scores = np.empty((len(p), len(self.table)), np.float32)
        _flip(np.ascontiguousarray(p, np.float32), *self._tables, scores)
        return scores

    def _as_queries(self, X: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        p = self._probabilities(X)
        return p @ self.table.T, p

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self | Mixed:  # type: ignore[override]
        """One encoder that gives the bits of all ``encoders``, in their order."""
        if len(encoders) == 1:
            return encoders[0]
        source = np.repeat(np.arange(len(encoders)), [encoder.n_bits for encoder in encoders])
        return Mixed(parts=tuple(encoders), source=source.astype(np.uint8))

    def _check_values(self) -> None:
        if (np.abs(self.words.astype(np.int16)) != 1).any():
            raise ValueError("the array 'words' must consist of -1 and 1. Got other values.")
        largest = (np.abs(self.table).sum(axis=0, dtype=np.float64) + np.abs(self.offset)).max()
        if largest > LARGEST_LOGIT:
            raise ValueError(
                f"the array 'table' must have columns whose absolute values have a sum of at most {LARGEST_LOGIT:.0f}, "
                f"with that of 'offset'. Got {largest:.3g}."
            )
        if not 0 < self.temperature <= LARGEST_LOGIT:
            raise ValueError(
                f"the array 'temperature' must be above 0 and at most {LARGEST_LOGIT:.0f}. Got {self.temperature}."
            )
        if len(_names(self.names)) != len(self.bias):
            raise ValueError(f"the array 'names' must have {len(self.bias)} names. Got {len(_names(self.names))}.")


def as_bytes(names: Sequence[Any]) -> NDArray[np.uint8]:
    """Names of classes as an array; what JSON does not know becomes a text.

    >>> bytes(as_bytes([1, "cat"]))
    b'[1, "cat"]'
    """
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    return np.frombuffer(json.dumps(plain, default=str).encode(), np.uint8)


def _names(array: NDArray[np.uint8]) -> tuple[Any, ...]:
    try:
        names = json.loads(array.tobytes())
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str | int | float) for name in names):
        raise ValueError("the array 'names' must be a JSON list of texts and numbers. Got other bytes.")
    return tuple(names)


@kernel(reorder_sums=True)
def _flip(p, words, table, factors, offset, scores):
    """Find the bits of each row and write their scores: by how much another bit would raise the cross-entropy.

    p float32 (n, C); the arrays of `_Tables`; scores float32 (n, B). Of the bits whose flip gains most, the first is
    flipped. Each of a row's 6 to 9 flips takes C B multiplications: flipping bit j changes exp(z_c) by the factor
    exp(-2 b_j V_jc), and log sum_c exp(z_c) - sum_c p_c z_c by log(costs[j] / total).
    """
    n_bits, n_classes = table.shape
    bits, pulls, costs = np.empty(n_bits, np.uint8), np.empty(n_bits), np.empty(n_bits)
    roots, odds = np.empty(n_classes, np.float32), np.empty(n_classes, np.float32)
    for i in range(len(p)):
        for c in range(n_classes):
            roots[c], odds[c] = np.sqrt(p[i, c]), offset[c]
        for j in range(n_bits):
            start, pull = np.float32(0), np.float32(0)
            for c in range(n_classes):
                start += roots[c] * words[j, c]
                pull += p[i, c] * table[j, c]
            bits[j] = start > 0
            sign = np.float32(1 if start > 0 else -1)
            pulls[j] = np.exp(2.0 * sign * pull)
            for c in range(n_classes):
                odds[c] += sign * table[j, c]
        total = np.float32(0)
        for c in range(n_classes):
            odds[c] = np.exp(odds[c])
            total += odds[c]
        for _ in range(FLIPS_PER_BIT * n_bits + 1):
            best, least = -1, total * (1.0 - LEAST_GAIN)
            for j in range(n_bits):
                factor, cost = factors[bits[j], j], np.float32(0)
                for c in range(n_classes):
                    cost += odds[c] * factor[c]
                costs[j] = cost * pulls[j]
                if costs[j] < least:
                    best, least = j, costs[j]
            if best < 0:
                break
            factor, total = factors[bits[best], best], np.float32(0)
            for c in range(n_classes):
                odds[c] *= factor[c]
                total += odds[c]
            bits[best], pulls[best] = 1 - bits[best], 1.0 / pulls[best]
        for j in range(n_bits):
            margin = max(np.log(costs[j] / total), LEAST_MARGIN)
            scores[i, j] = margin if bits[j] else -margin
