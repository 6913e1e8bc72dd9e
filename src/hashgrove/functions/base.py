"""The contract of a learner of step 2, and what learners share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.supervision import Supervision

__all__ = ["BatchLearner", "HashFunction", "JointLearner", "Learner", "StartingLearner", "bit_of", "is_constant"]


class Learner(Protocol):
    """Learns a hash function for one bit.

    Any object with these two methods can be passed as ``FastHash(hash_function=...)``. It may have attributes that say
    what suits it; FastHash follows them unless its own parameters say otherwise.

    Attributes
    ----------
    accepts_sparse : bool, default=False
        Whether it accepts scipy sparse rows.
    accepts_store : bool, default=False
        Whether `prepare` takes a `FeatureStore`, which has the bins of the rows and nothing else of them.
    accepts_stored_rows : bool, default=False
        Whether `prepare` takes `StoredRows`: it never asks for all of the rows at once.
    stagewise, weighted : bool, default=True
        What FastHash's parameters of these names should be.
    generic_share : float, default=0.0
        The share of the bits that should be generic.
    semi_supervised : bool, default=False
        Whether `prepare` takes the argument ``others``: rows about which nothing is known, or None.
    """

    def prepare(
        self,
        X: Any,
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> Any:
        """Check the parameters and compute what all bits share, once per fit. The result is passed to `learn`.

        ``earlier`` is the encoder that a warm start extends, or None.
        """

    def learn(
        self, data: Any, z: NDArray[np.int8], weights: NDArray[np.float64] | None, rng: np.random.Generator
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Learn one bit. Returns an encoder of one bit, and the values, -1 or +1, that it gives for the training rows.

        ``z`` holds the values to learn, -1 or +1 for each row. ``weights`` say how much each row matters; a learner
        may ignore them. If bits are not learned stagewise, several threads call this method at the same time, and
        ``data`` must not change.
        """


@runtime_checkable
class JointLearner(Protocol):
    """Learns the hash functions of all bits together, which may depend on each other.

    It has `Learner.prepare`, and `learn_all` in the place of `Learner.learn`. Step 1 infers all bits before; so
    ``stagewise`` must be False, and a warm start or a checkpoint cannot add bits to those that are there.
    """

    stagewise: bool

    def prepare(
        self,
        X: Any,
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> Any:
        """As `Learner.prepare`."""

    def learn_all(
        self, data: Any, Z: NDArray[np.int8], rng: np.random.Generator
    ) -> tuple[Encoder, Sequence[NDArray[np.int8]]]:
        """Learn all bits. Returns an encoder of them, and the values that it gives for the training rows, per bit.

        ``Z``, of shape (n_bits, n), holds the values to learn, -1 or +1.
        """


@runtime_checkable
class BatchLearner(Learner, Protocol):
    """A learner that can learn independent bits together, for less than one after the other."""

    def learn_batch(self, data: Any, Z: NDArray[np.int8]) -> list[tuple[Encoder, NDArray[np.int8]]]:
        """The results of `Learner.learn` for each row of ``Z``, without weights."""


@runtime_checkable
class StartingLearner(Learner, Protocol):
    """A learner that can start independent bits together, in the same passes over the rows, before it learns each."""

    @property
    def starts_together(self) -> bool:
        """Whether that saves time; if not, `Learner.learn` is called for each bit."""

    def start_bits(
        self, data: Any, Z: NDArray[np.int8], weights: Sequence[NDArray[np.float64] | None]
    ) -> Sequence[Any]:
        """What `learn_started` needs of each bit, whose values are a row of ``Z``."""

    def learn_started(
        self,
        data: Any,
        started: Any,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """The result of `Learner.learn`, given what `start_bits` gave for this bit."""


HashFunction = Learner | JointLearner


def bit_of(encoder: Encoder, X: Any, n_jobs: int | None) -> NDArray[np.int8]:
    """The values, -1 or +1, that an encoder of one bit gives for the rows of ``X``."""
    return np.where(encoder.scores(X, n_jobs=n_jobs)[:, 0] > 0, 1, -1).astype(np.int8)


def is_constant(z: NDArray[np.int8]) -> bool:
    """Whether all values of a bit are equal, so that there is nothing to learn."""
    return bool(np.all(z == z[0]))
