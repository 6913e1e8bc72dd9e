"""The bits that a fit has learned so far: none, those of a warm start, or those of a checkpoint, and the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder, Posterior, join
from hashgrove.step_one import AnyStepOne
from hashgrove.storage.checkpoints import Checkpoint, Progress
from hashgrove.two_step import BitRecord, NewBits

__all__ = ["LearnedBits"]

OTHER_DATA = (
    "With warm_start=True, the 'X' and 'y' parameters must be those of the previous fit and 'random_state' an integer, "
    "unless the hash function learns each bit by itself, as BoostedTrees(start=None) does. Got others; set "
    "warm_start=False, which learns a new model, and encode the items again."
)


class LearnedBits:
    """The bits of a fit so far: earlier ones that it started from, and those that it has learned itself.

    Parameters
    ----------
    seed : int
        Seed of the fit.
    encoder : Encoder, optional
        The hash functions of the earlier bits.
    bits : sequence of int8 arrays of shape (n,)
        The earlier bits as later ones see them: -1 or +1 for each training point.
    history : sequence of BitRecord
        The records of the earlier bits.
    infer_again : bool
        Whether step 1 can infer the earlier bits again, since ``seed`` is the one that they were learned with.
    """

    def __init__(
        self,
        seed: int,
        encoder: Encoder | None = None,
        bits: Sequence[NDArray[np.int8]] = (),
        history: Sequence[BitRecord] = (),
        *,
        infer_again: bool = False,
    ) -> None:
        self.seed, self.encoder, self.infer_again = seed, encoder, infer_again
        self._bits, self._history = bits, history
        self._new: list[tuple[NewBits, list[NDArray[np.int8]]]] = []

    @classmethod
    def of_encoder(
        cls,
        encoder: Encoder,
        X: NDArray[Any],
        history: Sequence[BitRecord],
        *,
        seed: int,
        infer_again: bool,
        n_jobs: int | None,
    ) -> Self:
        """The bits of an earlier fit, which a warm start extends; ``X`` holds the training rows."""
        bits = np.where(encoder.scores(X, n_jobs=n_jobs) > 0, np.int8(1), np.int8(-1)).T
        return cls(seed, encoder, list(bits), list(history), infer_again=infer_again)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, X: NDArray[Any]) -> Self | None:
        """The bits in a checkpoint; None if there is no file yet."""
        found = checkpoint.read(shape=X.shape, record=BitRecord)
        return None if found is None else cls(found.seed, found.encoder, list(found.bits), found.records)

    def __len__(self) -> int:
        return len(self._bits) + sum(len(seen) for _, seen in self._new)

    @property
    def bits(self) -> list[NDArray[np.int8]]:
        """All bits as later ones see them: -1 or +1 for each training point."""
        return [*self._bits, *(bit for _, seen in self._new for bit in seen)]

    @property
    def history(self) -> list[BitRecord]:
        """One record per bit."""
        return [*self._history, *(record for new, _ in self._new for record in new.records)]

    def replay(self, step_one: AnyStepOne, *, stagewise: bool) -> list[NDArray[np.int8]]:
        """Make the earlier bits known to step 1; returns their inferred values, or the outputs that stand in for them.

        Step 1 infers them again where later bits were fitted to inferred bits, and where it can.
        """
        inferred = []
        for bit in self.bits:
            inferred.append(step_one.infer().z if self.infer_again and not stagewise else bit)
            step_one.add(inferred[-1])
        return inferred

    def add(self, new: NewBits, *, stagewise: bool) -> None:
        """Add bits that were learned together, in one step, so that Ctrl-C finds them whole or not at all.

        Later bits see their outputs if ``stagewise``, otherwise their inferred values.

        Raises ValueError at the first new bit if it cannot be joined with the earlier ones.
        """
        if self.encoder is not None and not self._new:
            try:
                join([self.encoder, new.encoder])
            except ValueError as error:
                raise ValueError(f"{OTHER_DATA} ({error})") from error
        self._new.append((new, new.outputs if stagewise else new.inferred))

    def check_data(self, earlier: str | None, now: str) -> None:
        """Refuse other rows or labels before any work is done, where bits share what was learned from the earlier ones.

        ``earlier`` and ``now`` are fingerprints of the data; None if it is not known.
        """
        if self.encoder is not None and earlier not in (None, now) and self.encoder.part(Posterior) is not None:
            raise ValueError(OTHER_DATA)

    def join(self) -> Encoder:
        """One encoder of all bits."""
        earlier = [] if self.encoder is None else [self.encoder]
        return join([*earlier, *(new.encoder for new, _ in self._new)])

    def write(self, checkpoint: Checkpoint) -> None:
        """Write all bits so far."""
        checkpoint.write(Progress(self.join(), np.stack(self.bits), self.history, self.seed))
