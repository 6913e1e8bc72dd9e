"""All items of an index at one moment, in memory."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.stored_features import StoredFeatures
from hashgrove.web.details import Lookup

__all__ = ["Contents"]


class Contents:
    """Ids, codes and features of all items, in the order in which they were added."""

    def __init__(self, ids: NDArray[Any], codes: NDArray[np.uint8], features: StoredFeatures | None) -> None:
        self.ids, self.codes, self._features = ids, codes, features
        self.since = time.monotonic()  # when they were read

    @cached_property
    def have_features(self) -> bool:
        """Whether the index stores features of all items."""
        return self._features is not None and len(self._features) == len(self.ids)

    @property
    def is_counted(self) -> bool:
        """Whether `have_features` is known; to find out, all items are looked at."""
        return "have_features" in vars(self)

    @cached_property
    def lookup(self) -> Lookup:
        """Positions of ids."""
        return Lookup(self.ids)

    def codes_of(self, ids: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The codes of some items, and whether each of them is there; if not, its code is arbitrary."""
        places, known = self.lookup.find(ids)
        return (self.codes[places] if len(self.ids) else np.zeros((len(ids), 0), np.uint8)), known

    def places_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The places of those of these items that are there, ascending."""
        places, known = self.lookup.find(ids)
        return np.sort(places[known])
