"""Changes of the served index: one thread makes them, and each is on disk before its answer is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, one_line
from hashgrove.web.additions import Entry
from hashgrove.web.bodies import Input
from hashgrove.web.collection import Collection
from hashgrove.web.encoding import Encoding
from hashgrove.web.errors import ServiceError, cannot_use, from_value_error, must_be
from hashgrove.web.limits import Limits
from hashgrove.web.schemas import ItemForm, ItemsRequest, ItemsRows

__all__ = ["Writer"]

log = logging.getLogger("hashgrove")

COMPACT = 4  # the files are rewritten when one in so many of their rows holds a removed item


@dataclass(frozen=True, eq=False)
class _NewItems:
    """Items of a request.

    Their codes; features and ids if they were given; the digest of the model of the codes; what was said about each of
    them; and the file of a picture, if it is one.
    """

    codes: NDArray[np.uint8]
    features: NDArray[Any] | None
    ids: NDArray[Any] | None
    model: str | None
    entries: Sequence[Entry | None]
    picture: bytes | None = None


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
        elif isinstance(asked, ItemForm):
            new = await self._from_picture(asked, given)
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
        entries = [self._entry(item.label, item.fields, f"items.{number}") for number, item in enumerate(asked.items)]
        model = self._collection.digest if rows else asked.model
        return _NewItems(codes, None if digits else features, ids, model, entries)

    async def _from_picture(self, asked: ItemForm, given: Input) -> _NewItems:
        self._encoding.check_model(asked.model, codes=False)
        entry, id_ = self._entry(asked.label, asked.fields), asked.id
        if id_ is None and self._collection.id_kind != "int":
            id_ = given.filename.replace("\\", "/").rpartition("/")[2] or None
            if id_ is None:
                raise must_be("id", "given, as the file has no name", "none")
        ids = None if id_ is None else self._encoding.check_ids([id_], "id")
        if ids is not None and not asked.replace:
            self._refuse_known(ids)  # before the work; `_add` does it again
        encoded = await self._encoding.encode_image(given.content, weights=False)
        digest = self._collection.digest
        return _NewItems(encoded.codes, encoded.features, ids, digest, [entry], picture=given.content)

    async def _from_rows(self, asked: ItemsRows, body: bytes) -> _NewItems:
        self._check_codes_allowed(asked.model, "kind", given=asked.kind == "codes")
        rows = self._encoding.check_rows(body, asked.kind, limit=self._limits.items)
        ids, labels = self._ids(asked.id or [], len(rows)), asked.label or []
        if labels and len(labels) != len(rows):
            raise must_be("label", f"given for all {len(rows)} items or for none", f"{len(labels)} labels")
        entries = [self._entry(label, None) for label in labels] or [None] * len(rows)
        if asked.kind == "codes":
            return _NewItems(rows, None, ids, asked.model, entries)
        return _NewItems((await self._encoding.encode(rows)).codes, rows, ids, self._collection.digest, entries)

    def _entry(self, label: str | None, fields: dict[str, str] | None, place: str = "") -> Entry | None:
        """The label and fields given for an item; None if there are none."""
        if label is None and fields is None:
            return None
        if self._collection.additions is None:
            name = "fields" if label is None else "label"
            raise cannot_use(f"{place}.{name}".lstrip("."), "the engine keeps codes only")
        return Entry(label or "", fields or {})

    def _check_codes_allowed(self, model: str | None, field: str, *, given: bool) -> None:
        if given and self._collection.stored_features is not None:
            raise cannot_use(field, "the index stores features, so new items must be given as features")
        self._encoding.check_model(model, codes=given)

    def _ids(self, given: list[Any], n_items: int) -> NDArray[Any] | None:
        """The ids of new items, of which all or none are given."""
        if given and len(given) != n_items:
            raise must_be("id", f"given for all {n_items} items or for none", f"{len(given)} ids")
        return self._encoding.check_ids(given, "id") if given else None

    def _refuse_known(self, ids: NDArray[Any]) -> None:
        known = self._collection.index.contains(ids)
        if known.any():
            message = f"There is an item with the id {str(ids[known][0])!r} already. Give 'replace' to change it."
            raise ServiceError(409, message, field="id")

    def _add(self, new: _NewItems, replace: bool) -> NDArray[Any]:
        collection, index = self._collection, self._collection.index
        try:
            ids = index.next_ids(len(new.codes)) if new.ids is None else new.ids
            if not replace:
                self._refuse_known(ids)
            n_removed = int(index.contains(ids).sum()) if replace else 0
            features = None if collection.stored_features is None else new.features
            with self._described(ids, new):
                index.add(new.codes, ids=ids, features=features, replace=True, model=new.model)
        except ValueError as error:
            raise from_value_error(error, "items") from error
        self._make_room(n_removed)
        return ids

    def _described(self, ids: NDArray[Any], new: _NewItems) -> AbstractContextManager[None]:
        """Keep what was said about new items, and their picture, while they are added."""
        additions = self._collection.additions
        if additions is None:
            return nullcontext()
        entries: dict[str, Entry | None] = {}
        for id_, entry in zip(ids.tolist(), new.entries, strict=True):
            by_default = self._collection.default_label(str(id_))
            if entry is None and (by_default or self._collection.details.labels is not None):
                entry = Entry(by_default)  # also of nothing: labels in a file are those of the other items
            elif entry is not None and not entry.label and by_default:
                entry = dataclasses.replace(entry, label=by_default)
            entries[str(id_)] = entry
        if new.picture is not None and additions.keeps_pictures:
            (id_,) = entries
            entries[id_] = dataclasses.replace(entries[id_] or Entry(), picture=additions.keep(new.picture))
        return additions.change(entries)

    def _remove(self, ids: NDArray[Any]) -> int:
        additions = self._collection.additions
        try:
            with nullcontext() if additions is None else additions.change(dict.fromkeys(map(str, ids.tolist()))):
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
        self._collection.describe_added()
