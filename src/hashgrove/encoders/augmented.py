"""Bits that see directions besides the features: the scores of one encoder are columns of the rows of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Augmented", "augmented_rows"]

MAX_DEPTH = 8  # of Augmented encoders inside Augmented encoders; a file could otherwise ask for endless recursion


@dataclass(frozen=True, eq=False)
class Augmented(Encoder):
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
        first = encoders[0]
        for encoder in encoders:
            mine, theirs = first.directions.arrays(), encoder.directions.arrays()
            if mine.keys() != theirs.keys() or not all(np.array_equal(mine[name], theirs[name]) for name in mine):
                raise ValueError("Augmented encoders must have the same directions to be concatenated.")
        bits = [encoder.bits for encoder in encoders]
        return cls(directions=first.directions, bits=type(bits[0]).concatenate(bits))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of both parts, named "part.encoder.array", for example "bits.trees.weights"."""
        from hashgrove.encoders import encoder_name  # the registry imports this module

        arrays = {
            f"{part}.{encoder_name(encoder)}.{name}": array
            for part, encoder in (("directions", self.directions), ("bits", self.bits))
            for name, array in encoder.arrays().items()
        }
        _check_depth(arrays)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build an encoder from what `arrays` returned; all of it is checked, since a file is untrusted."""
        from hashgrove.encoders import ENCODERS  # the registry imports this module

        _check_depth(arrays)
        found: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"directions": {}, "bits": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            kind, _, field = rest.partition(".")
            if part not in found:
                raise ValueError(f"Augmented has no array {name!r}, only arrays of {sorted(found)}.")
            found[part].setdefault(kind, {})[field] = array
        parts = {}
        for part, kinds in found.items():
            if len(kinds) != 1 or not kinds.keys() <= ENCODERS.keys():
                raise ValueError(
                    f"Augmented must have arrays of {part!r} for exactly one of the encoders {sorted(ENCODERS)}. "
                    f"Got {sorted(kinds)}."
                )
            ((kind, fields),) = kinds.items()
            parts[part] = ENCODERS[kind].from_arrays(fields)
        encoder = cls(**parts)
        encoder.check()
        return encoder

    def check(self) -> None:
        """Raise ValueError unless both parts are as declared and fit together."""
        self.directions.check()
        self.bits.check()
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


def _check_depth(names: Iterable[str]) -> None:
    depth = max((name.count(".") // 2 for name in names), default=0)
    if depth > MAX_DEPTH:
        raise ValueError(f"the arrays of at most {MAX_DEPTH} nested Augmented encoders can be in a file. Got {depth}.")
