"""`Keys`: the ids of items as an index keeps them: consecutive integers, integers, or texts.

Outside an index, ids are an int64 array or an array of str. Inside, consecutive integers, such as the default ids, take
no memory, and a text takes its bytes in UTF-8 and eight more, whatever the length of the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.ids import MAX_TEXT, are_ascending
from hashgrove.index.texts import compare_neighbours, copy_texts, find_texts
from hashgrove.runtime.threads import chunks

__all__ = ["Consecutive", "Integers", "Keys", "Texts", "keys_of", "read_only"]

CHUNK = 2**20  # bytes of texts from a file that are checked at a time
Extend = Callable[[str, NDArray[Any], NDArray[Any]], NDArray[Any]]  # name, rows, and those that come behind them


def _extended(name: str, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([old, new])


class Keys(ABC):
    """Ids of items, by their positions. ``keys[positions]`` are ids as the user knows them: int64, or str."""

    is_text: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Number of keys."""

    @abstractmethod
    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """The ids at some positions, an array of any shape, as the user knows them."""

    @abstractmethod
    def at(self, position: int) -> Any:
        """One id, which can be compared with others: int, or the bytes of a text."""

    @abstractmethod
    def find(self, wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The last position of each of some ids of the same type, as the user knows them, and whether it is there.

        The keys ascend, and there is at least one.
        """

    @abstractmethod
    def select(self, positions: NDArray[np.int64]) -> Keys:
        """The keys at some positions."""

    @abstractmethod
    def head(self, n: int) -> Keys:
        """The first ``n`` keys."""

    @abstractmethod
    def is_ascending(self, start: int = 0) -> bool:
        """Whether each key, from that at ``start`` on, is greater than the one before it."""

    @abstractmethod
    def repeated(self) -> NDArray[np.bool_]:
        """Whether each key but the last is equal to the one after it."""

    @abstractmethod
    def order(self) -> NDArray[np.int64]:
        """The positions in ascending order of the keys, and where these are equal, in ascending order."""

    def values(self) -> NDArray[Any]:
        """All ids as the user knows them."""
        return self[np.arange(len(self))]

    def check(self, start: int) -> None:
        """Raise ValueError unless the keys from ``start`` on, which come from a file, are such as an index has."""
        return

    def joined(self, more: Keys, extend: Extend = _extended) -> Keys:
        """These keys and others of the same type behind them; ``extend`` puts arrays behind others."""
        if len(self) == 0 or len(more) == 0:
            return more if len(self) == 0 else self
        return self._joined(more, extend)

    def _joined(self, more: Keys, extend: Extend) -> Keys:
        """The same, where there are both."""
        return Integers(extend("ids", self.values(), more.values()))


class Consecutive(Keys):
    """The integers ``first``, ``first + 1`` and so on.

    >>> Consecutive(5, 3).values()
    array([5, 6, 7])
    """

    def __init__(self, first: int, n: int) -> None:
        self.first, self._n = first, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions + self.first

    def values(self) -> NDArray[np.int64]:
        return np.arange(self.first, self.first + self._n)

    def at(self, position: int) -> int:
        return self.first + range(self._n)[position]

    def find(self, wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        known = (wanted >= self.first) & (wanted <= self.at(-1))
        return np.where(known, wanted, self.first) - self.first, known

    def select(self, positions: NDArray[np.int64]) -> Keys:
        return keys_of(self[positions])

    def head(self, n: int) -> Keys:
        return Consecutive(self.first, n)

    def is_ascending(self, start: int = 0) -> bool:
        return True

    def repeated(self) -> NDArray[np.bool_]:
        return np.zeros(max(self._n - 1, 0), np.bool_)

    def order(self) -> NDArray[np.int64]:
        return np.arange(self._n)

    def _joined(self, more: Keys, extend: Extend) -> Keys:
        if isinstance(more, Consecutive) and more.first == self.first + self._n:
            return Consecutive(self.first, self._n + len(more))
        return super()._joined(more, extend)


class Integers(Keys):
    """Integers in an array."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._numbers[positions]

    def values(self) -> NDArray[np.int64]:
        return self._numbers

    def at(self, position: int) -> int:
        return int(self._numbers[position])

    def find(self, wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        positions = np.maximum(np.searchsorted(self._numbers, wanted, side="right") - 1, 0)
        return positions, self._numbers[positions] == wanted

    def select(self, positions: NDArray[np.int64]) -> Keys:
        return keys_of(self._numbers[positions])

    def head(self, n: int) -> Keys:
        return Integers(self._numbers[:n])

    def is_ascending(self, start: int = 0) -> bool:
        return are_ascending(self._numbers[max(start - 1, 0) :])

    def repeated(self) -> NDArray[np.bool_]:
        return self._numbers[1:] == self._numbers[:-1]

    def order(self) -> NDArray[np.int64]:
        return np.argsort(self._numbers, kind="stable")


class Texts(Keys):
    """Texts as their bytes in UTF-8, one after the other, and where each of them ends.

    >>> Texts.of(["é", "x"]).data.tolist(), Texts.of(["é", "x"]).ends.tolist()
    ([195, 169, 120], [2, 3])
    """

    is_text = True

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.data, self.ends = read_only(data), read_only(ends)  # so that kernels are compiled once

    @classmethod
    def of(cls, texts: list[str] | list[bytes]) -> Texts:
        """Keys of texts, str or UTF-8."""
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def _starts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(positions > 0, self.ends[positions - 1], 0) if len(self) else positions

    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[np.str_]:
        places, content = positions.ravel(), memoryview(self.data)  # type: ignore[arg-type]
        bounds = zip(self._starts(places).tolist(), self.ends[places].tolist(), strict=True)
        return np.array([str(content[a:b], "utf-8") for a, b in bounds], np.str_).reshape(positions.shape)

    def at(self, position: int) -> bytes:
        place = np.array([range(len(self))[position]])
        return self.data[self._starts(place)[0] : self.ends[place[0]]].tobytes()

    def find(self, wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        sought = Texts.of(wanted.tolist())
        positions, known = np.empty(len(wanted), np.int64), np.empty(len(wanted), np.bool_)
        find_texts(self.data, self.ends, sought.data, sought.ends, positions, known)
        return positions, known

    def select(self, positions: NDArray[np.int64]) -> Keys:
        size = int((self.ends[positions] - self._starts(positions)).sum())
        data, ends = np.empty(size, np.uint8), np.empty(len(positions), np.int64)
        copy_texts(self.data, self.ends, positions, data, ends)
        return Texts(data, ends)

    def head(self, n: int) -> Keys:
        return Texts(self.data[: self.ends[n - 1] if n else 0], self.ends[:n])

    def _joined(self, more: Keys, extend: Extend) -> Keys:
        assert isinstance(more, Texts)
        return Texts(extend("texts", self.data, more.data), extend("ids", self.ends, more.ends + len(self.data)))

    def _neighbours(self, start: int = 0) -> NDArray[np.int8]:
        """How each text but the last, from that at ``start`` on, compares with the next one."""
        out = np.empty(max(len(self) - start - 1, 0), np.int8)
        compare_neighbours(self.data, self.ends, start, out)
        return out

    def is_ascending(self, start: int = 0) -> bool:
        return bool((self._neighbours(max(start - 1, 0)) < 0).all())

    def repeated(self) -> NDArray[np.bool_]:
        return self._neighbours() == 0

    def order(self) -> NDArray[np.int64]:
        content, ends = self.data.tobytes(), self.ends.tolist()
        texts = [content[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)

    def check(self, start: int) -> None:
        first = int(self.ends[start - 1]) if start else 0
        lengths = np.diff(self.ends[start:], prepend=first)
        if len(lengths) and not (lengths.min() > 0 and lengths.max() <= MAX_TEXT and self.ends[-1] == len(self.data)):
            raise ValueError(f"there must be 1 to {MAX_TEXT} bytes per text")
        if (self.data[self.ends[start:-1]] & 0xC0 == 0x80).any():  # the rest of a character that begins before
            raise ValueError("there must be whole characters in UTF-8")
        for a, b in chunks(len(lengths), CHUNK // MAX_TEXT):
            part = self.data[self.ends[start + a] - lengths[a] : self.ends[start + b - 1]].tobytes()
            if b"\0" in part:
                raise ValueError("there must be no NUL character in a text")
            part.decode()


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def keys_of(ids: NDArray[Any]) -> Keys:
    """Keys of ids as the user knows them.

    >>> type(keys_of(np.array([7, 8]))).__name__, type(keys_of(np.array([7, 9]))).__name__
    ('Consecutive', 'Integers')
    """
    if ids.dtype.kind == "U":
        return Texts.of(ids.tolist())
    n = len(ids)
    if n and int(ids[-1]) - int(ids[0]) == n - 1 and are_ascending(ids):
        return Consecutive(int(ids[0]), n)
    return Integers(ids)
