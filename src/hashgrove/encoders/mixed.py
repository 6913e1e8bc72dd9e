"""Codes with bits from several encoders: in a given order, or with generic bits spread among the learned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.composite import MAX_PARTS, Composite, Numbered, numbered_parts, refuse_arrays
from hashgrove.encoders.decoding import Decoder

__all__ = ["Mixed", "Spread", "join"]


@dataclass(frozen=True, eq=False)
class Mixed(Numbered):
    """Codes whose bits come from several encoders, in a given order.

    Parameters
    ----------
    parts : tuple of Encoder
    source : uint8 array of shape (n_bits,)
        For each bit, the number of the part that it comes from. The bits of a part keep their order.

    Examples
    --------
    >>> from hashgrove.encoders import Linear
    >>> two, one = (Linear(weights=np.ones((n, 1)), bias=np.arange(n) * 1.0) for n in (2, 1))
    >>> Mixed(parts=(two, one), source=np.array([0, 1, 0], np.uint8)).scores([[5.0]]).tolist()
    [[5.0, 5.0, 6.0]]
    """

    parts: tuple[Encoder, ...]
    source: NDArray[np.uint8]

    @property
    def accepts_sparse(self) -> bool:
        """Whether all parts accept scipy CSR matrices."""
        return all(part.accepts_sparse for part in self.parts)

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.source)

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """The array that says where each bit comes from."""
        return {"source": self.source}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from parts that are named by their numbers, and from ``source``."""
        refuse_arrays(cls, arrays.keys() ^ {"source"})
        return cls(parts=numbered_parts(cls, parts), source=arrays["source"])

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """The column of each bit among the bits of all parts, one part after the other."""
        return np.argsort(np.argsort(self.source, kind="stable"), kind="stable")

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.hstack([part._scores(X) for part in self.parts])[:, self._place]

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return np.hstack([part._bits(X) for part in self.parts])[:, self._place]

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, in their order."""
        parts: list[Encoder] = []
        sources = []
        for encoder in encoders:
            sources.append(encoder.source.astype(np.int64) + len(parts))
            parts.extend(encoder.parts)
        if len(parts) > MAX_PARTS:
            raise ValueError(f"Mixed encoders must have at most {MAX_PARTS} parts together. Got {len(parts)}.")
        return cls(parts=tuple(parts), source=np.concatenate(sources).astype(np.uint8))

    def _check_parts(self) -> None:
        if self.source.dtype != np.uint8 or self.source.ndim != 1:
            raise ValueError(f"the array 'source' must be uint8 of shape (n_bits,). Got {self.source.dtype}.")
        counts = np.bincount(self.source, minlength=len(self.parts)).tolist()
        if counts != [part.n_bits for part in self.parts]:
            raise ValueError(f"the array 'source' must name each part once per bit of it. Got {counts} times.")
        widths = {part.n_features for part in self.parts}
        if len(widths) > 1:
            raise ValueError(f"the arrays of all parts must have the same number of features. Got {sorted(widths)}.")


@dataclass(frozen=True, eq=False)
class Spread(Composite):
    """Codes in which generic bits are spread evenly among the learned ones.

    So the first bits of a code are themselves a good shorter code, with the same share of generic bits.

    Parameters
    ----------
    learned, generic : Encoder

    Examples
    --------
    >>> from hashgrove.encoders import Linear
    >>> six, two = (Linear(weights=np.ones((n, 1)), bias=np.zeros(n)) for n in (6, 2))
    >>> Spread(learned=six, generic=two).is_generic.astype(int).tolist()
    [0, 0, 0, 1, 0, 0, 0, 1]
    """

    learned: Encoder
    generic: Encoder

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.learned.n_bits + self.generic.n_bits

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.learned.n_features

    @property
    def is_generic(self) -> NDArray[np.bool_]:
        """Whether each bit is a generic one."""
        return np.diff(np.arange(self.n_bits + 1) * self.generic.n_bits // self.n_bits) == 1

    def merge(self, learned: NDArray[Any], generic: NDArray[Any]) -> NDArray[Any]:
        """Columns of the learned bits and of the generic ones, in the order of the code."""
        place = np.argsort(np.argsort(self.is_generic, kind="stable"), kind="stable")
        return np.hstack([learned, generic])[:, place]

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.merge(self.learned._scores(X), self.generic._scores(X))

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self.merge(self.learned._bits(X), self.generic._bits(X))

    @cached_property
    def decoder(self) -> Decoder | None:
        """The decoder of the learned bits, to which generic bits add nothing."""
        inner = self.learned.decoder
        if inner is None:
            return None
        nothing = np.zeros((len(inner.offset), self.generic.n_bits), np.float32)
        return replace(inner, table=np.ascontiguousarray(self.merge(inner.table.T, nothing).T))

    def _as_queries(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        scores, p = self.learned._as_queries(X)
        return self.merge(scores, self.generic._scores(X)), p

    @property
    def named_parts(self) -> dict[str, Encoder]:
        """Both parts."""
        return {"learned": self.learned, "generic": self.generic}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from its two parts."""
        refuse_arrays(cls, arrays.keys() | parts.keys() ^ {"learned", "generic"})
        return cls(**parts)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Mixed:  # type: ignore[override]
        """One encoder that gives the bits of all ``encoders``, in their order."""
        source = np.repeat(np.arange(len(encoders)), [encoder.n_bits for encoder in encoders])
        return Mixed(parts=tuple(encoders), source=source.astype(np.uint8))

    def _check_parts(self) -> None:
        widths = {self.learned.n_features, self.generic.n_features}
        if len(widths) > 1:
            raise ValueError(f"the arrays of both parts must have the same number of features. Got {sorted(widths)}.")


def join(encoders: Sequence[Any]) -> Encoder:
    """One encoder that gives the bits of all ``encoders``, in their order; they may be of different classes."""
    order: list[Any] = list(dict.fromkeys(type(encoder) for encoder in encoders))  # one part per class
    parts = tuple(kind.concatenate([encoder for encoder in encoders if type(encoder) is kind]) for kind in order)
    source = [order.index(type(encoder)) for encoder in encoders for _ in range(encoder.n_bits)]
    return parts[0] if len(parts) == 1 else Mixed(parts=parts, source=np.array(source, np.uint8))
