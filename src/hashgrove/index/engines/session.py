"""`Session`: reads and writes items inside one transaction; each engine implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.credentials import hide_credentials

__all__ = ["EngineError", "Meta", "Neighbours", "Session"]

Neighbours = tuple[NDArray[Any], NDArray[Any]]  # distances and ids of one query


class EngineError(ValueError):
    """A failure of an engine, in one line that begins with the place of the items. Passwords of URLs are hidden."""

    def __init__(self, message: str) -> None:
        super().__init__(hide_credentials(message))


@dataclass(frozen=True)
class Meta:
    """The description of the items that is stored beside them.

    Attributes
    ----------
    n_bytes : int or None
        Number of bytes per code; None before the first codes are added, and then there are no items.
    texts : bool
        Whether ids are texts. It may change while there are no items.
    model : str or None
        Digest of the model that made the codes; None if it is not known.
    """

    n_bytes: int | None = None
    texts: bool = False
    model: str | None = None


class Session(ABC):
    """A transaction of an engine. What is read in it is of one moment; what is written in it is written as a whole.

    Beside its id and its code, an item has a *rank*, an integer that is stored with it: items are listed in ascending
    order of their ranks, the order in which they were added.

    Arguments have been checked. Ids are int64 or str, as ``self.meta`` says. Apart from `create`, methods are called
    only if ``self.meta.n_bytes`` is not None.
    """

    meta: Meta

    @property
    def n_bytes(self) -> int:
        """Number of bytes per code."""
        assert self.meta.n_bytes is not None
        return self.meta.n_bytes

    @abstractmethod
    def create(self, meta: Meta) -> None:
        """Store ``meta`` in place of the present one, and make room for such items. There are no items now."""

    def replace(self, meta: Meta, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        """Store ``meta`` and these items, in ascending order of their ids, in place of all that is stored."""
        self.create(meta)
        if len(ids):
            self.insert(codes, ids, ranks)

    @abstractmethod
    def count(self) -> int:
        """Number of items."""

    @abstractmethod
    def largest(self) -> int | None:
        """The largest id, if ids are integers; None if there are no items."""

    @abstractmethod
    def known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of these ids, without duplicates, is stored."""

    @abstractmethod
    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """All ids and codes, in ascending order of the ranks; or those of ``ids``, all of which are stored."""

    @abstractmethod
    def ranks(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The ranks of these items, all of which are stored."""

    @abstractmethod
    def next_rank(self) -> int:
        """A rank that is larger than those of all items."""

    @abstractmethod
    def delete(self, ids: NDArray[Any]) -> None:
        """Remove items, all of which are stored."""

    @abstractmethod
    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        """Add items, none of which is stored, in ascending order of their ids."""

    @abstractmethod
    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """The ``k`` nearest items of each query, sorted by distance and then by id; all of them if there are fewer.

        ``allowed`` are ascending ids, of which some may not be stored, or None for all items.
        """

    @abstractmethod
    def within(self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """All items at a distance of at most ``radius``, sorted by distance and then by id; ``allowed`` as above."""
