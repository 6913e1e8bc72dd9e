"""`Index`: the contract of every index, and what all of them share: codes with ids, and the file format."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import check_codes
from hashgrove.storage import modelfile

__all__ = ["Index"]

MAX_ID = np.iinfo(np.int64).max


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
    - Several threads may search at the same time, but not while `add` runs.

    **A new index** is a subclass that implements `search` and `search_radius` and overrides `_on_change` if it
    keeps anything that is derived from the codes, plus one line in `hashgrove.index.INDEXES`.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int, shape (n,), optional
        The ids of these codes, in any order and without duplicates.
    """

    def __init__(self, codes: ArrayLike | None = None, *, ids: ArrayLike | None = None) -> None:
        self._codes: NDArray[np.uint8] | None = None  # rows from _size on are spare room
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._size = 0
        if codes is not None:
            self.add(codes, ids=ids)
        elif ids is not None:
            raise ValueError("The 'ids' parameter must be given together with 'codes'. Got ids alone instead.")

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        width = "" if self.n_bytes is None else f" of {self.n_bytes} bytes"
        return f"{type(self).__name__}({len(self)} codes{width})"

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        return None if self._codes is None else self._codes.shape[1]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """All codes in ascending order of their ids: uint8 (n, n_bytes), read-only."""
        if self._codes is None:
            return np.empty((0, 0), np.uint8)
        return _read_only(self._codes[: self._size])

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in ascending order: int64 (n,), read-only."""
        return _read_only(self._ids[: self._size])

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
        codes = check_codes(codes, n_bytes=self.n_bytes)
        if ids is None:
            new = self._next_ids(len(codes))
        else:
            new = _check_ids(ids, len(codes))
            order = np.argsort(new, kind="stable")
            new, codes = new[order], codes[order]
            self._refuse_duplicates(new)
        if self._codes is None:
            self._codes = np.empty((0, codes.shape[1]), np.uint8)
        self._grow(self._size + len(codes))
        old = self._size
        self._codes[old : old + len(codes)] = codes
        self._ids[old : old + len(codes)] = new
        self._size += len(codes)
        if old and len(new) and new[0] < self._ids[old - 1]:
            order = np.argsort(self.ids, kind="stable")
            # New arrays instead of sorting in place: views that were handed out keep their content.
            self._ids, self._codes = self._ids[order], self._codes[order]
        self._on_change()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write codes and ids to one file, atomically. `load` and `hashgrove.index.load` read it."""
        header = {"index": type(self).__name__, "n": self._size, "n_bytes": self.n_bytes}
        modelfile.write(path, kind="index", header=header, arrays={"codes": self.codes, "ids": self.ids})

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

    def _on_change(self) -> None:  # noqa: B027 -- an index that derives nothing from the codes has nothing to do
        """Called whenever items were added: an index drops here what it derived from the codes."""

    def _next_ids(self, count: int) -> NDArray[np.int64]:
        start = int(self.ids[-1]) + 1 if self._size else 0
        if start + count - 1 > MAX_ID:
            raise ValueError(f"The 'ids' parameter must be given: no int64 is left above the id {start - 1}.")
        return np.arange(count, dtype=np.int64) + start

    def _grow(self, size: int) -> None:
        """Make room for ``size`` items, with half as much to spare, so that many small additions stay cheap."""
        assert self._codes is not None
        if size > len(self._ids):
            room = max(size, len(self._ids) * 3 // 2)
            codes, ids = np.empty((room, self._codes.shape[1]), np.uint8), np.empty(room, np.int64)
            codes[: self._size], ids[: self._size] = self._codes[: self._size], self.ids
            self._codes, self._ids = codes, ids

    def _refuse_duplicates(self, new: NDArray[np.int64]) -> None:
        repeated = new[1:][new[1:] == new[:-1]]
        if len(repeated):
            raise ValueError(f"The 'ids' parameter must have no duplicates. Got {repeated[0]} twice instead.")
        places = np.searchsorted(self.ids, new)
        inside = places < self._size
        known = new[inside][self.ids[places[inside]] == new[inside]]
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
