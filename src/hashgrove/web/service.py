"""`Service`: answers questions about a collection. Work is done in threads, so that nobody blocks the others.

One thread searches (`hashgrove.web.batching`), one changes the index (`hashgrove.web.changes`), and a few encode
features and decode pictures (`hashgrove.web.encoding`). A picture that takes long delays other pictures only.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove._version import __version__
from hashgrove.codes import hamming
from hashgrove.web.batching import Batcher, Full, Query
from hashgrove.web.bodies import Question
from hashgrove.web.changes import Writer
from hashgrove.web.collection import Collection
from hashgrove.web.counters import Counters
from hashgrove.web.encoding import Encoded, Encoding
from hashgrove.web.errors import BUSY, ServiceError
from hashgrove.web.limits import LIMITS, Limits
from hashgrove.web.quality import Quality
from hashgrove.web.schemas import SearchOptions

__all__ = ["Found", "Service", "no_item"]

DEFAULT_K = 10
MANY_LABELS = 1000  # more are not listed


@dataclass(frozen=True, eq=False)
class Found:
    """The results of a search: per query its code, distances and ids, and how long everything took."""

    codes: NDArray[np.uint8]
    distances: list[NDArray[Any]]
    ids: list[NDArray[Any]]
    seconds: dict[str, float]


class Service:
    """What can be asked of a collection.

    Parameters
    ----------
    collection : Collection
    limits : Limits
    needs_key : bool
        Whether clients need a key; for `info` only.
    """

    def __init__(self, collection: Collection, *, limits: Limits = LIMITS, needs_key: bool = False) -> None:
        self.collection, self.limits, self.needs_key = collection, limits, needs_key
        self.counters = Counters()
        self.quality = Quality(collection)
        self.writer = Writer(collection)
        self.encoding = Encoding(collection, limits=limits)
        self.batcher = Batcher(collection.index, max_waiting=limits.waiting, on_pass=self.counters.search_pass)
        self.started = time.monotonic()

    def close(self) -> None:
        """Finish what is being done, and release the index."""
        self.batcher.close()
        self.writer.close()
        self.encoding.close()
        self.collection.index.close()

    def health(self) -> dict[str, Any]:
        """That the service is there."""
        uptime = round(time.monotonic() - self.started, 3)
        return {"status": "ok", "version": __version__, "items": len(self.collection.index), "uptime": uptime}

    def info(self) -> dict[str, Any]:
        """What the collection has, and what can be done with it."""
        collection, labels = self.collection, self.collection.details.classes
        return {
            "version": __version__,
            "name": collection.name,
            "items": len(collection.index),
            "n_bits": collection.n_bits,
            "n_features": self.encoding.n_features,
            "id_kind": collection.id_kind,
            "has_model": collection.model is not None,
            "has_images": collection.picture_of is not None,
            "takes_images": collection.extractor is not None,
            "has_labels": bool(labels),
            "has_report": bool(labels),
            "labels": labels if len(labels) <= MANY_LABELS else [],
            "fields": collection.details.fields,
            "can_rerank": collection.kept is not None and collection.encoder is not None,
            "can_weigh": collection.can_weigh,
            "read_only": collection.read_only,
            "needs_key": self.needs_key,
            "model": collection.index.model,
            "limits": asdict(self.limits),
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Values of this moment, for `Counters.text`."""
        return {
            "items": ("Items in the index.", len(self.collection.index)),
            "waiting_queries": ("Queries that wait for the next pass.", self.batcher.n_waiting),
            "uptime_seconds": ("Time since the start.", time.monotonic() - self.started),
        }

    async def search(self, question: Question) -> Found:
        """Find the nearest items of each query."""
        options = question.options
        self._check_options(options)
        queries = await self._encoded(question)
        allowed, group = self._filter(options)
        query = Query(
            queries.codes,
            options.k or (DEFAULT_K if options.radius is None else self.limits.k),
            allowed=allowed,
            group=group,
            features=queries.features if options.rerank else None,
            weights=queries.weights if options.margins else None,
        )
        try:
            (distances, ids), waited, searched = await self.batcher.search(query)
        except Full:
            raise ServiceError(503, "Too many queries wait already. Try again soon.", headers=BUSY) from None
        except ValueError as error:  # such as an item whose features the index does not keep
            raise ServiceError(422, str(error), field="rerank" if options.rerank else None) from None
        seconds = queries.seconds | {"wait": waited, "search": searched}
        if options.radius is None:
            return Found(queries.codes, list(distances), list(ids), seconds)
        counts = (distances <= options.radius).sum(axis=1)
        near = [[row[:count] for row, count in zip(rows, counts, strict=True)] for rows in (distances, ids)]
        return Found(queries.codes, near[0], near[1], seconds)

    def _check_options(self, options: SearchOptions) -> None:
        if options.rerank and options.margins:
            raise ServiceError(422, "At most one of 'rerank' and 'margins' can be true. Got both.", field="margins")
        if options.radius is not None and (options.rerank or options.margins):
            message = "The 'radius' field cannot be given with 'rerank' or 'margins': their distances are no counts."
            raise ServiceError(422, message, field="radius")
        if options.rerank and self.collection.kept is None:
            raise ServiceError(422, "The 'rerank' field must be false: the index keeps no features.", field="rerank")
        if options.margins and not self.collection.can_weigh:
            why = "the service has no model" if self.collection.encoder is None else "the engine cannot weigh bits"
            raise ServiceError(422, f"The 'margins' field must be false: {why}.", field="margins")

    async def _encoded(self, question: Question) -> Encoded:
        """The codes of what a question is about."""
        options = question.options
        if question.codes is not None:
            if options.rerank or options.margins:
                message = "Codes cannot be re-ranked or weighted. Search by features, a picture or an id."
                raise ServiceError(422, message, field="rerank" if options.rerank else "margins")
            return Encoded(self.encoding.check_codes(question.codes, "codes"))
        if question.id is not None:
            return await self._stored(question.id, options)
        if question.picture is not None:
            return await self.encoding.picture(question.picture, margins=options.margins)
        rows = self.encoding.check_features(question.features, "features")
        return await self.encoding.encode(rows, margins=options.margins)

    async def _stored(self, given: str | int, options: SearchOptions) -> Encoded:
        """The code of an item, and the features that the index keeps of it if they are needed."""
        ids = self.ids_of([given], "id")
        codes, known = self.collection.codes_of(ids)
        if not known.all():
            raise no_item(given)
        if not (options.rerank or options.margins):
            return Encoded(codes)
        features = self.collection.features_of(ids)
        if features is None:
            message = "The item must have features that the index keeps, to be re-ranked or weighted. It has none."
            raise ServiceError(422, message, field="id")
        encoded = await self.encoding.encode(features, margins=options.margins)
        return Encoded(codes, features, encoded.weights, encoded.seconds)

    def ids_of(self, given: Sequence[str | int], field: str) -> NDArray[Any]:
        """Ids of a request in the type that the index has."""
        try:
            return self.collection.as_ids(given)
        except ValueError as error:
            said = str(error).removeprefix("The 'ids' parameter ")
            raise ServiceError(422, f"The '{field}' field {said}", field=field) from None

    def _filter(self, options: SearchOptions) -> tuple[NDArray[Any] | None, Hashable]:
        """The ids that a search is restricted to, and what tells this filter from others."""
        allowed = None if options.allowed is None else self.ids_of(options.allowed, "allowed")
        if options.label is None:
            return allowed, None if allowed is None else object()
        if self.collection.details.labels is None:
            raise ServiceError(422, "The 'label' field cannot be used: items have no labels.", field="label")
        labelled = self.collection.details.ids_with(options.label)
        if allowed is None:
            return labelled, options.label
        return np.intersect1d(allowed, labelled), object()

    async def histograms(self, codes: NDArray[np.uint8]) -> list[list[int]]:
        """How many items of the index have each distance from 0 to the number of bits, for each query."""
        n_bits = self.collection.n_bits or 0

        def count() -> list[list[int]]:
            items = self.collection.contents()[1]
            if not len(items):
                return [[0] * (n_bits + 1) for _ in codes]
            return [np.bincount(hamming(code[None], items)[0], minlength=n_bits + 1).tolist() for code in codes]

        found: list[list[int]] = await self.encoding.run(count)
        return found

    async def thumbnail(self, id_: str) -> bytes:
        """A small picture of an item."""
        find = self.collection.picture_of
        path = None if find is None or not self.collection.has(self.ids_of([id_], "id")) else find(id_)
        content = None if path is None else await self.encoding.thumbnail(path)
        if content is None:
            raise ServiceError(404, f"There is no picture of an item with the id {id_[:80]!r}.", field="id")
        return content


def no_item(id_: str | int) -> ServiceError:
    """The error for an id that is not in the index."""
    return ServiceError(404, f"There is no item with the id {str(id_)[:80]!r}.", field="id")
