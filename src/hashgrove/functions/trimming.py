"""Which examples are heavy enough to grow a tree on (weight trimming, section 4.1 of the paper), without a sort."""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel

__all__ = ["DROPPED_BITS", "heavy_limit"]

DROPPED_BITS = 18  # of a float32; its exponent and the top 5 bits of its mantissa remain


@kernel
def heavy_limit(w, w_bits, trimming):
    """(limit, mass): example i is kept if ``w_bits[i] >> DROPPED_BITS`` is at least the limit; the mass of those kept.

    The heaviest examples that hold 1 - ``trimming`` of the mass of ``w`` (float32, not negative; ``w_bits`` is the same
    viewed as int32). The weights are summed by their exponent and the top 5 bits of their mantissa, since floats
    that are not negative have the same order as their bit patterns. So examples within 3 % of the limit are kept, too.
    """
    mass = np.zeros(1 << (31 - DROPPED_BITS), np.float64)
    for i in range(np.uint64(len(w))):
        mass[np.uint32(w_bits[i]) >> np.uint32(DROPPED_BITS)] += w[i]
    wanted = mass.sum() * (1 - trimming)
    limit = len(mass) - 1
    total = mass[limit]
    while total < wanted and limit > 0:
        limit -= 1
        total += mass[limit]
    if trimming == 0:
        limit = 0
    return limit, total
