"""What every index shares: codes under ids, in ascending order of the ids; and its file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_columns, check_codes
from hashgrove.storage import modelfile

__all__ = ["Index", "check_integer"]


class Index(ABC):
    """Codes with ids, to be searched; a subclass gives `search` and `search_radius`, as `FlatIndex` says."""

    def __init__(self, codes: ArrayLike | None = None, *, ids: ArrayLike | None = None) -> None:
        self._codes: NDArray[np.uint8] | None = None  # rows above _size are room to grow
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._size = 0
        self._columns: NDArray[np.uint64] | None = None  # made by the first search after an add
        if codes is not None:
            self.add(codes, ids=ids)
        elif ids is not None:
            raise ValueError("The 'ids' parameter must come with 'codes'. Got ids alone instead.")

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        width = "" if self.n_bytes is None else f" of {self.n_bytes} bytes"
        return f"{type(self).__name__}({len(self)} codes{width})"

    @property
    def n_bytes(self) -> int | None:
        """Bytes in a code; None until codes have been given."""
        return None if self._codes is None else self._codes.shape[1]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """All codes in ascending order of their ids, uint8 (n, n_bytes), read-only."""
        if self._codes is None:
            return np.empty((0, 0), np.uint8)
        return _read_only(self._codes[: self._size])

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending, int64 (n,), read-only."""
        return _read_only(self._ids[: self._size])

    @property
    def columns(self) -> NDArray[np.uint64]:
        """The codes as `hashgrove.codes.as_columns` lays them out for kernels, read-only."""
        if self._columns is None:
            self._columns = as_columns(self.codes) if self._size else _read_only(np.empty((0, 0), np.uint64))
        return self._columns

    @abstractmethod
    def search(
        self, codes: ArrayLike, k: int, *, n_jobs: int | None = None
    ) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The ``k`` nearest items of each query, by distance and then id."""

    @abstractmethod
    def search_radius(
        self, codes: ArrayLike, radius: int, *, n_jobs: int | None = None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[np.int64]]]:
        """All items within ``radius`` (inclusive) of each query, by distance and then id."""

    def add(self, codes: ArrayLike, *, ids: ArrayLike | None = None) -> None:
        """Add codes; on an error nothing is added.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
        ids : array-like of int, shape (n,), optional
            Own ids, in any order. An id twice, or one that the index has, is refused.

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
            start = int(self.ids[-1]) + 1 if self._size else 0
            if start + len(codes) - 1 > np.iinfo(np.int64).max:
                raise ValueError(f"The 'ids' parameter must be given: no int64 is left above the id {start - 1}.")
            new = np.arange(len(codes), dtype=np.int64) + start
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
        self._columns = None
        if old and len(new) and new[0] < self._ids[old - 1]:
            order = np.argsort(self.ids, kind="stable")
            # New arrays, not in place: views that were given out stay as they are.
            self._ids, self._codes = self._ids[order], self._codes[order]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write codes and ids to one file, atomically; `load` reads it."""
        header = {"index": type(self).__name__, "n": self._size, "n_bytes": self.n_bytes}
        modelfile.write(path, kind="index", header=header, arrays={"codes": self.codes, "ids": self.ids})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an index from a file; the file is untrusted and is checked before it is used."""
        header, arrays = modelfile.read(path, kind="index")
        name = os.fspath(path)
        if header.get("index") != cls.__name__:
            raise modelfile.ModelFileError(
                f"{name}: must hold an index of type {cls.__name__!r}. Got {header.get('index')!r} instead."
            )
        if set(arrays) != {"codes", "ids"}:
            raise modelfile.ModelFileError(f"{name}: an index has the arrays ['codes', 'ids'], not {sorted(arrays)}")
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

    def _grow(self, size: int) -> None:
        """Make room for ``size`` items; by halves, so that many small additions stay cheap."""
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
                f"The 'ids' parameter must be new to the index. Got {known[0]} instead, which it has already."
            )


def check_integer(value: Any, name: str, minimum: int) -> int:
    """Return ``value`` as an int, or raise ValueError that names the parameter.

    >>> check_integer(3, "k", 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"The '{name}' parameter must be an integer, at least {minimum}. Got {value!r} instead.")
    return int(value)


def _check_ids(ids: ArrayLike, length: int) -> NDArray[np.int64]:
    array = np.asarray(ids)
    if array.shape != (length,):
        raise ValueError(f"The 'ids' parameter must have shape ({length},), one id a code. Got {array.shape} instead.")
    if length and array.dtype.kind not in "iu":
        raise ValueError(f"The 'ids' parameter must be integers. Got {array.dtype} instead.")
    if length and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"The 'ids' parameter must fit int64. Got {array.max()} instead.")
    return array.astype(np.int64)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
