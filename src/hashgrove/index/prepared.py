"""Tables and what they mean for some items: those that have been removed, and new ones behind the others."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.items import Items
from hashgrove.index.strips import width_of
from hashgrove.index.tables import Tables
from hashgrove.runtime.compiling import kernel
from hashgrove.storage.formats import one_line
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["Prepared", "first_alive", "ready_tables"]

log = logging.getLogger("hashgrove")

NO_COUNTS = np.empty(0, np.uint32)
TAIL = 32  # new items are scanned until they are one of this many; then the tables are built again


@dataclass(frozen=True, eq=False)
class Prepared:
    """Tables, and what they mean for some items: the first ``n`` are in the tables, and some of these are removed."""

    items: Items
    n: int
    tables: Tables
    counts: NDArray[np.uint32]  # items alive with each code, and the first of them;
    firsts: NDArray[np.uint32]  # empty if none has been removed, since the tables say it then

    @cached_property
    def n_alive(self) -> int:
        """Number of items in the tables that have not been removed."""
        return int(self.counts.sum()) if len(self.counts) else self.n

    @classmethod
    def of(cls, tables: Tables, items: Items) -> Prepared:
        """New tables of the first of some items, as if none of these had been removed."""
        n = len(tables.order)
        whole = Items(items.codes[:n], items.ids.head(n), n_alive=n, lineage=items.lineage)
        return cls(whole, n, tables, NO_COUNTS, NO_COUNTS)

    def arrays(self) -> tuple[Any, ...]:
        """The first arguments of the kernels in `hashgrove.index.probe`."""
        tables = self.tables
        width = width_of(tables.words.shape[1])
        return width, tables.parts, tables.masks, tables.offsets, tables.bases, tables.words, tables.numbers

    def fits(self, items: Items) -> bool:
        """Whether the tables hold the first of some items, and nearly all of them."""
        same = self.items.lineage is items.lineage
        return same and self.n <= items.size and (items.size - self.n) * TAIL <= items.size

    def updated(self, items: Items) -> Prepared:
        """The same tables for items of which some have been removed since, or added at the end."""
        n, tables, counts, firsts = self.n, self.tables, self.counts, self.firsts
        if items.alive is not self.items.alive:
            alive = items.mask()
            gone = np.flatnonzero(self.items.mask()[:n] & ~alive[:n])
            if len(gone):
                if not len(counts):
                    counts, firsts = np.diff(tables.starts), tables.order[tables.starts[:-1]]
                numbers = np.zeros(n, np.uint32)
                numbers[tables.order] = np.repeat(np.arange(tables.n_distinct, dtype=np.uint32), np.diff(tables.starts))
                removed = np.bincount(numbers[gone], minlength=len(counts))
                counts = counts - np.minimum(counts, removed).astype(np.uint32)
                firsts = firsts.copy()
                first_alive(np.unique(numbers[gone]), tables.starts, tables.order, alive, firsts)
        return Prepared(items, n, tables, counts, firsts)


def ready_tables(items: Items) -> Tables | None:
    """The tables that were built for the items or are in their folder; None if there are none, or they are damaged."""
    try:
        return None if items.tables is None else items.tables()
    except FileNotFoundError:  # a writer has replaced them
        return None
    except ModelFileError as error:
        log.warning("The tables are not used: %s", one_line(error))
        return None


@kernel
def first_alive(numbers: Any, starts: Any, order: Any, alive: Any, firsts: Any) -> None:
    """Write the first item of some codes that is alive (bool) to ``firsts``; those without any are left as they are."""
    for number in numbers:
        for place in range(starts[number], starts[number + 1]):
            if alive[order[place]]:
                firsts[number] = order[place]
                break
