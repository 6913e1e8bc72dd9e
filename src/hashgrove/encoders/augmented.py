"""Bits that see directions beside the features: one encoder's scores are columns of another one's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.kernel import Kernel
from hashgrove.encoders.linear import Linear
from hashgrove.encoders.trees import Trees

__all__ = ["Augmented", "with_directions"]

DIRECTIONS: dict[str, type[Encoder]] = {"linear": Linear, "kernel": Kernel}
BITS: dict[str, type[Encoder]] = {"trees": Trees, "linear": Linear, "kernel": Kernel}


@dataclass(frozen=True, eq=False)
class Augmented(Encoder):
    """The bits of rows (x, directions of x), or of the directions alone where ``bits`` has no more columns than those.

    Parameters
    ----------
    directions : Linear or Kernel
        Its scores are the columns that come after the features.
    bits : Encoder

    Examples
    --------
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
        """Whether ``bits`` sees the features, too."""
        return self.bits.n_features > self.directions.n_bits

    def _columns(self, X: NDArray[Any]) -> NDArray[Any]:
        return with_directions(X, self.directions._scores(X), keep_features=self.keeps_features)

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.bits._scores(self._columns(X))

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self.bits._bits(self._columns(X))

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """The bits of all ``encoders``, which must have the same directions."""
        first = encoders[0]
        for encoder in encoders:
            mine, theirs = first.directions.arrays(), encoder.directions.arrays()
            if mine.keys() != theirs.keys() or not all(np.array_equal(mine[name], theirs[name]) for name in mine):
                raise ValueError("Augmented encoders must have the same directions to be concatenated.")
        bits = [encoder.bits for encoder in encoders]
        return cls(directions=first.directions, bits=type(bits[0]).concatenate(bits))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of both parts, by part, kind of encoder and field."""
        found: dict[str, NDArray[Any]] = {}
        for part, kinds in (("directions", DIRECTIONS), ("bits", BITS)):
            encoder = getattr(self, part)
            kind = next((name for name, known in kinds.items() if known is type(encoder)), "other")
            found |= {f"{part}.{kind}.{name}": array for name, array in encoder.arrays().items()}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of `arrays`, for arrays from an untrusted file."""
        fields: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            part, _, field = name.rpartition(".")
            fields.setdefault(part, {})[field] = array
        found = {}
        for part, kinds in (("directions", DIRECTIONS), ("bits", BITS)):
            there = [kind for kind in kinds if f"{part}.{kind}" in fields]
            if len(there) != 1:
                raise ValueError(f"a Augmented encoder has {part!r} of one kind of {sorted(kinds)}, not {there}")
            found[part] = kinds[there[0]].from_arrays(fields.pop(f"{part}.{there[0]}"))
        if fields:
            raise ValueError(f"a Augmented encoder has no arrays of {sorted(fields)}")
        encoder = cls(**found)
        encoder._check()
        return encoder

    def _check(self) -> None:
        n_directions, n_features = self.directions.n_bits, self.directions.n_features
        if self.bits.n_features not in (n_directions, n_features + n_directions):
            raise ValueError(
                f"the bits of a Augmented encoder take {n_directions} directions, with or without {n_features} "
                f"features. Got {self.bits.n_features} columns."
            )


def with_directions(X: NDArray[Any], directions: NDArray[Any], *, keep_features: bool) -> NDArray[Any]:
    """Rows of features and directions, of one floating type, or of directions alone."""
    kind = np.float64 if X.dtype == np.float64 else np.float32
    columns = directions.astype(kind, copy=False)
    return np.hstack([X.astype(kind, copy=False), columns]) if keep_features else columns
