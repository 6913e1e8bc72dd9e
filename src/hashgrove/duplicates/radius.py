"""The radius of near-duplicates, measured on the pictures themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import hamming
from hashgrove.duplicates.alterations import ALTERATIONS, altered_copies
from hashgrove.duplicates.picture_codes import PictureCodes, spread
from hashgrove.index import Index
from hashgrove.runtime.threads import run_tasks

__all__ = ["RadiusEvidence", "choose"]

N_ALTERED = 40  # pictures of which altered copies are made
SHARE = 0.99  # of the altered copies that the radius should reach
MARGIN = 32  # the radius stays 1 / 32 of the bits below the distance of the nearest picture that is turned over


@dataclass(frozen=True)
class RadiusEvidence:
    """The measurements that a radius was chosen from.

    Attributes
    ----------
    found : dict of str to float
        The share of altered copies within the radius, by alteration.
    n_copies : int
        Number of altered copies.
    nearest_other : int or None
        The distance from a picture that was turned over to the nearest picture but itself; None if there are no others.
    n_turned : int
        Number of pictures that were turned over.
    """

    found: dict[str, float]
    n_copies: int
    nearest_other: int | None
    n_turned: int


def choose(
    index: Index, codes: NDArray[np.uint8], paths: list[str], seen: PictureCodes, n_jobs: int | None
) -> tuple[int, RadiusEvidence]:
    """The radius, and what it was chosen from.

    It lies half-way between the distance that most altered copies have and the one that others might have by chance:
    copies may be altered in other ways than these. If the two overlap, it is the latter.
    """
    chosen = spread(len(paths), N_ALTERED)

    def of_copies(number: int) -> list[int]:
        return [_distance(codes[number], seen.of_image(copy)) for copy in altered_copies(paths[number], number)]

    distances = np.array(run_tasks(of_copies, [(int(number),) for number in chosen], n_jobs=n_jobs))
    radius = int(np.quantile(distances, SHARE, method="higher"))
    turned, other_codes = seen.turned(codes, paths)
    nearest_other = _nearest_other(index, turned, other_codes, n_jobs) if len(paths) > 1 else None
    if nearest_other is not None:
        limit = max(0, nearest_other - 8 * codes.shape[2] // MARGIN)
        radius = min((radius + limit) // 2, limit)
    found = dict(zip(ALTERATIONS, (distances <= radius).mean(axis=0).tolist(), strict=True))
    return radius, RadiusEvidence(found, distances.size, nearest_other, len(turned))


def _distance(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> int:
    """The distance of two pictures: the smallest from all of one to all or a part of the other."""
    return int(min(hamming(a, b[:1]).min(), hamming(b, a[:1]).min()))


def _nearest_other(index: Index, numbers: NDArray[np.int64], codes: NDArray[np.uint8], n_jobs: int | None) -> int:
    """The smallest distance of some codes to those of pictures with other numbers."""
    n_windows, n_bytes = codes.shape[1:]
    distances, ids = index.search(codes.reshape(-1, n_bytes), 2, n_jobs=n_jobs)
    is_other = ids != np.repeat(numbers, n_windows)[:, None]
    return int(distances[is_other].min())
