"""How a fit goes on from bits that were learned before: a warm start or a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder, Mixed
from hashgrove.functions import BitRecord, LearnedBits, Learner
from hashgrove.runtime.interrupts import interruptible
from hashgrove.runtime.streams import seed_of
from hashgrove.storage.checkpoints import Checkpoint, Progress, fingerprint
from hashgrove.storage.models import plain
from hashgrove.supervision import Supervision

if TYPE_CHECKING:
    from hashgrove.fasthash import FastHash

__all__ = ["checkpoint_of", "earlier_encoder", "keeping", "known_bits", "write_checkpoint"]


def earlier_encoder(hasher: FastHash) -> Encoder | None:
    """What a warm start extends, without generic bits; None if the fit starts anew."""
    if not hasher.warm_start or not hasattr(hasher, "encoder_"):
        return None
    encoder = hasher.encoder_
    if getattr(hasher, "generic_bits_", 0):
        assert isinstance(encoder, Mixed)
        return encoder.parts[0]
    if hasher.n_bits < encoder.n_bits:
        raise ValueError(
            f"The 'n_bits' parameter must be at least {encoder.n_bits}, the bits learned so far, with "
            f"warm_start=True. Got {hasher.n_bits} instead."
        )
    return encoder


def checkpoint_of(
    hasher: FastHash, path: str | os.PathLike[str] | None, X: NDArray[Any], supervision: Supervision, learner: Learner
) -> Checkpoint | None:
    """The checkpoint of a fit with everything that decides what a bit becomes, however many bits there will be."""
    if path is None:
        return None
    left_out = hasher.not_saved | {"n_bits", "generic_bits"}
    values = hasher.get_params(deep=False) | {"hash_function": learner}
    parameters = {name: plain(value) for name, value in values.items() if name not in left_out}
    return Checkpoint(path, fingerprint(parameters, X, *supervision.arrays()))


@contextmanager
def keeping(hasher: FastHash, learned: LearnedBits) -> Iterator[None]:
    """Keep the bits learned so far if Ctrl-C comes; a warm start goes on from them."""
    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        if len(learned):
            hasher.encoder_, hasher.history_, hasher.generic_bits_ = learned.join(), learned.history, 0
        raise


def known_bits(
    hasher: FastHash, X: NDArray[Any], rng: np.random.Generator, file: Checkpoint | None, *, n_bits: int
) -> LearnedBits:
    """The bits that are known before the first new one: those of the checkpoint, of a warm start, or none.

    ``n_bits`` is how many bits are learned in all; the generic ones are not among them.
    """
    found = None if file is None else file.read(shape=X.shape, record=BitRecord)
    if found is not None:
        if found.encoder.n_bits > n_bits:
            raise ValueError(
                f"The 'n_bits' parameter must be at least {found.encoder.n_bits + hasher.n_bits - n_bits}, the bits in "
                f"the checkpoint. Got {hasher.n_bits} instead."
            )
        return LearnedBits(found.seed, found.encoder, list(found.bits), found.records)
    earlier = earlier_encoder(hasher)
    if earlier is None:
        return LearnedBits(seed_of(rng))
    if earlier.n_bits > n_bits:
        raise ValueError(
            f"The 'generic_bits' parameter must leave {earlier.n_bits} bits, those learned so far, with "
            f"warm_start=True. Got {hasher.n_bits - n_bits} of {hasher.n_bits} bits instead."
        )
    bits = np.where(earlier.scores(X, n_jobs=hasher.n_jobs) > 0, 1, -1).astype(np.int8).T
    return LearnedBits(seed_of(rng), earlier, list(bits), list(hasher.history_))


def write_checkpoint(file: Checkpoint, learned: LearnedBits) -> None:
    """Write all bits so far."""
    file.write(Progress(learned.join(), np.stack(learned.bits), learned.history, learned.seed))
