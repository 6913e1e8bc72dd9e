"""`Index`: the contract of every index, and what all of them share: codes with ids, and the file format."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import check_codes
from hashgrove.storage import modelfile

__all__ = ["Index", "Items"]

MAX_ID = np.iinfo(np.int64).max
_ADDING = threading.Lock()  # one for all indexes, because a lock that an index owns could not be copied or pickled


@dataclass(frozen=True, eq=False)
class Items:
    """The items of an index at one moment. An index replaces it as a whole and never changes it.

    A search reads this object once and uses nothing else, so another thread may add items meanwhile.

    Attributes
    ----------
    codes : uint8 array of shape (n, n_bytes)
        Read-only; of shape (0, 0) before the first codes are added.
    ids : int64 array of shape (n,)
        Ascending; read-only.
    """

    codes: NDArray[np.uint8]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return self.codes.shape[1] or None


class Index(ABC):
    """Packed codes with ids, which can be searched by Hamming distance.

    This is the contract of every index; ``tests/test_index_contract.py`` checks each point for all of them.

    **Items.** An item is a code with an id. Ids are int64 and unique. They may be chosen by the user; otherwise an
    item gets the next id after the largest one, so a new index has the ids 0, 1, 2, ... `codes` and `ids` list all
    items in ascending order of their ids. The *position* of an item is its place in that order.

    **Search.**

    - The distance is the number of bits that differ. It is counted over whole bytes, padding bits included.
    - `search` returns the ``k`` nearest items, sorted by distance and then by id. Which of several items at the same
      distance are among the ``k`` follows the same order, so there is exactly one right result. It does not depend on
      the number of threads.
    - Results are never padded. If the index holds fewer than ``k`` items, all of them are returned and the arrays
      have fewer than ``k`` columns.
    - `search_radius` returns all items whose distance is less than *or equal to* the radius, in the same order.
    - An empty index and an empty array of queries are valid and give empty results.
    - Codes of the wrong dtype or length raise ValueError. Nothing is converted.
    - Several threads may search, add and save at the same time. A search sees the items of one moment: all items of
      an `add` that has returned before, and all or none of one that is still running.

    **A new index** is a subclass that implements `search` and `search_radius`, plus one line in
    `hashgrove.index.INDEXES`. Each call reads ``self._items`` once. What is derived from the items is kept together
    with the `Items` that it belongs to.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int, shape (n,), optional
        The ids of these codes, in any order and without duplicates.
    """

    def __init__(self, codes: ArrayLike | None = None, *, ids: ArrayLike | None = None) -> None:
        # The arrays behind the items; rows from len(self._items) on are spare room, which nobody reads.
        self._codes: NDArray[np.uint8] = np.empty((0, 0), np.uint8)
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._items = Items(_read_only(self._codes), _read_only(self._ids))
        if codes is not None:
            self.add(codes, ids=ids)
        elif ids is not None:
            raise ValueError("The 'ids' parameter must be given together with 'codes'. Got ids alone instead.")

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        items = self._items
        width = "" if items.n_bytes is None else f" of {items.n_bytes} bytes"
        return f"{type(self).__name__}({len(items)} codes{width})"

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return self._items.n_bytes

    @property
    def codes(self) -> NDArray[np.uint8]:
        """All codes in ascending order of their ids: uint8 (n, n_bytes), read-only."""
        return self._items.codes

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in ascending order: int64 (n,), read-only."""
        return self._items.ids

    @abstractmethod
    def search(
        self, codes: ArrayLike, k: int, *, n_jobs: int | None = None
    ) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Find the ``k`` nearest items of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        k : int
            At least 1. If it is larger than the number of items, all items are returned.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : uint16 array of shape (n_queries, min(k, n))
        ids : int64 array of shape (n_queries, min(k, n))
        """

    @abstractmethod
    def search_radius(
        self, codes: ArrayLike, radius: int, *, n_jobs: int | None = None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[np.int64]]]:
        """Find all items within ``radius`` (inclusive) of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        radius : int
            At least 0; 0 finds equal codes.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : list of n_queries uint16 arrays
        ids : list of n_queries int64 arrays
        """

    def add(self, codes: ArrayLike, *, ids: ArrayLike | None = None) -> None:
        """Add items. If anything is wrong with them, none is added.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int, shape (n,), optional
            The ids of these codes, in any order. An id that occurs twice or is already in the index is refused.

        Examples
        --------
        >>> from hashgrove.index import FlatIndex
        >>> index = FlatIndex()
        >>> index.add(np.array([[1], [2]], np.uint8), ids=[20, 10])
        >>> index.ids, index.codes.tolist()
        (array([10, 20]), [[2], [1]])
        """
        with _ADDING:
            items = self._items
            codes = check_codes(codes, n_bytes=items.n_bytes)
            if ids is None:
                new = _next_ids(items.ids, len(codes))
            else:
                new = _check_ids(ids, len(codes))
                order = np.argsort(new, kind="stable")
                new, codes = new[order], codes[order]
                _refuse_duplicates(items.ids, new)
            old, size = len(items), len(items) + len(codes)
            self._make_room(size, codes.shape[1])
            self._codes[old:size] = codes
            self._ids[old:size] = new
            if old and len(new) and new[0] < self._ids[old - 1]:
                order = np.argsort(self._ids[:size], kind="stable")
                # New arrays instead of sorting in place: views that were handed out keep their content.
                self._ids, self._codes = self._ids[order], self._codes[order]
            self._items = Items(_read_only(self._codes[:size]), _read_only(self._ids[:size]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write codes and ids to one file, atomically. `load` and `hashgrove.index.load` read it."""
        items = self._items
        header = {"index": type(self).__name__, "n": len(items), "n_bytes": items.n_bytes}
        modelfile.write(path, kind="index", header=header, arrays={"codes": items.codes, "ids": items.ids})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an index of this class from a file, which is treated as untrusted and checked completely."""
        return cls.from_file(path, *modelfile.read(path, kind="index"))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make an index from the content of a file; ``path`` is only for error messages."""
        name = os.fspath(path)
        if header.get("index") != cls.__name__:
            raise modelfile.ModelFileError(
                f"{name}: must hold an index of type {cls.__name__!r}. Got {header.get('index')!r} instead."
            )
        if set(arrays) != {"codes", "ids"}:
            raise modelfile.ModelFileError(
                f"{name}: an index must have the arrays ['codes', 'ids']. Got {sorted(arrays)} instead."
            )
        codes, ids = arrays["codes"], arrays["ids"]
        never_filled = codes.shape == (0, 0) and codes.dtype == np.uint8 and ids.shape == (0,)
        try:
            index = cls() if never_filled else cls(codes, ids=ids)
        except ValueError as error:
            raise modelfile.ModelFileError(f"{name}: {error}") from error
        declared = header.get("n"), header.get("n_bytes")
        if declared != (len(index), index.n_bytes):
            raise modelfile.ModelFileError(
                f"{name}: must hold codes as its header says, (n, n_bytes) = {declared}. "
                f"Got {(len(index), index.n_bytes)} instead."
            )
        return index

    def _make_room(self, size: int, n_bytes: int) -> None:
        """Make room for ``size`` items, with half as much to spare, so that many small additions stay cheap."""
        if size > len(self._ids) or self._codes.shape[1] != n_bytes:
            items = self._items
            room = max(size, len(self._ids) * 3 // 2)
            codes, ids = np.empty((room, n_bytes), np.uint8), np.empty(room, np.int64)
            if len(items):
                codes[: len(items)], ids[: len(items)] = items.codes, items.ids
            self._codes, self._ids = codes, ids


def _next_ids(ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    start = int(ids[-1]) + 1 if len(ids) else 0
    if start + count - 1 > MAX_ID:
        raise ValueError(f"The 'ids' parameter must be given: no int64 is left above the id {start - 1}.")
    return np.arange(count, dtype=np.int64) + start


def _refuse_duplicates(ids: NDArray[np.int64], new: NDArray[np.int64]) -> None:
    """Refuse sorted ids of which two are equal or one is already in ``ids``."""
    repeated = new[1:][new[1:] == new[:-1]]
    if len(repeated):
        raise ValueError(f"The 'ids' parameter must have no duplicates. Got {repeated[0]} twice instead.")
    places = np.searchsorted(ids, new)
    inside = places < len(ids)
    known = new[inside][ids[places[inside]] == new[inside]]
    if len(known):
        raise ValueError(
            "The 'ids' parameter must have ids that are new to the index. "
            f"Got {known[0]} instead, which is already in it."
        )


def _check_ids(ids: ArrayLike, length: int) -> NDArray[np.int64]:
    array = np.asarray(ids)
    if array.shape != (length,):
        raise ValueError(
            f"The 'ids' parameter must have shape ({length},), one id per code. Got {array.shape} instead."
        )
    if length and array.dtype.kind not in "iu":
        raise ValueError(f"The 'ids' parameter must be integers. Got {array.dtype} instead.")
    if length and array.dtype == np.uint64 and array.max() > MAX_ID:
        raise ValueError(f"The 'ids' parameter must fit int64. Got {array.max()} instead.")
    return array.astype(np.int64)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
