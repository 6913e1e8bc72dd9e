"""Encoders that are made of other encoders: what they share, sums of scores, and codes with bits from several encoders.

In a model file the arrays of a part are named "part.encoder.array", for example "bits.trees.weights".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["Composite", "Mixed", "Sum"]

MAX_DEPTH = 8  # of composites inside composites; a file could otherwise ask for endless recursion
MAX_PARTS = 256


class Composite(Encoder):
    """An encoder with parts, which may be of any class in ``hashgrove.encoders.ENCODERS``.

    With a part of another class the encoder works but cannot be saved. A subclass gives its `named_parts`, makes itself
    `from_parts`, and checks in `_check_parts` that they fit together.
    """

    @property
    @abstractmethod
    def named_parts(self) -> Mapping[str, Encoder]:
        """The parts, by the names that they have in a model file."""

    @classmethod
    @abstractmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from its parts, by name, and from its own arrays; ValueError for other names."""

    def _check_parts(self) -> None:
        """Raise ValueError unless the parts, each of them checked, fit together."""

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays besides those of the parts."""
        return {}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of all parts, named "part.encoder.array", and the encoder's own arrays."""
        from hashgrove.encoders import encoder_name  # the registry imports this module

        arrays = {
            f"{part}.{encoder_name(encoder)}.{name}": array
            for part, encoder in self.named_parts.items()
            for name, array in encoder.arrays().items()
        }
        _check_depth(arrays)
        return arrays | self.own_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build an encoder from what `arrays` returned; all of it is checked, since a file is untrusted."""
        from hashgrove.encoders import ENCODERS  # the registry imports this module

        _check_depth(arrays)
        own = {name: array for name, array in arrays.items() if "." not in name}
        found: dict[str, dict[str, dict[str, NDArray[Any]]]] = {}
        for name in arrays.keys() - own.keys():
            part, kind, field = name.split(".", maxsplit=2) if name.count(".") > 1 else (name, "", "")
            found.setdefault(part, {}).setdefault(kind, {})[field] = arrays[name]
        parts = {}
        for part, kinds in found.items():
            if len(kinds) != 1 or not kinds.keys() <= ENCODERS.keys():
                raise ValueError(
                    f"{cls.__name__} must have arrays of {part!r} for exactly one of the encoders {sorted(ENCODERS)}. "
                    f"Got {sorted(kinds)}."
                )
            ((kind, fields),) = kinds.items()
            parts[part] = ENCODERS[kind].from_arrays(fields)
        encoder = cls.from_parts(parts, own)
        encoder.check()
        return encoder

    def check(self) -> None:
        """Raise ValueError unless all parts are as declared and fit together."""
        for part in self.named_parts.values():
            part.check()
        self._check_parts()


class _Numbered(Composite):
    """A composite whose parts, all for the same features, are named by their numbers."""

    parts: tuple[Encoder, ...]

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.parts[0].n_features

    @property
    def named_parts(self) -> dict[str, Encoder]:
        """The parts, by number."""
        return {str(number): part for number, part in enumerate(self.parts)}


@dataclass(frozen=True, eq=False)
class Sum(_Numbered):
    """Scores that are the sums of the scores of several encoders with the same bits.

    Parameters
    ----------
    parts : tuple of Encoder

    Examples
    --------
    >>> from hashgrove.encoders import Linear
    >>> left = Linear(weights=np.array([[1.0, 0.0]]), bias=np.array([-1.0]))
    >>> right = Linear(weights=np.array([[0.0, 2.0]]), bias=np.zeros(1))
    >>> Sum(parts=(left, right)).scores([[0.5, 2.0]]).tolist()
    [[3.5]]
    """

    parts: tuple[Encoder, ...]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.parts[0].n_bits

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the sum from parts that are named by their numbers."""
        _refuse_arrays(cls, arrays.keys())
        return cls(parts=_numbered(cls, parts))

    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        scores = self.parts[0]._scores(X).astype(np.float64)
        for part in self.parts[1:]:
            scores += part._scores(X)
        return scores

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have parts of the same classes."""
        kinds = {tuple(type(part) for part in encoder.parts) for encoder in encoders}
        if len(kinds) > 1:
            raise ValueError("Sum encoders must have parts of the same classes to be concatenated.")
        columns: Any = zip(*(encoder.parts for encoder in encoders), strict=True)
        return cls(parts=tuple(type(column[0]).concatenate(column) for column in columns))

    def _check_parts(self) -> None:
        shapes = {(part.n_bits, part.n_features) for part in self.parts}
        if len(shapes) > 1:
            raise ValueError(f"the arrays of all parts must have the same (n_bits, n_features). Got {sorted(shapes)}.")


@dataclass(frozen=True, eq=False)
class Mixed(_Numbered):
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
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.source)

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """The array that says where each bit comes from."""
        return {"source": self.source}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Encoder], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the encoder from parts that are named by their numbers, and from ``source``."""
        _refuse_arrays(cls, arrays.keys() ^ {"source"})
        return cls(parts=_numbered(cls, parts), source=arrays["source"])

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


def _numbered(encoder_class: type[Encoder], parts: Mapping[str, Encoder]) -> tuple[Encoder, ...]:
    """The parts in the order of their numbers."""
    names = [str(number) for number in range(len(parts))]
    if not 0 < len(parts) <= MAX_PARTS or set(names) != parts.keys():
        raise ValueError(
            f"{encoder_class.__name__} must have arrays of parts that are numbered from 0. Got {sorted(parts)}."
        )
    return tuple(parts[name] for name in names)


def _refuse_arrays(encoder_class: type[Encoder], names: Iterable[str]) -> None:
    if names:
        raise ValueError(
            f"{encoder_class.__name__} must have its own arrays and no others. "
            f"Missing or unknown arrays are {sorted(names)}."
        )


def _check_depth(names: Iterable[str]) -> None:
    depth = max((name.count(".") // 2 for name in names), default=0)
    if depth > MAX_DEPTH:
        raise ValueError(f"the arrays of at most {MAX_DEPTH} nested encoders can be in a file. Got {depth}.")
