"""`Items`: the items of an index at one moment, as arrays that never change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.ids import decode

__all__ = ["Items", "as_bitmap", "as_mask", "in_memory", "merged", "without"]


@dataclass(frozen=True, eq=False)
class Items:
    """The items of an index at one moment. An index replaces it as a whole and never changes it.

    A search reads this object once and uses nothing else, so another thread may change the index meanwhile.

    Attributes
    ----------
    codes : uint8 array of shape (n, n_bytes)
        Of shape (0, 0) before the first codes are added. The place of an item in the arrays is its *position*.
    ids : int64 or bytes array of shape (n,)
        Ascending; see `hashgrove.index.ids.encode`. Of items with equal ids, only the last one may be alive.
    alive : uint64 array of shape (ceil(n / 64),), or None
        One bit per position, zero where the item has been removed; None if none has been.
    rows : int64 array of shape (n,), or None
        The row of each item in the files of the index; None if rows are positions.
    verify : function, or None
        Raises an error if the files that the arrays are mapped to are damaged.
    lineage : object
        Two `Items` with the same lineage have the same codes and ids at equal positions, as far as both have them.
    """

    codes: NDArray[np.uint8]
    ids: NDArray[Any]
    alive: NDArray[np.uint64] | None = None
    n_alive: int = 0
    rows: NDArray[np.int64] | None = None
    verify: Callable[[], None] | None = None
    lineage: object = field(default_factory=object)

    def __len__(self) -> int:
        """Number of items, without those that have been removed."""
        return self.n_alive

    @property
    def size(self) -> int:
        """Number of positions."""
        return len(self.ids)

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return self.codes.shape[1] or None

    def find(self, ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Positions of items, by their ids (as in ``self.ids``), and whether there is such an item."""
        if self.size == 0 or len(ids) == 0 or ids.dtype.kind != self.ids.dtype.kind:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
        sought = ids.astype(self.ids.dtype)  # a longer text is cut, so that numpy need not widen all ids
        positions = np.maximum(np.searchsorted(self.ids, sought, side="right") - 1, 0)
        known = self.ids[positions] == ids
        if self.alive is not None:
            known &= self.alive[positions >> 6] >> (positions & 63).astype(np.uint64) & np.uint64(1) == 1
        return positions, known

    def mask(self) -> NDArray[np.bool_]:
        """Which positions hold an item: bool (size,)."""
        return np.ones(self.size, np.bool_) if self.alive is None else as_mask(self.alive, self.size)

    def contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Ids as the user sees them, and codes, of the items that have not been removed; read-only."""
        ids, codes = self.ids, self.codes
        if self.alive is not None:
            kept = self.mask()
            ids, codes = ids[kept], codes[kept]
        return _read_only(decode(ids)), _read_only(codes)

    def compacted(self) -> Items:
        """The same items without those that have been removed, in memory."""
        kept = self.mask()
        return in_memory(self.codes[kept], self.ids[kept], None if self.rows is None else self.rows[kept])


def in_memory(codes: NDArray[np.uint8], ids: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Items:
    """Items that are all alive."""
    return Items(_read_only(codes), _read_only(ids), n_alive=len(ids), rows=rows)


def without(items: Items, positions: NDArray[np.int64]) -> Items:
    """The items without those at some positions, which must be alive."""
    if len(positions) == 0:
        return items
    alive = as_bitmap(np.ones(items.size, np.bool_)) if items.alive is None else items.alive.copy()
    bits = np.uint64(1) << (positions & 63).astype(np.uint64)
    np.bitwise_and.at(alive, positions >> 6, ~bits)
    return replace(items, alive=_read_only(alive), n_alive=items.n_alive - len(positions))


def merged(items: Items, codes: NDArray[np.uint8], ids: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Items:
    """The items and new ones, in ascending order of the ids, in new arrays; of equal ids, new ones come last.

    ``rows`` are those of the new items, if items have rows in a file.
    """
    all_ids = np.concatenate([items.ids, ids]) if items.size else ids
    all_codes = np.concatenate([items.codes, codes]) if items.size else codes
    order = np.argsort(all_ids, kind="stable")
    joined = in_memory(all_codes[order], all_ids[order])
    if rows is not None:
        old = np.arange(items.size) if items.rows is None else items.rows
        joined = replace(joined, rows=np.concatenate([old, rows])[order])
    if items.alive is None:
        return joined
    alive = np.concatenate([items.mask(), np.ones(len(ids), np.bool_)])[order]
    return replace(joined, alive=as_bitmap(alive), n_alive=items.n_alive + len(ids))


def as_bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A mask as words, one bit per entry.

    >>> as_bitmap(np.array([True, False, True]))
    array([5], dtype=uint64)
    """
    packed = np.packbits(mask, bitorder="little")
    return np.pad(packed, (0, -len(packed) % 8)).view(np.dtype("<u8")).astype(np.uint64, copy=False)


def as_mask(bitmap: NDArray[np.uint64], size: int) -> NDArray[np.bool_]:
    """The first ``size`` bits of a bitmap, as bool.

    >>> as_mask(np.array([5], np.uint64), 3)
    array([ True, False,  True])
    """
    words = bitmap.astype(np.dtype("<u8"), copy=False)
    return np.unpackbits(words.view(np.uint8), count=size, bitorder="little").view(np.bool_)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
