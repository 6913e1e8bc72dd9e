"""Losses of a pair of points, and Proposition 1: with any of them, learning one bit is a quadratic problem.

A loss is a function ``loss(distance, similar, n_bits)`` of the Hamming distance of a pair, elementwise on arrays. Any
callable of this form can be used. The losses of the paper (section 3) are divided by n_bits^2, as in the authors' code,
so that their values can be compared between code lengths; a positive factor changes no code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.runtime.parameters import ParameterError

__all__ = ["LOSSES", "Coefficients", "Loss", "check_loss", "coefficients", "loss_tables"]

Loss = Callable[[Any, Any, int], Any]
FIXED_POINT_BITS = 24  # of the largest coefficient, so that sums over 2^38 pairs still fit int64


class Coefficients(NamedTuple):
    """The coefficients a_ij of one bit, as fixed-point integers.

    Two tables, for similar and for dissimilar pairs: entry ``d`` is a_ij of a pair whose distance in the bits before
    this one is ``d``.
    """

    similar: NDArray[np.int32]
    dissimilar: NDArray[np.int32]


def bre(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """[delta(y < 0) - d / m]^2: similar pairs should be at distance 0 and dissimilar ones at distance m.

    >>> float(bre(1, False, 4))
    0.5625
    """
    return (np.where(similar, 0.0, 1.0) - np.asarray(distance) / n_bits) ** 2


def ksh(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """(y - s / m)^2 with the Hamming affinity s = m - 2 d, which is exactly four times `bre`.

    For y = 1 it is (2 d / m)^2; for y = -1 it is (2 - 2 d / m)^2.

    >>> float(ksh(1, False, 4))
    2.25
    """
    return 4.0 * bre(distance, similar, n_bits)


def hinge(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """(d / m)^2 for similar pairs, max(1/2 - d / m, 0)^2 for dissimilar ones: a distance of m / 2 is far enough.

    >>> hinge([0, 1, 2, 3, 4], False, 4).tolist()
    [0.25, 0.0625, 0.0, 0.0, 0.0]
    """
    share = np.asarray(distance) / n_bits
    return np.where(similar, share, np.maximum(0.5 - share, 0.0)) ** 2


def exph(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """exp[y d / m + delta(y < 0)]: grows exponentially with the distance of similar pairs.

    >>> float(exph(4, False, 4))
    1.0
    """
    share = np.asarray(distance) / n_bits
    return np.exp(np.where(similar, share, 1.0 - share))


LOSSES: dict[str, Loss] = {"ksh": ksh, "hinge": hinge, "bre": bre, "exph": exph}


def loss_tables(loss: Loss, n_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two tables, of similar and of dissimilar pairs, of the loss at each distance from 0 to ``n_bits``.

    >>> similar, dissimilar = loss_tables(hinge, 2)
    >>> similar.tolist(), dissimilar.tolist()
    ([0.0, 0.25, 1.0], [0.25, 0.0, 0.0])
    """
    distance = np.arange(n_bits + 1)
    tables = []
    for similar in (True, False):
        table = np.asarray(loss(distance, np.full(n_bits + 1, similar), n_bits), dtype=np.float64)
        if table.shape != distance.shape or not np.isfinite(table).all():
            raise ParameterError(
                "loss",
                "must return one finite number per distance. "
                f"Got {table!r} for {'similar' if similar else 'dissimilar'} pairs at {n_bits} bits instead.",
            )
        tables.append(table)
    return tables[0], tables[1]


def coefficients(loss: Loss, n_bits: int) -> Coefficients:
    """The coefficients of bit number ``n_bits`` by Proposition 1: a = loss(d) - loss(d + 1).

    Here d is the distance of the pair in the bits before this one. The tables are scaled by a power of two and rounded
    to integers, so that cuts are exact. KSH and BRE, which differ by a factor of 4, give the same tables.

    >>> coefficients(ksh, 2).similar.tolist(), coefficients(ksh, 2).dissimilar.tolist()
    ([-4194304, -12582912], [12582912, 4194304])
    """
    similar, dissimilar = (table[:-1] - table[1:] for table in loss_tables(loss, n_bits))
    if (similar > 0).any():
        distance = int(np.argmax(similar > 0))
        raise ParameterError(
            "loss",
            "must not decrease with the distance of a similar pair (the sub-modularity condition "
            f"of Block GraphCut). Got a loss that decreases by {similar[distance]:.6g} from distance {distance} to "
            f"distance {distance + 1} at {n_bits} bits.",
        )
    largest = max(np.abs(similar).max(), np.abs(dissimilar).max())
    scale = 2.0 ** (FIXED_POINT_BITS - np.frexp(largest)[1]) if largest > 0 else 1.0
    return Coefficients(*(np.rint(table * scale).astype(np.int32) for table in (similar, dissimilar)))


def check_loss(loss: str | Loss, n_bits: int) -> Loss:
    """Turn a name or a callable into a loss function; a callable is tried for every bit up to ``n_bits``.

    >>> check_loss("hinge", 8) is hinge
    True
    """
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    if not callable(loss):
        raise ParameterError("loss", f"must be one of {sorted(LOSSES)} or a callable. Got {loss!r} instead.")
    for r in range(1, n_bits + 1):
        coefficients(loss, r)
    return loss
