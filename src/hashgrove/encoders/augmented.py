"""Bits that see directions besides the features: the scores of one encoder are columns of the rows of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.composite import Composite

__all__ = ["Augmented", "augmented_rows"]


@dataclass(frozen=True, eq=False)
class Augmented(Composite):
    """The bits of rows (x, directions of x), or of the directions alone.

    The columns that ``bits`` takes say which: as many as there are directions, or those and the features.

    Parameters
    ----------
    directions : Encoder
        Its scores are the columns after the features.
    bits : Encoder
        It gives the bits. Both parts may be of any class in ``hashgrove.encoders.ENCODERS``; with a part of another
        class the encoder works but cannot be saved.

    Examples
    --------
    >>> from hashgrove.encoders import Linear
    >>> half = Linear(weights=np.array([[1.0, 1.0]]), bias=np.array([-1.0]))
    >>> bits = Linear(weights=np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), bias=np.zeros(2))
    >>> Augmented(directions=half, bits=bits).scores([[0.5, 2.0]]).tolist()
    [[1.5, 0.5]]
    """

    directions: Encoder
    bits: Encoder

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.bits.n_bits

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.directions.n_features

    @property
    def keeps_features(self) -> bool:
        """Whether ``bits`` sees the features besides the directions."""
        return self.bits.n_features > self.directions.n_bits

    def _rows(self, X: NDArray[Any]) -> NDArray[Any]:
        return augmented_rows(X, self.directions._scores(X), keep_features=self.keeps_features)

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.bits._scores(self._rows(X))

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self.bits._bits(self._rows(X))

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same directions."""
        first = encoders[0].directions
        for encoder in encoders:
            encoder.check_directions(first)
        bits = [encoder.bits for encoder in encoders]
        return cls(directions=first, bits=type(bits[0]).concatenate(bits))

    def check_directions(self, others: Encoder) -> None:
        """Raise ValueError unless the directions are equal to ``others``, so that the bits can be joined."""
        if self.directions is others:
            return
        mine, theirs = self.directions.arrays(), others.arrays()
        if mine.keys() != theirs.keys() or not all(np.array_equal(mine[name], theirs[name]) for name in mine):
            raise ValueError("Augmented encoders must have the same directions to be concatenated.")

    @property
    def named_parts(self) -> dict[str, Encoder]:
        """Both parts."""
        return {"directions": self.directions, "bits": self.bits}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from its two parts."""
        if arrays or parts.keys() != {"directions", "bits"}:
            got = sorted([*parts, *arrays])
            raise ValueError(f"Augmented must have arrays of the parts 'bits' and 'directions' only. Got {got}.")
        return cls(**parts)

    def _check_parts(self) -> None:
        n_directions, n_features = self.directions.n_bits, self.directions.n_features
        if self.bits.n_features not in (n_directions, n_features + n_directions):
            raise ValueError(
                f"the arrays of 'bits' must take {n_directions} directions, with or without {n_features} features. "
                f"Got {self.bits.n_features} columns."
            )


def augmented_rows(X: NDArray[Any], directions: NDArray[Any], *, keep_features: bool) -> NDArray[Any]:
    """The rows that ``bits`` of an `Augmented` encoder takes: features and directions, or the directions alone.

    >>> augmented_rows(np.array([[1, 2]], np.uint8), np.array([[0.5]]), keep_features=True)
    array([[1. , 2. , 0.5]], dtype=float32)
    """
    dtype = np.float64 if X.dtype == np.float64 else np.float32
    limit = np.finfo(dtype).max  # a direction that overflows must not become an infinity or NaN that is not in X
    columns = np.nan_to_num(np.clip(directions, -limit, limit), copy=False).astype(dtype, copy=False)
    return np.hstack([X.astype(dtype, copy=False), columns]) if keep_features else columns
