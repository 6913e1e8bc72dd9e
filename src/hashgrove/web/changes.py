"""Changes of the served index: one thread makes them, and each is on disk before its answer is sent."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, one_line
from hashgrove.web.bodies import Input
from hashgrove.web.collection import Collection
from hashgrove.web.encoding import Encoding
from hashgrove.web.errors import ServiceError, cannot_use, from_value_error, must_be
from hashgrove.web.limits import Limits
from hashgrove.web.schemas import ItemsRequest, ItemsRows

__all__ = ["Writer"]

log = logging.getLogger("hashgrove")

COMPACT = 4  # the files are rewritten when one in so many of their rows holds a removed item


class _NewItems(NamedTuple):
    """Items of a request: codes, features and ids if they were given, and the digest of the model of the codes."""

    codes: NDArray[np.uint8]
    features: NDArray[Any] | None
    ids: NDArray[Any] | None
    model: str | None


class Writer:
    """Adds and removes items of a collection, one change after the other.

    Parameters
    ----------
    collection : Collection
    encoding : Encoding
        Encodes the features of new items.
    limits : Limits
    """

    def __init__(self, collection: Collection, encoding: Encoding, *, limits: Limits) -> None:
        self._collection, self._encoding, self._limits = collection, encoding, limits
        self._thread = ThreadPoolExecutor(1, "hashgrove-write")
        self._n_removed = 0  # rows of the files that hold removed items

    def close(self) -> None:
        """Finish the changes that were asked for."""
        self._thread.shutdown()

    def check_writable(self) -> None:
        """Refuse any change of a collection that is read-only."""
        if self._collection.read_only:
            raise ServiceError(403, "The service is read-only: items cannot be added or removed.")

    async def add(self, given: Input) -> NDArray[Any]:
        """Add the items of a request, or replace existing ones; return their ids. They are on disk then."""
        asked = given.asked
        if isinstance(asked, ItemsRequest):
            new = await self._from_json(asked)
        else:
            new = await self._from_rows(asked, given.content)
        return await self._run(self._add, new, asked.replace)

    async def remove(self, id_: str) -> int:
        """Remove an item; return 1, or 0 if there is none. It is gone from the disk then."""
        return await self._run(self._remove, self._encoding.check_ids([id_], "id"))

    async def _run(self, function: Any, *arguments: Any) -> Any:
        # a change that has begun is finished even if the client has gone or the time is over
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments))

    async def _from_json(self, asked: ItemsRequest) -> _NewItems:
        for number, item in enumerate(asked.items):
            if (item.features is None) == (item.code is None):
                place = f"items.{number}"
                got = "none" if item.code is None else "both"
                message = f"The '{place}' field must have exactly one of 'features' and 'code'. Got {got} instead."
                raise ServiceError(422, message, field=place)
        digits = [item.code for item in asked.items if item.code is not None]
        rows = [item.features for item in asked.items if item.features is not None]
        self._check_codes_allowed(asked.model, "items.code", given=bool(digits))
        ids = self._ids([item.id for item in asked.items if item.id is not None], len(asked.items))
        features = await self._encoding.as_matrix(rows, "items.features") if rows else None
        parts: dict[bool, NDArray[np.uint8]] = {}  # codes by whether they were given as features
        if features is not None:
            parts[True] = (await self._encoding.encode(features)).codes
        if digits:
            parts[False] = self._encoding.check_codes(digits, "items.code")
        if len({part.shape[1] for part in parts.values()}) > 1:
            raise must_be("items.code", "as long as the codes of the model", digits[0])
        encoded = np.array([item.features is not None for item in asked.items])
        codes = np.empty((len(asked.items), next(iter(parts.values())).shape[1]), np.uint8)
        for is_encoded, part in parts.items():
            codes[encoded == is_encoded] = part
        return _NewItems(codes, None if digits else features, ids, self._collection.digest if rows else asked.model)

    async def _from_rows(self, asked: ItemsRows, body: bytes) -> _NewItems:
        self._check_codes_allowed(asked.model, "kind", given=asked.kind == "codes")
        rows = self._encoding.check_rows(body, asked.kind, limit=self._limits.items)
        ids = self._ids(asked.id or [], len(rows))
        if asked.kind == "codes":
            return _NewItems(rows, None, ids, asked.model)
        return _NewItems((await self._encoding.encode(rows)).codes, rows, ids, self._collection.digest)

    def _check_codes_allowed(self, model: str | None, field: str, *, given: bool) -> None:
        if given and self._collection.stored_features is not None:
            raise cannot_use(field, "the index stores features, so new items must be given as features")
        self._encoding.check_model(model, codes=given)

    def _ids(self, given: list[Any], n_items: int) -> NDArray[Any] | None:
        """The ids of new items, of which all or none are given."""
        if given and len(given) != n_items:
            raise must_be("id", f"given for all {n_items} items or for none", f"{len(given)} ids")
        return self._encoding.check_ids(given, "id") if given else None

    def _add(self, new: _NewItems, replace: bool) -> NDArray[Any]:
        collection, index = self._collection, self._collection.index
        try:
            ids = index.next_ids(len(new.codes)) if new.ids is None else new.ids
            known = index.contains(ids)
            if known.any() and not replace:
                message = f"There is an item with the id {str(ids[known][0])!r} already. Give 'replace' to change it."
                raise ServiceError(409, message, field="id")
            features = None if collection.stored_features is None else new.features
            index.add(new.codes, ids=ids, features=features, replace=True, model=new.model)
        except ValueError as error:
            raise from_value_error(error, "items") from error
        self._make_room(int(known.sum()))
        return ids

    def _remove(self, ids: NDArray[Any]) -> int:
        try:
            n_removed = self._collection.index.remove(ids, missing_ok=True)
        except FileError as error:
            raise from_value_error(error, "ids") from error
        self._make_room(n_removed)
        return n_removed

    def _make_room(self, n_removed: int) -> None:
        """Note a change; rewrite the files when many of their rows hold removed items."""
        index = self._collection.index
        self._n_removed += n_removed
        if hasattr(index, "compact") and COMPACT * self._n_removed > max(len(index), 4096):
            self._n_removed = 0  # if it fails, it is tried again after as many changes
            try:
                index.compact()
            except FileError as error:  # the change is done, so its answer is not an error
                log.warning("The index was not compacted: %s", one_line(error))
        self._collection.changed()
