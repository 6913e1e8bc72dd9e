"""What a new index implements; `hashgrove.index.base.Index` builds its contract on these methods."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import check_codes
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import available_threads

__all__ = ["Hooks", "digest_of"]


class Hooks(ABC):
    """The methods that a new index implements, and the checks that the others share.

    Arguments have been checked before these methods are called.

    Parameters
    ----------
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes: an encoder, a hasher, or its digest.
    """

    def __init__(self, *, model: Any = None) -> None:
        self._changing = threading.Lock()
        self._model = digest_of(model)

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    @property
    @abstractmethod
    def n_bytes(self) -> int | None:
        """Number of bytes per code; None before the first codes are added."""

    @abstractmethod
    def _contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """All ids, int64 or str, ascending, and the codes in this order, of one moment; read-only."""

    @abstractmethod
    def _known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these ids, int64 or str, are in the index."""

    @abstractmethod
    def _change(self, codes: NDArray[np.uint8], ids: NDArray[Any], removed: NDArray[Any]) -> None:
        """Remove the items with the ids ``removed``, and add ``codes`` with ``ids``, in one step.

        Both arrays of ids are ascending and without duplicates. All of ``removed`` are in the index; none of ``ids``
        is, unless it is among ``removed``. It is called inside `_exclusively`.
        """

    def _exclusively(self) -> AbstractContextManager[Any]:
        """What surrounds a change, with all that it reads before: no other change runs at the same time."""
        return self._changing

    @abstractmethod
    def _search(
        self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """`search` with checked arguments; ``allowed`` is a mask, ascending ids, or None."""

    @abstractmethod
    def _search_radius(
        self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        """`search_radius` with checked arguments; ``allowed`` is a mask, ascending ids, or None."""

    @property
    def ids(self) -> NDArray[Any]:
        """All ids in ascending order: int64 or str (n,), read-only."""
        return self._contents()[0]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """All codes in ascending order of their ids: uint8 (n, n_bytes), read-only."""
        return self._contents()[1]

    @property
    def model(self) -> str | None:
        """Digest of the model that made the codes; None if it is not known."""
        return self._model

    def _check_model(self, model: Any) -> None:
        digest = digest_of(model)
        if digest is not None and self._model is not None and digest != self._model:
            raise ParameterError(
                "model",
                f"must be the model of the index, {self._model[:12]}. Got {digest[:12]} instead: "
                "codes of different models cannot be compared.",
            )

    def _check_queries(self, codes: ArrayLike, model: Any, n_jobs: int | None) -> NDArray[np.uint8]:
        self._check_model(model)
        available_threads(n_jobs)
        return check_codes(codes, n_bytes=self.n_bytes)


def digest_of(model: Any) -> str | None:
    """The digest of a model, which may be a digest already; None if there is no model."""
    if model is None or isinstance(model, str):
        return model
    digest = getattr(model, "digest", None)
    if not isinstance(digest, str):
        raise ParameterError(
            "model", f"must be a digest or a model that has one. Got an object of type {type(model).__name__} instead."
        )
    return digest
