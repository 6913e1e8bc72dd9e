"""All items of an index at one moment, in memory."""

from __future__ import annotations

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
