"""`FaissIndex`: items in memory and in a file that faiss reads, searched by faiss."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines import faiss_file
from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.faiss_file import Stored
from hashgrove.index.engines.opening import file_path, only_writer, refuse_missing, required
from hashgrove.index.engines.session import Meta, Neighbours, Session
from hashgrove.index.ids import decode, encode, find
from hashgrove.runtime.parameters import Integer, OneOf

__all__ = ["FaissIndex"]

NOTHING = Stored(Meta(), np.empty((0, 0), np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


class FaissIndex(Engine):
    """Search by faiss of items in memory, which a file keeps: ``faiss:///codes.faiss``.

    The file is one that ``faiss.read_index_binary`` reads. If ids are integers, faiss finds the same ids; if they are
    texts, it finds their row numbers. The rows are in the order in which items were added. A file that faiss has
    written can be opened if it holds an ``IndexBinaryFlat``, with or without ids.

    Every change writes the whole file, so add many items at a time. What other processes write is seen by the next
    call; a writer waits for another one for up to a minute.

    By default, search is exact. With ``search="ivf"`` or ``search="hash"``, `search` asks an ``IndexBinaryIVF`` or an
    ``IndexBinaryHash``, which are made in memory from the items. **They miss neighbours.** A query for which they find
    fewer than ``k`` items is scanned for. `search_radius`, and any search with ``allowed``, stay exact. ``probes`` is
    how many lists are read (ivf), or how many bits of a bucket are flipped (hash).
    """

    extra = "faiss"
    options: ClassVar = {"search": OneOf(("flat", "ivf", "hash")), "probes": Integer(1, 2**16)}

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._kind, self._probes = options.get("search", "flat"), int(options.get("probes", 1))
        self._faiss = required("faiss", self.extra)
        self._path = file_path(url)
        if not create:
            refuse_missing(self._path, self.place)
        self._loading = threading.Lock()
        self._latest: tuple[Any, _Snapshot] | None = None  # which file was read, and what it held
        self._closed = False

    def _failures(self) -> tuple[type[Exception], ...]:
        return (OSError, RuntimeError)  # faiss raises RuntimeError

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        yield _FaissSession(self._snapshot())

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with only_writer(self._path + ".lock", self.place):
            before = self._snapshot()
            session = _FaissSession(before)
            yield session
            if session.stored is not before.stored:
                faiss_file.write(self._path, session.stored, self._faiss)

    def _snapshot(self) -> _Snapshot:
        with self._loading:
            if self._closed:
                raise ValueError(f"{self.place}: the index must not be closed when it is used. Connect again.")
            try:
                about = os.stat(self._path)
            except FileNotFoundError:
                return _Snapshot(self, NOTHING)
            version = about.st_ino, about.st_mtime_ns, about.st_size
            if self._latest is None or self._latest[0] != version:
                self._latest = version, _Snapshot(self, faiss_file.read(self._path))
            return self._latest[1]

    def close(self) -> None:
        """Free the memory of the items."""
        with self._loading:
            self._closed, self._latest = True, None


class _Snapshot:
    """The items of one moment, and the indexes of faiss that are made of them when they are first used."""

    def __init__(self, engine: FaissIndex, stored: Stored) -> None:
        self.engine, self.stored = engine, stored
        self._making = threading.Lock()
        self._exact: Any = None
        self._chosen: Any = None

    def exact(self) -> Any:
        with self._making:
            if self._exact is None:
                self._exact = self.flat(self.stored.codes)
            return self._exact

    def chosen(self) -> Any:
        """The index for `search`: exact, or what the user has chosen instead."""
        if self.engine._kind == "flat":
            return self.exact()
        with self._making:
            if self._chosen is None:
                self._chosen = self._approximate()
            return self._chosen

    def flat(self, codes: NDArray[np.uint8]) -> Any:
        index = self.engine._faiss.IndexBinaryFlat(8 * codes.shape[1])
        index.add(np.ascontiguousarray(codes))
        return index

    def _approximate(self) -> Any:
        codes, faiss = np.ascontiguousarray(self.stored.codes), self.engine._faiss
        n_bits = 8 * codes.shape[1]
        if self.engine._kind == "ivf":
            index = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(n_bits), n_bits, max(1, round(len(codes) ** 0.5)))
            index.nprobe = self.engine._probes
            index.train(codes)
        else:
            index = faiss.IndexBinaryHash(n_bits, min(n_bits, max(1, int(np.log2(max(len(codes), 2))))))
            index.nflip = self.engine._probes
        index.add(codes)
        return index


class _FaissSession(Session):
    def __init__(self, snapshot: _Snapshot) -> None:
        self.snapshot, self.stored, self.meta = snapshot, snapshot.stored, snapshot.stored.meta

    def _store(self, stored: Stored) -> None:
        self.stored, self.meta = stored, stored.meta

    def create(self, meta: Meta) -> None:
        keys = np.empty(0, np.dtype("S1") if meta.texts else np.int64)
        self._store(Stored(meta, np.empty((0, meta.n_bytes or 0), np.uint8), keys, np.empty(0, np.int64)))

    def count(self) -> int:
        return len(self.stored.keys)

    def largest(self) -> int | None:
        return int(self.stored.keys[-1]) if self.count() else None

    def known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        return find(self.stored.keys, encode(ids))[1]

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        stored = self.stored if ids is None else self.stored.among(find(self.stored.keys, encode(ids))[0])
        stored = stored.in_order()
        return decode(stored.keys).copy(), stored.codes

    def ranks(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        return self.stored.ranks[find(self.stored.keys, encode(ids))[0]]

    def next_rank(self) -> int:
        return int(self.stored.ranks.max(initial=-1)) + 1

    def delete(self, ids: NDArray[Any]) -> None:
        kept = np.ones(self.count(), np.bool_)
        kept[find(self.stored.keys, encode(ids))[0]] = False
        stored = self.stored
        self._store(Stored(stored.meta, stored.codes[kept], stored.keys[kept], stored.ranks[kept]))

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        stored, keys = self.stored, np.concatenate([self.stored.keys, encode(ids)])
        order = np.argsort(keys, kind="stable")
        codes, ranks = np.concatenate([stored.codes, codes]), np.concatenate([stored.ranks, ranks])
        self._store(Stored(stored.meta, codes[order], keys[order], ranks[order]))

    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        exact, keys = self._among(allowed)
        index = exact if allowed is not None else self.snapshot.chosen()
        distances, positions = index.search(codes, k)  # of equal distances, faiss finds the first positions
        few = (positions < 0).any(axis=1)
        if few.any():
            distances[few], positions[few] = exact.search(codes[few], k)
        return [_ordered(d, p, keys) for d, p in zip(distances, positions, strict=True)]

    def within(self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        index, keys = self._among(allowed)
        ends, distances, positions = index.range_search(codes, radius + 1)  # which finds what is nearer than that
        parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        return [_ordered(distances[part], positions[part], keys) for part in parts]

    def _among(self, allowed: NDArray[Any] | None) -> tuple[Any, NDArray[Any]]:
        """An exact index of the allowed items, and their keys."""
        if allowed is None:
            return self.snapshot.exact(), self.stored.keys
        positions = find(self.stored.keys, encode(allowed))[0]
        return self.snapshot.flat(self.stored.codes[positions]), self.stored.keys[positions]


def _ordered(distances: NDArray[Any], positions: NDArray[Any], keys: NDArray[Any]) -> Neighbours:
    order = np.lexsort((positions, distances))
    return distances[order], decode(keys[positions[order]])
