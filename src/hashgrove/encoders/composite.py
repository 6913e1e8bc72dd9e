"""Encoders that are made of other encoders, and the first of them: sums of scores.

In a model file the arrays of a part are named "part.encoder.array", for example "bits.trees.weights".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.base import Encoder

__all__ = ["MAX_PARTS", "Composite", "Numbered", "Sum", "numbered_parts", "refuse_arrays"]

MAX_DEPTH = 8  # of composites inside composites; a file could otherwise ask for endless recursion
MAX_PARTS = 256

Part = TypeVar("Part", bound=Encoder)


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

    def part(self, kind: type[Part]) -> Part | None:
        """This encoder if it is of a class, or the first of its parts that is or has one; None if there is none."""
        inner = (part.part(kind) for part in self.named_parts.values())
        return self if isinstance(self, kind) else next((part for part in inner if part is not None), None)

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


class Numbered(Composite):
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
class Sum(Numbered):
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
        refuse_arrays(cls, arrays.keys())
        return cls(parts=numbered_parts(cls, parts))

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


def numbered_parts(encoder_class: type[Encoder], parts: Mapping[str, Encoder]) -> tuple[Encoder, ...]:
    """The parts in the order of their numbers."""
    names = [str(number) for number in range(len(parts))]
    if not 0 < len(parts) <= MAX_PARTS or set(names) != parts.keys():
        raise ValueError(
            f"{encoder_class.__name__} must have arrays of parts that are numbered from 0. Got {sorted(parts)}."
        )
    return tuple(parts[name] for name in names)


def refuse_arrays(encoder_class: type[Encoder], names: Iterable[str]) -> None:
    """Raise ValueError if any of these names of arrays is missing or unknown."""
    if names:
        raise ValueError(
            f"{encoder_class.__name__} must have its own arrays and no others. "
            f"Missing or unknown arrays are {sorted(names)}."
        )


def _check_depth(names: Iterable[str]) -> None:
    depth = max((name.count(".") // 2 for name in names), default=0)
    if depth > MAX_DEPTH:
        raise ValueError(f"the arrays of at most {MAX_DEPTH} nested encoders can be in a file. Got {depth}.")
