"""`Items`: the items of an index at one moment, as arrays that never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import aligned
from hashgrove.index.ids import refuse_duplicates
from hashgrove.index.keys import Keys, read_only
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import chunks

__all__ = [
    "Items",
    "Room",
    "appended",
    "as_bitmap",
    "as_mask",
    "in_memory",
    "merged",
    "read_only",
    "updated",
    "without",
]


@dataclass(frozen=True, eq=False)
class Items:
    """The items of an index at one moment. An index replaces it as a whole and never changes it.

    A search reads this object once and uses nothing else, so another thread may change the index meanwhile.

    Codes and ids are sorted by id. The place of an item in these arrays is its *position*. Its *row* is its place in
    the files of the index and in the table of features, where every new code is appended. Its *rank* gives the order
    in which the items were given: the row that an item got first, which it keeps when its code is updated.

    Attributes
    ----------
    codes : uint8 array of shape (n, n_bytes)
        Of shape (0, 0) before the first codes are added.
    ids : Keys
        Ascending. Of items with equal ids, only the last one may be alive.
    alive : uint64 array of shape (ceil(n / 64),), or None
        One bit per position, zero where the item has been removed; None if none has been.
    n_rows : int
        Number of rows, with those of removed items and of old codes.
    rows, ranks : int64 arrays of shape (n,), or None
        Rows are positions if they are None, and ranks are rows. Both are None for ids that were added in ascending
        order, so that arrays can be mapped to files.
    features : structured array of shape (n_rows,), or None
        The features of the items by their rows; see `hashgrove.index.stored_features`.
    verify, verify_features : functions, or None
        Raise an error if the files that the arrays are mapped to are damaged.
    tables : function, or None
        Maps and verifies the tables of a `MultiIndex` that hold the first items, if the folder has such tables.
    lineage : object
        Two `Items` with the same lineage have the same codes and ids at equal positions, as far as both have them.
    """

    codes: NDArray[np.uint8]
    ids: Keys
    alive: NDArray[np.uint64] | None = None
    n_alive: int = 0
    n_rows: int = 0
    rows: NDArray[np.int64] | None = None
    ranks: NDArray[np.int64] | None = None
    features: NDArray[Any] | None = None
    verify: Callable[[], None] | None = None
    verify_features: Callable[[], None] | None = None
    tables: Callable[[], Any] | None = None
    lineage: object = field(default_factory=object)

    def __len__(self) -> int:
        """Number of items, without those that have been removed."""
        return self.n_alive

    @property
    def size(self) -> int:
        """Number of positions."""
        return len(self.codes)

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return self.codes.shape[1] or None

    def codes_of(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        """The codes of items by their ids, int64 or str, all of which are known."""
        return self.codes[self.find(ids)[0]]

    def find(self, ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Positions of items, by their ids, int64 or str, and whether there is such an item."""
        if self.size == 0 or len(ids) == 0 or (ids.dtype.kind == "U") != self.ids.is_text:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
        positions, known = self.ids.find(ids)
        if self.alive is not None:
            known &= self.alive[positions >> 6] >> (positions & 63).astype(np.uint64) & np.uint64(1) == 1
        return positions, known

    def positions_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of items, all of which must be there, by their ids, int64 or str."""
        refuse_duplicates(np.sort(ids))
        positions, known = self.find(ids)
        if not known.all():
            raise ParameterError("ids", f"must have ids of items of the index. Got {ids[~known][0]} instead.")
        return positions

    def end_before(self, ids: Keys) -> bool:
        """Whether ids ascend, and come after all of the items."""
        return ids.is_ascending() and (len(ids) == 0 or self.size == 0 or bool(self.ids.at(-1) < ids.at(0)))

    def mask(self) -> NDArray[np.bool_]:
        """Whether each position holds an item: bool (size,)."""
        return np.ones(self.size, np.bool_) if self.alive is None else as_mask(self.alive, self.size)

    def rows_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the items at some positions."""
        return positions if self.rows is None else self.rows[positions]

    @cached_property
    def order(self) -> NDArray[np.int64] | None:
        """The positions of all items in the order in which they were given; None for 0, 1, 2, ..."""
        ranks = self.rows if self.ranks is None else self.ranks
        if ranks is None:
            return None if self.alive is None else np.flatnonzero(self.mask())
        positions = np.flatnonzero(self.mask())
        return positions[np.argsort(ranks[positions])]

    def contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Ids, int64 or str, and codes, in the order in which the items were given; read-only."""
        order = self.order
        codes = self.codes if order is None else self.codes[order]
        return read_only(self.ids.values() if order is None else self.ids[order]), read_only(codes)

    def in_order(self) -> tuple[Keys, NDArray[np.uint8]]:
        """Ids and codes in the order in which the items were given."""
        order = self.order
        return (self.ids, self.codes) if order is None else (self.ids.select(order), self.codes[order])

    def feature_parts(self, n_bytes: int) -> Iterator[NDArray[Any]]:
        """The features of all items in the order in which these were given, in parts of about ``n_bytes``."""
        assert self.features is not None
        rows = self.rows_of(np.arange(self.size) if self.order is None else self.order)
        for start, stop in chunks(len(rows), max(1, n_bytes // self.features.itemsize)):
            yield self.features[rows[start:stop]]

    def compacted(self) -> Items:
        """The same items without those that have been removed, and without rows of old codes, in memory."""
        keys, codes = self.in_order()
        if self.features is None:
            return in_memory(codes, keys)
        return in_memory(codes, keys, np.concatenate([self.features[:0], *self.feature_parts(2**24)]))


def in_memory(codes: NDArray[np.uint8], ids: Keys, features: NDArray[Any] | None = None) -> Items:
    """Items that are all alive, from codes, ids (without duplicates) and features in the order of their rows."""
    rows = None
    if not ids.is_ascending():
        rows = ids.order()
        codes, ids = codes[rows], ids.select(rows)
    n = len(ids)
    return Items(read_only(codes), ids, n_alive=n, n_rows=n, rows=rows, features=features)


def without(items: Items, positions: NDArray[np.int64]) -> Items:
    """The items without those at some positions, which must be alive."""
    if len(positions) == 0:
        return items
    alive = as_bitmap(np.ones(items.size, np.bool_)) if items.alive is None else items.alive.copy()
    bits = np.uint64(1) << (positions & 63).astype(np.uint64)
    np.bitwise_and.at(alive, positions >> 6, ~bits)
    return replace(items, alive=read_only(alive), n_alive=items.n_alive - len(positions))


def updated(items: Items, positions: NDArray[np.int64], codes: NDArray[np.uint8], rows: NDArray[np.int64]) -> Items:
    """The items with new codes, which have new rows, at some positions. The items keep their ranks."""
    if len(positions) == 0:
        return items
    all_codes = items.codes.copy()
    all_codes[positions] = codes
    old = np.arange(items.size) if items.rows is None else items.rows
    new = old.copy()
    new[positions] = rows
    ranks = old if items.ranks is None else items.ranks
    return replace(items, codes=read_only(all_codes), rows=new, ranks=ranks, verify=None, tables=None, lineage=object())


def appended(items: Items, codes: NDArray[np.uint8], ids: Keys, rows: NDArray[np.int64], n_new: int) -> Items:
    """The items and ``n_new`` new ones: ``codes`` and ``ids`` are of all of them, sorted by id, new ones at the end."""
    old = items.size
    are_positions = items.rows is None and (n_new == 0 or (int(rows[0]) == old and int(rows[-1]) == old + n_new - 1))
    all_rows = None
    if not are_positions:
        all_rows = np.concatenate([np.arange(old) if items.rows is None else items.rows, rows])
    alive = None if items.alive is None else as_bitmap(np.concatenate([items.mask(), np.ones(n_new, np.bool_)]))
    return replace(
        items,
        codes=read_only(codes),
        ids=ids,
        alive=alive,
        n_alive=items.n_alive + n_new,
        rows=all_rows,
        ranks=None if items.ranks is None else np.concatenate([items.ranks, rows]),
        verify=None,
    )


def merged(items: Items, codes: NDArray[np.uint8], ids: Keys, rows: NDArray[np.int64]) -> Items:
    """The items and new ones, sorted by id, in new arrays; of equal ids, new ones come last."""
    all_ids = items.ids.joined(ids)
    all_codes = np.concatenate([items.codes, codes]) if items.size else codes
    order = all_ids.order()
    joined = appended(items, all_codes, all_ids, rows, len(ids))
    old_rows = np.arange(len(all_ids)) if joined.rows is None else joined.rows
    alive = None if joined.alive is None else as_bitmap(joined.mask()[order])
    return replace(
        joined,
        codes=read_only(all_codes[order]),
        ids=all_ids.select(order),
        alive=alive,
        rows=old_rows[order],
        ranks=None if joined.ranks is None else joined.ranks[order],
        tables=None,
        lineage=object(),
    )


class Room:
    """Arrays with spare rows behind those of the items, so that many small additions stay cheap. Nobody reads them."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def extended(self, name: str, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """Rows and new ones behind them, in the array of this name if it begins with the old rows."""
        size = len(old) + len(new)
        kind = old.dtype
        room = self._arrays.get(name)
        is_old = room is not None and len(old) and room.ctypes.data == old.ctypes.data
        if room is None or not is_old or len(room) < size:
            shape = max(size, len(old) * 3 // 2), *old.shape[1:]
            room = aligned(shape, kind) if kind == np.uint8 else np.empty(shape, kind)  # codes are read by vectors
            room[: len(old)] = old
            self._arrays[name] = room
        room[len(old) : size] = new
        return room[:size]


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
