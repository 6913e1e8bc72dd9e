"""Random streams that depend on a seed and a number only, not on what was drawn before: for bits, and for rows.

`substream` gives NumPy generators. The other functions are for kernels: their generator is SplitMix64 (Steele, Lea &
Flood 2014), and a stream is a uint64 array of one element, its state.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel

__all__ = ["below", "draw", "draw_few", "seed_of", "stream", "substream"]


def seed_of(rng: np.random.Generator) -> int:
    """The seed that ``rng`` was made with, as in ``default_rng(seed)``.

    >>> seed_of(np.random.default_rng(5))
    5
    """
    return int(rng.bit_generator.seed_seq.entropy)  # type: ignore[attr-defined]


def substream(rng: np.random.Generator, *numbers: int) -> np.random.Generator:
    """A generator that depends on the seed of ``rng`` and on ``numbers`` only, whatever was drawn from ``rng``.

    >>> rng = np.random.default_rng(5)
    >>> first = substream(rng, 2, 7).random()
    >>> _ = rng.random(100)
    >>> substream(rng, 2, 7).random() == first
    True
    """
    return np.random.default_rng([seed_of(rng), *numbers])


@kernel
def _mix(x):
    x = np.uint64(x)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def stream(seed, number):
    """State of stream number ``number`` for a seed; streams with different numbers are independent."""
    state = np.empty(1, np.uint64)
    state[0] = _mix(np.uint64(seed) ^ _mix(np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)))
    return state


@kernel
def below(state, n):
    """Draw a uniform integer from [0, n) for n < 2^32, as uint64, and advance ``state``. The bias is below n / 2^32."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return ((_mix(state[0]) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)


@kernel
def draw(state, n, k, stamp, tag, out):
    """Draw min(k, n) distinct integers from [0, n), write them to ``out``, and return how many there are.

    Floyd's algorithm, O(k). ``stamp`` (int64, at least n entries) records what has been drawn: entry x is set to
    ``tag`` when x is drawn. No entry may be equal to ``tag`` before the call.
    """
    if k >= n:
        for t in range(n):
            out[t] = t
        return n
    for t in range(k):
        last = n - k + t
        x = np.int64(below(state, last + 1))
        if stamp[x] == tag:
            x = last
        stamp[x] = tag
        out[t] = x
    return k


@kernel
def draw_few(state, n, k, numbers, stamp, tag, out):
    """The same draw as `draw`, with memory for k numbers instead of n. O(k).

    ``numbers`` and ``stamp`` (int64, a power of two of entries, at least 2 k) are a hash table of what has been drawn:
    an entry is used if its stamp is ``tag``.
    """
    if k >= n:
        for t in range(n):
            out[t] = t
        return n
    mask = np.uint64(len(numbers) - 1)
    for t in range(k):
        last = n - k + t
        x = np.int64(below(state, last + 1))
        place = _mix(np.uint64(x)) & mask
        while stamp[place] == tag and numbers[place] != x:
            place = (place + np.uint64(1)) & mask
        if stamp[place] == tag:
            x = last  # it is larger than all that could be drawn before
            place = _mix(np.uint64(x)) & mask
            while stamp[place] == tag:
                place = (place + np.uint64(1)) & mask
        stamp[place] = tag
        numbers[place] = x
        out[t] = x
    return k
