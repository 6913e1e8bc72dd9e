"""Bits of lifted rows: the scores of one encoder are the features of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.composite import Composite
from hashgrove.encoders.decoding import Decoder
from hashgrove.encoders.mixed import join

__all__ = ["Lifted"]


@dataclass(frozen=True, eq=False)
class Lifted(Composite):
    """The bits that one encoder gives for the scores of another one, such as Gaussian features.

    Parameters
    ----------
    lift : Encoder
        Its scores take the place of the features.
    bits : Encoder
        It gives the bits.

    Examples
    --------
    >>> from hashgrove.encoders import Linear
    >>> lift = Linear(weights=np.array([[1.0, 1.0], [0.0, 2.0]]), bias=np.array([-1.0, 0.0]))
    >>> bits = Linear(weights=np.array([[1.0, -1.0]]), bias=np.zeros(1))
    >>> Lifted(lift=lift, bits=bits).scores([[0.5, 2.0]]).tolist()
    [[-2.5]]
    """

    lift: Encoder
    bits: Encoder

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.bits.n_bits

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.lift.n_features

    def _rows(self, X: NDArray[Any]) -> NDArray[Any]:
        dtype = np.float64 if X.dtype == np.float64 else np.float32
        limit = np.finfo(dtype).max  # a score that overflows must not become an infinity or NaN that is not in X
        rows = np.nan_to_num(np.clip(self.lift._scores(X), -limit, limit), copy=False)
        return rows.astype(dtype, copy=False)

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.bits._scores(self._rows(X))

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self.bits._bits(self._rows(X))

    @property
    def decoder(self) -> Decoder | None:
        """The decoder of the bits."""
        return self.bits.decoder

    def _as_queries(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        return self.bits._as_queries(self._rows(X))

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same lift."""
        first = encoders[0].lift
        for other in encoders[1:]:
            mine, theirs = first.arrays(), other.lift.arrays()
            if mine.keys() != theirs.keys() or not all(np.array_equal(mine[name], theirs[name]) for name in mine):
                raise ValueError("Lifted encoders must have the same 'lift' to be concatenated.")
        return cls(lift=first, bits=join([encoder.bits for encoder in encoders]))

    @property
    def named_parts(self) -> dict[str, Encoder]:
        """Both parts."""
        return {"lift": self.lift, "bits": self.bits}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from its two parts."""
        if arrays or parts.keys() != {"lift", "bits"}:
            raise ValueError(
                f"Lifted must have arrays of the parts 'bits' and 'lift' only. Got {sorted([*parts, *arrays])}."
            )
        return cls(**parts)

    def _check_parts(self) -> None:
        if self.bits.n_features != self.lift.n_bits:
            raise ValueError(
                f"the arrays of 'bits' must take the {self.lift.n_bits} scores of 'lift'. "
                f"Got {self.bits.n_features} columns."
            )
