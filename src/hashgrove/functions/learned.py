"""The bits that a fit has learned so far, and the record of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Augmented, Encoder, Mixed
from hashgrove.functions.classifier import FittedClassifiers

__all__ = ["BitRecord", "LearnedBits", "join", "spread"]


@dataclass(frozen=True)
class BitRecord:
    """What happened when one bit was learned.

    Attributes
    ----------
    bit : int
        Number of the bit, starting from 0.
    objective : float
        Mean loss over the pairs, with this bit included.
    objective_before : float
        The same with distances in the bits before this one, but still divided by the number of bits including it. The
        objective in the paper's Table 5 is that of the last bit.
    objective_of : {"learned bits", "inferred bits"}
        What both are taken over: what the hash functions give or, if not ``stagewise``, what step 1 inferred, without
        the errors of the hash functions.
    training_error : float
        Share of the training points whose learned bit differs from the inferred bit.
    ones : float
        Share of the training points whose learned bit is one; 0 or 1 means that the bit is constant.
    seconds_inference, seconds_learning : float
        Time that step 1 and step 2 took.
    hash_function : str
        The class of the learner.
    """

    bit: int
    objective: float
    objective_before: float
    objective_of: str
    training_error: float
    ones: float
    seconds_inference: float
    seconds_learning: float
    hash_function: str = ""


def join(encoders: Sequence[Any]) -> Encoder:
    """One encoder that gives the bits of all ``encoders``, in their order; they may be of different classes."""
    kinds = {type(encoder) for encoder in encoders}
    if kinds == {Augmented}:
        first = encoders[0].directions
        for encoder in encoders:
            encoder.check_directions(first)
        return Augmented(directions=first, bits=join([encoder.bits for encoder in encoders]))
    if len(kinds) == 1:
        return kinds.pop().concatenate(encoders)
    if FittedClassifiers in kinds:
        return FittedClassifiers.concatenate(encoders)
    order: list[Any] = list(dict.fromkeys(type(encoder) for encoder in encoders))  # one part per class
    parts = tuple(kind.concatenate([encoder for encoder in encoders if type(encoder) is kind]) for kind in order)
    source = [order.index(type(encoder)) for encoder in encoders for _ in range(encoder.n_bits)]
    return Mixed(parts=parts, source=np.array(source, np.uint8))


def spread(learned: Encoder, generic: Encoder) -> Mixed:
    """One encoder in which the generic bits are spread evenly among the learned ones.

    So the first bits of a code are themselves a good shorter code, with the same share of generic bits.

    >>> from hashgrove.encoders import Linear
    >>> six, two = (Linear(weights=np.ones((n, 1)), bias=np.zeros(n)) for n in (6, 2))
    >>> spread(six, two).source.tolist()
    [0, 0, 0, 1, 0, 0, 0, 1]
    """
    n_bits, n_generic = learned.n_bits + generic.n_bits, generic.n_bits
    steps = np.arange(n_bits + 1) * n_generic // n_bits
    return Mixed(parts=(learned, generic), source=np.diff(steps).astype(np.uint8))


class LearnedBits:
    """The bits of a fit so far: earlier ones that it started from, and those that it has learned itself."""

    def __init__(
        self,
        seed: int,
        encoder: Encoder | None = None,
        bits: Sequence[NDArray[np.int8]] = (),
        history: Sequence[BitRecord] = (),
    ) -> None:
        self.seed, self.encoder, self._bits, self._history = seed, encoder, bits, history
        self._new: list[tuple[Encoder, NDArray[np.int8], BitRecord]] = []

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def bits(self) -> list[NDArray[np.int8]]:
        """What later bits see of each bit: -1 or +1 for each training point."""
        return [*self._bits, *(bit for _, bit, _ in self._new)]

    @property
    def history(self) -> list[BitRecord]:
        """One record per bit."""
        return [*self._history, *(record for _, _, record in self._new)]

    def add(self, encoder: Encoder, bit: NDArray[np.int8], record: BitRecord) -> None:
        """Add one bit, in one step, so that Ctrl-C finds it whole or not at all."""
        self._new.append((encoder, bit, record))

    def join(self) -> Encoder:
        """One encoder of all bits."""
        earlier = [] if self.encoder is None else [self.encoder]
        return join([*earlier, *(encoder for encoder, _, _ in self._new)])
