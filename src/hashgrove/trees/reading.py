"""Reading ahead: while a tree grows, a thread reads the features of the next one from the file of the bins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hashgrove.trees.binning import BinnedData
from hashgrove.trees.boosting import PER_TREE, BoostingSettings
from hashgrove.trees.grower import draw_features

__all__ = ["reading_ahead"]

PAUSE = 0.002  # seconds between two looks at how many trees are there


@contextmanager
def reading_ahead(
    data: BinnedData, settings: BoostingSettings, seeds: NDArray[np.uint64], done: NDArray[np.int64]
) -> Iterator[None]:
    """A block that grows one tree per seed and counts them in ``done[0]``; nothing is read unless ``data`` asks for it.

    The features of a tree follow from its seed if they are drawn once per tree; otherwise nobody knows them before.
    """
    read_columns = data.read_columns
    if read_columns is None or settings.subset != PER_TREE:
        yield
        return
    ended = threading.Event()

    def read() -> None:
        for number, seed in enumerate(seeds):
            while done[0] < number - 1:
                if ended.wait(PAUSE):
                    return
            if ended.is_set():
                return
            if number >= done[0]:
                read_columns(np.unique(draw_features(len(data.bins), settings.n_features, seed, np.zeros(1, np.int64))))

    reader = threading.Thread(target=read, name="hashgrove-reading", daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
