"""What tests/hostile/fuzz.py changes and who reads it: the types that the modules of readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

RNG = np.random.default_rng(0)


class Seed(NamedTuple):
    """A payload to change, and what makes a file of it."""

    payload: bytes
    wrap: Callable[[bytes], bytes] = bytes


def no_more(path):
    return 0


class Reader(NamedTuple):
    """Seeds, how the names of files end, and functions that read a file; at least one of them reads each seed
    unless seeds may be refused."""

    seeds: Callable[[], Iterable[Seed]]
    suffix: str
    reads: tuple[Callable[[Path], object], ...]
    more_memory: Callable[[Path], int] = no_more  # bytes that a file may take besides 64 MB + 4 times its size
    strict: bool = True  # whether each seed has to be read
