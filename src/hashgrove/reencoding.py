"""`reencode`: the items of an index, in a folder or in an engine, encoded again by a new model.

The new codes are made beside the old ones. They are kept piece by piece in a folder for the work, so that a run that
was stopped goes on where it was, and take the place of the old codes in one step at the end.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.encoders import Encoder
from hashgrove.features import ImageEncoder
from hashgrove.index import connect, load_index
from hashgrove.index.engines import Engine
from hashgrove.index.folder import DATA_FILE, LOCK, MANIFEST, MODEL
from hashgrove.index.ids import check_ids, encode, find
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.rerank import Int8Rows
from hashgrove.index.stored_features import as_table, table_type
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import chunks
from hashgrove.storage.atomic import atomic_write, exchange
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.models import load

__all__ = ["Reencoded", "reencode"]

PIECE = 4096  # rows that are encoded, and written, together
CRC = 4  # bytes behind each piece
STATE, PIECES, NEW = "state", "pieces.bin", "index.hgi"
OURS = {MANIFEST, LOCK, MODEL}  # and files of rows: what of the old index is not copied


@dataclass(frozen=True)
class Reencoded:
    """Outcome of `reencode`.

    Attributes
    ----------
    n_items : int
        Number of items.
    n_resumed : int
        Number of items that an earlier run had encoded.
    model : str
        Digest of the new model.
    """

    n_items: int
    n_resumed: int
    model: str


def reencode(
    place: PathLike,
    model: PathLike,
    *,
    X: Any = None,
    ids: ArrayLike | None = None,
    work: PathLike | None = None,
    n_jobs: int | None = None,
    on_items: Callable[[int], None] | None = None,
) -> Reencoded:
    """Encode the items of an index again by a new model, and put the new codes in the place of the old ones at once.

    The index can be searched all the time; it cannot be changed. The old codes stay until the new ones are complete,
    and a process that is killed at any moment leaves either the old index or the new one. Call it again with the same
    arguments to go on.

    Parameters
    ----------
    place : path, or URL of an engine
    model : path
        File of the new model.
    X : array of shape (n, n_features), or sequence of paths of images, optional
        What the items are encoded from: one row per item in the order of ``index.ids``, or by ``ids``. Without it, the
        features that the index keeps are used, which are rounded to one byte each.
    ids : array-like of shape (n,), optional
        The items that the rows of ``X`` belong to; there must be a row for each item.
    work : path, optional
        Folder for unfinished work, on the disk of the index; by default one beside the index or, for an engine, in the
        working folder. It is removed at the end.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.
    on_items : function, optional
        Called with the number of items that are encoded.

    Returns
    -------
    done : Reencoded

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FlatIndex, ITQ
    >>> X, folder = load_digits().data, tempfile.mkdtemp()
    >>> old, new = ITQ(16, random_state=0).fit(X[:500]), ITQ(32, random_state=0).fit(X)
    >>> new.save(folder + "/new.hashgrove")
    >>> FlatIndex(old.transform(X)).save(folder + "/digits.hgi")
    >>> reencode(folder + "/digits.hgi", folder + "/new.hashgrove", X=X).n_items
    1797
    >>> load_index(folder + "/digits.hgi").model == new.digest
    True
    """
    encoder, name = load(model), os.fspath(place)
    if ids is not None and X is None:
        raise ParameterError("ids", "must be given together with 'X'. Got ids alone instead.")
    if "://" in name:
        with connect(name, create=False) as engine:
            return _Work(engine, engine.place, encoder, work or _work_of(engine.place), on_items).engine(X, ids, n_jobs)
    with closing(load_index(name, writable=True)) as index:  # nobody else changes it meanwhile
        target = os.path.realpath(name)
        how = _Work(index, name, encoder, work or f"{target}.reencoding", on_items)
        return how.folder(index, target, model, X, ids, n_jobs)


def _work_of(place: str) -> str:
    return f"reencoding-{hashlib.sha256(place.encode()).hexdigest()[:12]}"


class _Work:
    """One re-encoding: what is encoded, and the folder that holds what is finished."""

    def __init__(
        self,
        index: Engine | MemoryIndex,
        place: str,
        encoder: Encoder | ImageEncoder,
        work: PathLike,
        on_items: Callable[[int], None] | None,
    ) -> None:
        self.index, self.place, self.encoder = index, place, encoder
        self.path, self.show = Path(work), on_items or (lambda done: None)
        self.ids = index.ids
        self.n_bytes = -(-encoder.n_bits // 8)

    def engine(self, X: Any, ids: ArrayLike | None, n_jobs: int | None) -> Reencoded:
        """Re-encode the items of an engine, which replaces them in a transaction."""
        assert isinstance(self.index, Engine)
        codes, _, n_resumed = self._encoded(X, ids, n_jobs)
        self.index.replace_codes(codes, ids=self.ids, model=self.encoder.digest)
        return self._finish(n_resumed)

    def folder(
        self, index: MemoryIndex, target: str, model: PathLike, X: Any, ids: ArrayLike | None, n_jobs: int | None
    ) -> Reencoded:
        """Re-encode an index in a folder: write another folder, and exchange the two."""
        codes, features, n_resumed = self._encoded(X, ids, n_jobs)
        new = type(index)(codes, ids=self.ids, model=self.encoder)
        if features is not None and len(new):
            new.keep_features(features)
        beside = self.path / NEW
        shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
        new.save(beside)
        _copy(model, beside / MODEL)
        for entry in os.scandir(target):
            ours = entry.name in OURS or entry.name.startswith(".") or DATA_FILE.fullmatch(entry.name)
            if entry.is_file(follow_symlinks=False) and not ours:
                _copy(entry.path, beside / entry.name)
            elif entry.is_dir(follow_symlinks=False) and not ours:  # of pictures that the service has added
                (beside / entry.name).mkdir()
                for inner in os.scandir(entry.path):
                    if inner.is_file(follow_symlinks=False):
                        _copy(inner.path, beside / entry.name / inner.name)
        exchange(beside, target)
        return self._finish(n_resumed)

    def _finish(self, n_resumed: int) -> Reencoded:
        shutil.rmtree(self.path, ignore_errors=True)
        return Reencoded(len(self.ids), n_resumed, self.encoder.digest)

    def _encoded(
        self, X: Any, ids: ArrayLike | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint8], Int8Rows | None, int]:
        """The new codes and features to keep, in the order of the ids, and how many an earlier run had encoded."""
        read = self._source(X, ids)
        n, keeps = len(self.ids), getattr(self.index, "features", None) is not None
        encoder = self.encoder.encoder if isinstance(self.encoder, ImageEncoder) else self.encoder
        kind = np.dtype([("code", "u1", (self.n_bytes,)), ("kept", table_type(encoder.n_features if keeps else 0))])
        rows = np.empty(n, kind)
        self.path.mkdir(exist_ok=True)
        with self._opened(read, kind) as file:
            n_resumed = 0
            for start, stop in chunks(n, PIECE):
                finished = self._finished(file, kind, start, stop)
                if finished is None:
                    X = read(np.arange(start, stop))
                    rows["code"][start:stop] = encoder.encode(X, n_jobs=n_jobs)
                    if keeps:
                        rows["kept"][start:stop] = as_table(Int8Rows.of(X))
                    content = rows[start:stop].tobytes()
                    file.write(content + zlib.crc32(content).to_bytes(CRC, "little"))
                    file.flush()
                else:
                    rows[start:stop] = finished
                    n_resumed = stop
                self.show(stop)
        kept = Int8Rows(rows["kept"]["values"], rows["kept"]["scale"]) if keeps else None
        return np.ascontiguousarray(rows["code"]), kept, n_resumed

    def _source(self, X: Any, ids: ArrayLike | None) -> Callable[[NDArray[np.int64]], NDArray[Any]]:
        """A function that gives the features of some items, by their numbers."""
        image_encoder = self.encoder if isinstance(self.encoder, ImageEncoder) else None
        if X is None:
            stored = getattr(self.index, "features", None)
            if stored is None or len(stored) < len(self.ids):
                n_kept = "none" if stored is None else f"{len(stored):,} of {len(self.ids):,}"
                raise FileError(
                    f"{self.place}: must keep features of all items, or X must be given. It keeps {n_kept}."
                )
            self._check_width(stored.n_features)
            return lambda numbers: stored.of(self.ids[numbers])
        if isinstance(X, Sequence) and all(isinstance(path, str | os.PathLike) for path in X):
            if image_encoder is None:
                raise ParameterError("X", "must be features for a model that takes no images. Got paths instead.")
            paths, rows = list(X), self._rows(len(X), ids)
            return lambda numbers: image_encoder.features.transform([paths[row] for row in rows[numbers]])
        given = X if hasattr(X, "shape") else np.asarray(X)
        if len(given.shape) != 2:
            raise ParameterError("X", f"must be a matrix, or paths of images. Got shape {given.shape} instead.")
        self._check_width(given.shape[1])
        rows = self._rows(given.shape[0], ids)
        return lambda numbers: np.asarray(given[rows[numbers]])

    def _check_width(self, n_features: int) -> None:
        encoder = self.encoder.encoder if isinstance(self.encoder, ImageEncoder) else self.encoder
        if n_features != encoder.n_features:
            raise ParameterError(
                "X",
                f"must have {encoder.n_features} features per row, as the new model takes. Got {n_features} instead.",
            )

    def _rows(self, n_rows: int, ids: ArrayLike | None) -> NDArray[np.int64]:
        """The number of the row of X of each item."""
        if ids is None:
            if n_rows != len(self.ids):
                raise ParameterError(
                    "X", f"must have {len(self.ids):,} rows, one per item, unless 'ids' say which. Got {n_rows:,}."
                )
            return np.arange(n_rows)
        keys = encode(check_ids(ids, length=n_rows))
        order = np.argsort(keys, kind="stable")
        places, known = find(keys[order], encode(self.ids))
        if not known.all():
            raise ParameterError("ids", f"must have all items of the index. Got none for {self.ids[~known][0]!r}.")
        return np.asarray(order[places])

    def _opened(self, read: Callable[[NDArray[np.int64]], NDArray[Any]], kind: np.dtype[Any]) -> BinaryIO:
        """The file of finished pieces; what it holds of other work is thrown away."""
        mark = hashlib.sha256(repr((self.encoder.digest, kind.descr, PIECE, len(self.ids))).encode())
        mark.update(np.ascontiguousarray(encode(self.ids)).tobytes())
        if len(self.ids):
            mark.update(np.ascontiguousarray(read(np.array([0, len(self.ids) - 1]))).tobytes())
        state, pieces = self.path / STATE, self.path / PIECES
        if not (state.exists() and pieces.exists() and state.read_text() == mark.hexdigest()):
            state.unlink(missing_ok=True)
            pieces.write_bytes(b"")
            with atomic_write(state) as file:
                file.write(mark.hexdigest().encode())
        return open(pieces, "r+b")

    def _finished(self, file: BinaryIO, kind: np.dtype[Any], start: int, stop: int) -> NDArray[Any] | None:
        """The piece that comes next in the file; None if there is none, or one that was cut off."""
        place, n_bytes = file.tell(), (stop - start) * kind.itemsize
        content, crc = file.read(n_bytes), file.read(CRC)
        if len(crc) == CRC and zlib.crc32(content).to_bytes(CRC, "little") == crc:
            return np.frombuffer(content, kind)
        file.seek(place)
        file.truncate()
        return None


def _copy(source: PathLike, target: PathLike) -> None:
    with open(source, "rb") as content, atomic_write(target) as file:
        shutil.copyfileobj(content, file)
