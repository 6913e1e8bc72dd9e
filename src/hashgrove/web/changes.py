"""Changes of the served index: one thread makes them, and each is on disk before its answer is sent."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.web.collection import Collection
from hashgrove.web.errors import ServiceError

__all__ = ["Writer"]

COMPACT = 4  # removed items make room when they are one of this many


class Writer:
    """Adds and removes items of a collection, one change after the other.

    Parameters
    ----------
    collection : Collection
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._thread = ThreadPoolExecutor(1, "hashgrove-write")
        self._n_removed = 0  # rows of the files that hold removed items

    def close(self) -> None:
        """Finish the changes that were asked for."""
        self._thread.shutdown()

    def check(self) -> None:
        """Refuse any change of a collection that is read-only."""
        if self._collection.read_only:
            raise ServiceError(403, "The service is read-only: items cannot be added or removed.")

    async def add(
        self, codes: NDArray[np.uint8], ids: NDArray[Any] | None, *, features: NDArray[Any] | None, replace: bool
    ) -> NDArray[Any]:
        """Add items, or give items new codes; return their ids. They are on disk then."""
        return await self._run(self._add, codes, ids, features, replace)

    async def remove(self, ids: NDArray[Any]) -> int:
        """Remove items; return how many there were. They are gone from the disk then."""
        return await self._run(self._remove, ids)

    async def _run(self, function: Any, *arguments: Any) -> Any:
        self.check()
        # a change that has begun is finished even if the client has gone or the time is over
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments))

    def _add(
        self, codes: NDArray[np.uint8], ids: NDArray[Any] | None, features: NDArray[Any] | None, replace: bool
    ) -> NDArray[Any]:
        collection, index = self._collection, self._collection.index
        try:
            if ids is None:
                ids = index._next_ids(len(codes))
            known = index._known(ids)
            if known.any() and not replace:
                message = f"There is an item with the id {str(ids[known][0])!r} already. Give 'replace' to change it."
                raise ServiceError(409, message, field="id")
            if collection.kept is not None:
                if features is None:
                    message = "The 'code' field cannot be used: the index keeps features. Give features instead."
                    raise ServiceError(422, message, field="code")
                index.keep_features(features, ids=ids)  # type: ignore[attr-defined]
            index.update(codes, ids=ids, insert=True)
        except ValueError as error:
            raise ServiceError(422, " ".join(str(error).split()), field="items") from None
        self._make_room(int(known.sum()))
        return ids

    def _remove(self, ids: NDArray[Any]) -> int:
        n_removed = self._collection.index.remove(ids, missing_ok=True)
        self._make_room(n_removed)
        return n_removed

    def _make_room(self, n_removed: int) -> None:
        """Note a change; rewrite the files when many of their rows hold removed items."""
        index = self._collection.index
        self._n_removed += n_removed
        if hasattr(index, "compact") and COMPACT * self._n_removed > max(len(index), 4096):
            index.compact()
            self._n_removed = 0
        self._collection.changed()
