"""`Service`: searches a collection and describes it. Work is done in threads, so that no request blocks another.

One thread searches (`hashgrove.web.batching`), one changes the index (`hashgrove.web.changes`), and a few encode
features and decode images (`hashgrove.web.encoding`). A slow image delays other images only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove._version import __version__
from hashgrove.codes import hamming
from hashgrove.index import BreakTies, Decoded, Rerank
from hashgrove.index.rerank import CAREFUL, Order
from hashgrove.web.answers import Neighbours
from hashgrove.web.batching import Batcher, Full, Query
from hashgrove.web.bodies import Input
from hashgrove.web.changes import Writer
from hashgrove.web.collection import Collection
from hashgrove.web.contents import Contents
from hashgrove.web.counters import Counters
from hashgrove.web.encoding import Encoded, Encoding
from hashgrove.web.errors import BUSY, ServiceError, cannot_use, from_value_error
from hashgrove.web.limits import LIMITS, Limits
from hashgrove.web.quality import Quality
from hashgrove.web.schemas import SearchOptions, SearchRequest, SearchRows

__all__ = ["Service", "no_item"]

DEFAULT_K = 10
MAX_LABELS = 1000  # more are not listed
MANY_IDS = 1000  # that take longer to check than a change of threads
MAX_HISTOGRAMS = 16  # queries of one request that get a histogram


class Service:
    """A collection with the threads that answer requests about it.

    Parameters
    ----------
    collection : Collection
    limits : Limits
    needs_key : bool
        Whether clients need a key; for `info` only.
    counters : Counters, optional
        Those of the requests, which passes over the codes are counted with.
    names : sequence of str
        The names of all indexes that are served beside each other, this one among them; for `info` only.
    """

    def __init__(
        self,
        collection: Collection,
        *,
        limits: Limits = LIMITS,
        needs_key: bool = False,
        counters: Counters | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.collection, self.limits, self.needs_key, self.names = collection, limits, needs_key, names
        self.counters = counters or Counters()
        self.quality = Quality(collection)
        self.encoding = Encoding(collection, limits=limits)
        self.writer = Writer(collection, self.encoding, limits=limits)
        self.batcher = Batcher(collection.index, max_waiting=limits.waiting, on_pass=self.counters.search_pass)
        self._orders: dict[str, Order] = {"features": Rerank(), "nearest": Rerank(oversample=CAREFUL)}
        if collection.can_decode:
            self._orders["classes"] = Decoded(collection.encoder)
        if collection.encoder is not None:
            self._orders["bits"] = BreakTies(collection.encoder)
        self.started = time.monotonic()

    def close(self) -> None:
        """Finish open requests, and release the index."""
        self.batcher.close()
        self.writer.close()
        self.encoding.close()
        self.collection.index.close()

    def health(self) -> dict[str, Any]:
        """Liveness and number of items."""
        uptime = round(time.monotonic() - self.started, 3)
        n_items = len(self.collection.index)
        return {"status": "ok", "version": __version__, "items": n_items, "uptime": uptime, "process": os.getpid()}

    async def info(self) -> dict[str, Any]:
        """Description of the collection and of the available queries and options."""
        collection, labels = self.collection, self.collection.details.classes
        return {
            "version": __version__,
            "name": collection.name,
            "items": len(collection.index),
            "n_bits": collection.n_bits,
            "n_features": self.encoding.n_features,
            "id_kind": collection.id_kind,
            "has_model": collection.model is not None,
            "has_images": collection.has_images,
            "takes_images": collection.extractor is not None,
            "takes_weights": collection.takes_weights,
            "keeps_details": collection.additions is not None,
            "keeps_pictures": collection.additions is not None and collection.additions.keeps_pictures,
            "has_labels": bool(labels),
            "labels": labels if len(labels) <= MAX_LABELS else [],
            "fields": collection.details.fields,
            "can_rerank": collection.can_rerank,
            "can_decode": collection.can_decode,
            "default_ranking": await self._default_ranking(),
            "read_only": collection.read_only,
            "needs_key": self.needs_key,
            "indexes": list(self.names),
            "model": collection.index.model,
            "limits": asdict(self.limits),
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Current values for `Counters.text`."""
        return {
            "items": ("Items in the index.", len(self.collection.index)),
            "waiting_queries": ("Queries that wait for the next pass.", self.batcher.n_waiting),
            "uptime_seconds": ("Time since the start.", time.monotonic() - self.started),
        }

    async def read(self) -> Contents:
        """All items of this moment; where they have to be read, a thread does it."""
        found = self.collection.last_read
        return found if found is not None else await self.encoding.run(self.collection.read)

    async def listed(self, label: str | None, name: str | None) -> NDArray[Any]:
        """The ids of the items with a label and a name, or of all."""
        if label is None and name is None:
            return (await self.read()).ids
        found: NDArray[Any] = await self.encoding.run(lambda: self.collection.listed(label, name))
        return found

    async def item(self, id_: str) -> dict[str, Any]:
        """One item with its code."""
        ids, read = self.encoding.check_ids([id_], "id"), await self.read()
        (found,) = self.collection.described(ids, codes_in=read)
        if "code" not in found:
            raise no_item(id_)
        return found

    async def search(self, given: Input) -> Neighbours:
        """Find the nearest items of each query."""
        options: SearchOptions = given.asked
        self._check_options(options)
        queries = await self._encoded(given)
        if options.show_histogram and len(queries.codes) > MAX_HISTOGRAMS:
            raise cannot_use("show_histogram", f"there are more than {MAX_HISTOGRAMS} queries")
        ranked_by = await self._ranking(given.asked, queries)
        takes_order = not options.plain and options.radius is None and queries.features is not None
        name = "nearest" if ranked_by == "features" and not options.rerank else ranked_by
        order = self._orders.get(name) if takes_order else None
        k = self._n_results(options, len(queries.codes))
        if len(options.allowed or ()) > MANY_IDS or options.label is not None:
            allowed, group = await self.encoding.run_large(lambda: self._filter(options))
        else:
            allowed, group = self._filter(options)
        query = Query(
            queries.codes,
            k if options.radius is None else k + 1,  # one more shows whether the radius has more than k
            allowed=allowed,
            group=group,
            order=order,
            features=None if order is None else queries.features,
            weights=queries.weights if options.weights else None,
        )
        try:
            (distances, ids), waited, searched = await self.batcher.search(query)
        except Full:
            raise ServiceError(503, "Too many queries wait already. Try again soon.", headers=BUSY) from None
        except ValueError as error:  # such as an item without stored features
            raise from_value_error(error, "rerank" if options.rerank else "body") from None
        seconds = queries.seconds | {"wait": waited, "search": searched}
        if options.radius is None:
            return Neighbours(queries.codes, list(distances), list(ids), ranked_by, None, seconds)
        counts = (distances <= options.radius).sum(axis=1)
        near = [[row[: min(count, k)] for row, count in zip(rows, counts, strict=True)] for rows in (distances, ids)]
        return Neighbours(queries.codes, near[0], near[1], ranked_by, counts > k, seconds)

    async def _ranking(self, options: SearchOptions, queries: Encoded) -> str:
        """The way items are ranked: without options to the contrary, by the best of what is possible."""
        if options.rerank or options.weights:
            return "features" if options.rerank else "weights"
        if options.plain or options.radius is not None or queries.features is None:
            return "bits"
        return await self._default_ranking()

    async def _default_ranking(self) -> str:
        """The default ranking; where that takes a look at all items, a thread takes it."""
        if self.collection.knows_ranking:
            return self.collection.default_ranking
        found: str = await self.encoding.run(lambda: self.collection.default_ranking)
        return found

    def _n_results(self, options: SearchOptions, n_queries: int) -> int:
        """Results per query; with a radius by default as many as an answer may have."""
        results = self.limits.results
        if options.show_code:  # each as a text of bits
            results = min(results, self.limits.shown_bits // (self.collection.n_bits or 8))
        most = min(self.limits.k, max(1, results // n_queries))
        if options.k is not None and options.k > most:
            message = f"The 'k' field must be at most {most} with {n_queries} queries, because an answer has at most "
            raise ServiceError(422, f"{message}{results} results of this kind. Got {options.k} instead.", field="k")
        return options.k or (most if options.radius is not None else min(DEFAULT_K, most))

    def _check_options(self, options: SearchOptions) -> None:
        if options.rerank and options.weights:
            raise cannot_use("weights", "'rerank' is given as well")
        if options.plain and (options.rerank or options.weights):
            raise cannot_use("plain", f"'{'rerank' if options.rerank else 'weights'}' is given as well")
        if options.radius is not None and (options.rerank or options.weights):
            raise cannot_use("radius", "distances with 'rerank' or 'weights' are no numbers of bits")
        if options.rerank and self.collection.stored_features is None:
            raise cannot_use("rerank", "the index stores no features")
        if options.weights and not self.collection.takes_weights:
            why = "the service has no model" if self.collection.encoder is None else "the engine does not support them"
            raise cannot_use("weights", why)
        if options.label is not None and not self.collection.details.have_labels:
            raise cannot_use("label", "items have no labels")

    async def _encoded(self, given: Input) -> Encoded:
        """The codes of the queries."""
        asked, encoding = given.asked, self.encoding
        kind = _kind_of_queries(asked)
        if kind == "codes" and (asked.rerank or asked.weights):
            field = "rerank" if asked.rerank else "weights"
            raise cannot_use(field, "queries are codes; give features, an image or an id")
        encoding.check_model(asked.model, codes=kind == "codes")
        if kind == "image":
            return await encoding.encode_image(given.content, weights=asked.weights)
        if kind == "id":
            return await self._stored(asked.id, asked)
        if isinstance(asked, SearchRows):
            rows = encoding.check_rows(given.content, kind, limit=self.limits.rows)
        elif kind == "codes":
            rows = encoding.check_codes(asked.codes, "codes")
        else:
            rows = await encoding.as_matrix(asked.features, "features")
        return Encoded(rows) if kind == "codes" else await encoding.encode(rows, weights=asked.weights)

    async def _stored(self, given: str | int, options: SearchOptions) -> Encoded:
        """The code of an item, with its stored features if a ranking takes them; only some rankings need them."""
        ids = self.encoding.check_ids([given], "id")
        codes, known = (await self.read()).codes_of(ids)
        if not known.all():
            raise no_item(given)
        needed = options.rerank or options.weights
        takes_features = needed or (self.collection.can_rerank and not options.plain)
        features = self.collection.features_of(ids) if takes_features else None
        if not needed:
            return Encoded(codes, features)
        if features is None:
            raise cannot_use("id", "the index stores no features of this item, which 'rerank' and 'weights' need")
        encoded = await self.encoding.encode(features, weights=options.weights)
        return Encoded(codes, features, encoded.weights, encoded.seconds)

    def _filter(self, options: SearchOptions) -> tuple[NDArray[Any] | None, Hashable]:
        """The ids that a search is restricted to, and a value that equal filters share."""
        allowed = None if options.allowed is None else self.encoding.check_ids(options.allowed, "allowed")
        if options.label is None:
            return allowed, None if allowed is None else object()
        details = self.collection.details
        labelled = details.ids_with(options.label)
        if allowed is None:
            return labelled, (options.label, details)
        return np.intersect1d(allowed, labelled), object()

    async def histograms(self, codes: NDArray[np.uint8]) -> list[list[int]]:
        """Number of items at each distance from 0 to the number of bits, per query."""
        n_bits = self.collection.n_bits or 0

        def count() -> list[list[int]]:
            items = self.collection.contents()[1]
            if not len(items):
                return [[0] * (n_bits + 1) for _ in codes]
            return [np.bincount(hamming(code[None], items)[0], minlength=n_bits + 1).tolist() for code in codes]

        found: list[list[int]] = await self.encoding.run(count)
        return found

    async def thumbnail(self, id_: str, *, large: bool = False) -> bytes:
        """A small or larger version of the image of an item."""
        path = self.collection.picture_of(id_)
        if path is not None and not self.collection.has(self.encoding.check_ids([id_], "id")):
            path = None
        content = None if path is None else await self.encoding.thumbnail(path, large=large)
        if content is None:
            raise ServiceError(404, f"There is no image of an item with the id {id_[:80]!r}.", field="id")
        return content


def _kind_of_queries(asked: SearchOptions) -> str:
    """The kind of the queries of a request: "features", "codes", "id" or "image"."""
    if isinstance(asked, SearchRows):
        return asked.kind
    if not isinstance(asked, SearchRequest):
        return "image"
    given = [name for name in ("features", "codes", "id") if getattr(asked, name) is not None]
    if len(given) == 1:
        return given[0]
    got = " and ".join(given) or "none of them"
    message = f"Exactly one of the fields 'features', 'codes' and 'id' must be given. Got {got} instead."
    raise ServiceError(422, message, field=given[1] if given else "features")


def no_item(id_: str | int) -> ServiceError:
    """The error for an id that is not in the index."""
    return ServiceError(404, f"There is no item with the id {str(id_)[:80]!r}.", field="id")
