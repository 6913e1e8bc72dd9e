"""`Engine`: the contract of an index, kept by items that live in a database or in the files of another library."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NoReturn
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import MAX_BITS, digest_of
from hashgrove.index.base import Index
from hashgrove.index.changes import Change
from hashgrove.index.engines.server import shown_url
from hashgrove.index.engines.session import EngineError, Meta, Session
from hashgrove.index.rerank import Order
from hashgrove.runtime.parameters import Constraint, Integer, ParameterError

__all__ = ["Engine"]


class Engine(Index):
    """An index whose items live in a database or in the files of another library; `Index` states its contract.

    `hashgrove.connect` makes one. It may be used by several threads. ``n_jobs`` has no effect: an engine uses the
    threads that it is set up to use.

    A new engine is a subclass with the abstract methods below and `close`, a `Session`, and one line in
    `hashgrove.index.engines.ENGINES`.

    Parameters
    ----------
    url : SplitResult
        Where the items are, without options.
    n_bits, model, create
        As for `connect`.
    **options
        As `options` declares them, checked; `_start` gets them.

    Attributes
    ----------
    place : str
        The name of the place in error messages: the URL, without passwords.
    """

    extra: ClassVar[str]  # what to install: hashgrove[extra]
    options: ClassVar[Mapping[str, Constraint]] = {}

    def __init__(
        self, url: SplitResult, *, n_bits: int | None = None, model: Any = None, create: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.place = shown_url(url)
        self._own = threading.local()  # .session: the transaction of the change that a thread is making
        self._n_bytes: int | None = None
        self._ready = False  # whether something has been stored, if only what the first items will be
        self._start(url, options, create)
        try:
            self._agree(n_bits, model, create)
        except BaseException:
            self.close()
            raise

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{self.place}: a connection cannot be copied or sent to another process; connect there")

    @abstractmethod
    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        """Import the engine's library and keep what is needed to open transactions."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Session]:
        """A transaction in which nothing is written. Several threads may read at the same time."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Session]:
        """A transaction that is committed when the block ends, durably, and rolled back if it raises an error."""

    @abstractmethod
    def _failures(self) -> tuple[type[Exception], ...]:
        """The types of the errors that the engine's library raises."""

    def _said(self, error: Exception) -> str:
        """The message of such an error."""
        return str(error)

    def _agree(self, n_bits: int | None, model: Any, create: bool) -> None:
        """Check what is stored against what the user expects, or store it if the place is new."""
        Integer(1, MAX_BITS, or_none=True).check("n_bits", n_bits)
        with self._session() as session:
            wanted = self._expected(session, n_bits, model)
            if not create and session.meta == Meta():
                raise EngineError(f"{self.place}: must have items that hashgrove has stored. There are none.")
            agreed = session.meta == wanted != Meta()
        if not agreed:
            with self._exclusively(), self._session() as session:
                wanted = self._expected(session, n_bits, model)  # another process may have been here meanwhile
                if session.meta == Meta() or session.meta != wanted:
                    session.create(wanted)
        self._model, self._ready = wanted.model, True

    def _expected(self, session: Session, n_bits: int | None, model: Any) -> Meta:
        """The stored description of the items, completed by what the user knows about them."""
        stored, n_bytes = session.meta, None if n_bits is None else -(-int(n_bits) // 8)
        if n_bytes is not None and stored.n_bytes not in (None, n_bytes):
            raise ParameterError(
                "n_bits",
                f"must be that of the items at {self.place}, which have {stored.n_bytes} bytes "
                f"per code. Got {n_bits} instead.",
            )
        given = digest_of(model)
        if stored.model is not None and given not in (None, stored.model):
            raise ParameterError(
                "model",
                f"must be the model of the index, {stored.model[:12]}. Got {str(given)[:12]} instead: "
                "codes of different models cannot be compared.",
            )
        if model is not None and stored.model is None and stored.n_bytes is not None and session.count():
            raise EngineError(f"{self.place}: the items were stored without a model, so 'model' must be left out.")
        return replace(stored, n_bytes=stored.n_bytes or n_bytes, model=stored.model or digest_of(model))

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """The transaction of the change that this thread is making; otherwise a new one, for reading."""
        current = getattr(self._own, "session", None)
        if current is not None:
            yield current
            return
        with self._one_line_errors(), self._reading() as session:
            self._check_same_model(session)
            yield session

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        with self._changing, self._one_line_errors(), self._writing() as session:
            self._check_same_model(session)
            self._own.session = session
            try:
                yield
            finally:
                self._own.session = None

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        failures: tuple[type[Exception], ...] = (EngineError, *self._failures())
        try:
            yield
        except failures as error:
            said = " ".join(self._said(error).split()) or type(error).__name__
            raise EngineError(f"{self.place}: {said.removeprefix(f'{self.place}: ')}") from error

    def __len__(self) -> int:
        with self._session() as session:
            return 0 if session.meta.n_bytes is None else session.count()

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""
        if self._n_bytes is None:
            with self._session() as session:
                self._n_bytes = session.meta.n_bytes
        return self._n_bytes

    @property
    def model(self) -> str | None:
        """Digest of the model that made the codes; None if it is not known."""
        if self._model is None:  # another process may have added the first codes
            with self._session() as session:
                self._model = session.meta.model
        return self._model

    def _contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        with self._session() as session:
            if session.meta.n_bytes is None:
                ids, codes = np.empty(0, np.int64), np.empty((0, 0), np.uint8)
            else:
                ids, codes = session.contents()
        for array in (ids, codes):
            array.flags.writeable = False
        return ids, codes

    def _known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        with self._session() as session:
            if session.meta.n_bytes is None or len(ids) == 0 or not _same_kind(session.meta, ids):
                return np.zeros(len(ids), np.bool_)
            return session.known(ids)

    def _has_texts(self) -> bool | None:
        with self._session() as session:
            empty = session.meta.n_bytes is None or session.count() == 0
            return None if empty else session.meta.texts

    def _largest_id(self) -> int:
        with self._session() as session:
            largest = None if session.meta.n_bytes is None or session.meta.texts else session.largest()
        return -1 if largest is None else largest

    def _change(self, change: Change) -> None:
        by_id = np.argsort(change.ids, kind="stable")
        codes, ids, replaces = change.codes[by_id], change.ids[by_id], change.replaces[by_id]
        with self._session() as session:
            ranks = by_id + (session.next_rank() if len(ids) and session.meta.n_bytes is not None else 0)
            if replaces.any():
                ranks[replaces] = session.ranks(ids[replaces])
            removed = np.union1d(change.removed, ids[replaces]) if replaces.any() else change.removed
            if len(removed):
                session.delete(removed)
            texts = ids.dtype.kind == "U" if len(ids) else session.meta.texts
            wanted = Meta(session.meta.n_bytes or codes.shape[1] or None, texts, change.model)
            if wanted != session.meta:
                session.create(wanted)
            if len(ids):
                session.insert(codes, ids, ranks)

    def replace_codes(self, codes: NDArray[np.uint8], *, ids: NDArray[Any], model: Any) -> None:
        """Replace the codes of all items, and the model that made them, in one transaction; `hashgrove.reencode` does.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
            Codes of the new model, in the order of `ids`.
        ids : array of shape (n,)
            What `ids` gave when the codes were made. If items have changed since, nothing is replaced.
        model : str, or an object with the attribute ``digest``
            The new model.
        """
        meta = Meta(codes.shape[1], ids.dtype.kind == "U", digest_of(model))
        by_id = np.argsort(ids, kind="stable")
        with self._exclusively(), self._session() as session:
            now = session.contents()[0] if session.meta.n_bytes is not None else ids[:0]
            if len(now) != len(ids) or (now != ids).any():
                raise EngineError(f"{self.place}: items have changed meanwhile. Encode them again.")
            session.replace(meta, codes[by_id], ids[by_id], by_id)
            self._n_bytes, self._model = meta.n_bytes, meta.model

    def _check_same_model(self, session: Session) -> None:
        """Refuse to go on with a connection that knows the items by another model: they have been re-encoded."""
        stored = session.meta  # Milvus has none before the first items
        if self._ready and self._model is not None and stored != Meta() and stored.model != self._model:
            raise EngineError(f"{self.place}: the items have been encoded by another model since. Connect again.")

    def _search(
        self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        with self._session() as session:
            return _nearest(session, codes, k, *_allowed_ids(session, allowed))

    def _search_reranked(
        self, rerank: Order, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, **options: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        with self._session() as session:
            only, n_items = _allowed_ids(session, allowed)

            def nearest(part: NDArray[np.uint8], n: int) -> tuple[NDArray[np.uint16], NDArray[Any]]:
                return _nearest(session, part, n, only, n_items)

            def codes_of(ids: NDArray[Any]) -> NDArray[np.uint8]:
                if not len(ids):
                    return codes[:0]
                found, stored = session.contents(ids)
                order = np.argsort(found)
                return stored[order[np.searchsorted(found[order], ids)]]

            options["n_jobs"] = 1  # a transaction is of one thread
            return rerank.search(nearest, codes, k, stored=None, codes_of=codes_of, **options)

    def _search_radius(
        self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        with self._session() as session:
            only, n_items = _allowed_ids(session, allowed)
            if n_items:
                found = session.within(codes, min(radius, MAX_BITS), only)
            else:
                found = [(np.empty(0), np.empty(0, np.str_ if session.meta.texts else np.int64)) for _ in codes]
        return [d.astype(np.uint16) for d, _ in found], [ids for _, ids in found]


def _nearest(
    session: Session, codes: NDArray[np.uint8], k: int, only: NDArray[Any] | None, n_items: int
) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Distances and ids of the nearest among the items ``only``, or all; there are ``n_items`` of them."""
    k = min(k, n_items)
    if not k or not len(codes):
        kind = np.dtype(np.str_ if session.meta.texts else np.int64)
        return np.empty((len(codes), k), np.uint16), np.empty((len(codes), k), kind)
    found = session.nearest(codes, k, only)
    return np.stack([d for d, _ in found]).astype(np.uint16), np.stack([ids for _, ids in found])


def _same_kind(meta: Meta, ids: NDArray[Any]) -> bool:
    return meta.texts == (ids.dtype.kind == "U")


def _allowed_ids(session: Session, allowed: NDArray[Any] | None) -> tuple[NDArray[Any] | None, int]:
    """The ids that a search may find, ascending (None for all), and how many items that are."""
    n_items = 0 if session.meta.n_bytes is None else session.count()
    if allowed is None:
        return None, n_items
    if allowed.dtype != np.bool_:
        if n_items == 0 or len(allowed) == 0 or not _same_kind(session.meta, allowed):
            return allowed[:0], 0
        stored = allowed[session.known(allowed)]
        return stored, len(stored)
    if len(allowed) != n_items:
        raise ParameterError(
            "allowed", f"must have {n_items} entries, one per item, if it is a mask. Got {len(allowed)} instead."
        )
    chosen = np.sort(session.contents()[0][allowed]) if n_items else np.empty(0, np.int64)
    return chosen, len(chosen)
