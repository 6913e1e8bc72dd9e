"""Losses on the Hamming distance of a pair, and Proposition 1: any of them is a quadratic problem for one bit.

A loss is ``loss(distance, similar, n_bits)``, elementwise on arrays. Those of the paper (section 3) are here divided by
n_bits^2, as in the authors' code, so that values of different code lengths can be compared; a positive factor
changes no code. Any callable of this form will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LOSSES", "Coefficients", "Loss", "check_loss", "coefficients", "values"]

Loss = Callable[[Any, Any, int], Any]
FIXED_POINT_BITS = 24  # of the largest coefficient: sums over 2^38 pairs still fit into int64


class Coefficients(NamedTuple):
    """a_ij of one bit as two tables over the distance in the bits before it, int32, in fixed point."""

    similar: NDArray[np.int32]
    dissimilar: NDArray[np.int32]


def bre(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """[delta(y < 0) - d / m]^2: the distance of dissimilar pairs should be m.

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
    """(d / m)^2 for similar pairs, max(1/2 - d / m, 0)^2 for dissimilar ones: half the bits apart is far enough.

    >>> hinge([0, 1, 2, 3, 4], False, 4).tolist()
    [0.25, 0.0625, 0.0, 0.0, 0.0]
    """
    share = np.asarray(distance) / n_bits
    return np.where(similar, share, np.maximum(0.5 - share, 0.0)) ** 2


def exph(distance: ArrayLike, similar: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """exp[y d / m + delta(y < 0)].

    >>> float(exph(4, False, 4))
    1.0
    """
    share = np.asarray(distance) / n_bits
    return np.exp(np.where(similar, share, 1.0 - share))


LOSSES: dict[str, Loss] = {"ksh": ksh, "hinge": hinge, "bre": bre, "exph": exph}


def values(loss: Loss, n_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The loss of similar and of dissimilar pairs at each distance from 0 to ``n_bits``."""
    distance = np.arange(n_bits + 1)
    tables = []
    for similar in (True, False):
        table = np.asarray(loss(distance, np.full(n_bits + 1, similar), n_bits), dtype=np.float64)
        if table.shape != distance.shape or not np.isfinite(table).all():
            raise ValueError(
                "The 'loss' parameter must give one finite number for each distance. "
                f"Got {table!r} for {'similar' if similar else 'dissimilar'} pairs at {n_bits} bits instead."
            )
        tables.append(table)
    return tables[0], tables[1]


def coefficients(loss: Loss, n_bits: int) -> Coefficients:
    """a_ij of bit ``n_bits`` by Proposition 1: a = loss(d) - loss(d + 1), d the distance in the bits before it.

    The tables are scaled by a power of two and rounded to integers, so that cuts are exact; KSH and 4 x BRE give
    the same tables.

    >>> coefficients(ksh, 2).similar.tolist(), coefficients(ksh, 2).dissimilar.tolist()
    ([-4194304, -12582912], [12582912, 4194304])
    """
    similar, dissimilar = (table[:-1] - table[1:] for table in values(loss, n_bits))
    if (similar > 0).any():
        distance = int(np.argmax(similar > 0))
        raise ValueError(
            "The 'loss' parameter must not fall with the distance of a similar pair (the sub-modularity condition of "
            f"Block GraphCut). Got a loss that falls by {similar[distance]:.6g} from distance {distance} to "
            f"{distance + 1} of {n_bits} bits."
        )
    largest = max(np.abs(similar).max(), np.abs(dissimilar).max())
    scale = 2.0 ** (FIXED_POINT_BITS - np.frexp(largest)[1]) if largest > 0 else 1.0
    return Coefficients(*(np.rint(table * scale).astype(np.int32) for table in (similar, dissimilar)))


def check_loss(loss: str | Loss, n_bits: int) -> Loss:
    """The loss function of this name, or the callable itself; refused here if any bit would refuse it."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(
                f"The 'loss' parameter must be one of {sorted(LOSSES)} or a callable. Got {loss!r} instead."
            )
        return LOSSES[loss]
    if not callable(loss):
        raise ValueError(f"The 'loss' parameter must be one of {sorted(LOSSES)} or a callable. Got {loss!r} instead.")
    for r in range(1, n_bits + 1):
        coefficients(loss, r)
    return loss
