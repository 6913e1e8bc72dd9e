"""The routes of the service, and the application that has them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from hashgrove._version import __version__
from hashgrove.web import schemas
from hashgrove.web.additions import add_items, add_rows
from hashgrove.web.answers import as_json, binary_results, json_results, milliseconds
from hashgrove.web.bodies import BINARY, content_type, read_json, read_question, read_rows, wants_binary
from hashgrove.web.collection import Collection, as_hex
from hashgrove.web.document import BODIES, ERRORS, describe
from hashgrove.web.errors import ServiceError, error_response, from_validation
from hashgrove.web.guard import Guard
from hashgrove.web.hosts import LOOPBACK
from hashgrove.web.limits import LIMITS, Limits
from hashgrove.web.service import Service, no_item
from hashgrove.web.site import add_site

__all__ = ["create_app"]

MAX_HISTOGRAMS = 16  # queries of one request that get a histogram
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=LIMITS.page)]
Label = Annotated[str | None, Query(max_length=1024, description="Only items with this label.")]


def create_app(
    collection: Collection,
    *,
    key: str | None = None,
    hosts: frozenset[str] | None = LOOPBACK,
    limits: Limits = LIMITS,
) -> Guard:
    """Make the application that serves a collection.

    Parameters
    ----------
    collection : Collection
        It is closed when the application shuts down.
    key : str, optional
        What clients must know.
    hosts : set of str, optional
        The names in ``Host`` that are answered; None means any.
    limits : Limits

    Returns
    -------
    app : ASGI application

    Examples
    --------
    >>> import numpy as np
    >>> from hashgrove import FlatIndex
    >>> app = create_app(Collection(FlatIndex(np.array([[1], [2]], np.uint8)), name="two"))
    >>> "/search" in app.app.openapi()["paths"]
    True
    """
    service = Service(collection, limits=limits, needs_key=key is not None)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="hashgrove",
        version=__version__,
        description="Search of binary codes by Hamming distance.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=ERRORS,
    )
    app.add_exception_handler(ServiceError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(Exception, _answer_error)
    _add_search(app, service)  # first, because routes are tried one after the other
    _add_items(app, service)
    _add_state(app, service)
    add_site(app)
    describe(app, needs_key=key is not None)
    return Guard(app, counters=service.counters, limits=limits, key=key, hosts=hosts)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        error = from_validation(error.errors())
    elif isinstance(error, HTTPException):
        said = {404: "There is nothing at this path", 405: "This path does not take this method"}
        message = f"{said.get(error.status_code, error.detail)}."
        error = ServiceError(error.status_code, message, headers=error.headers)
    elif not isinstance(error, ServiceError):
        message = "Something went wrong inside the service. Its log says what."
        # uvicorn closes the connection after such an error; a client that does not know it might send to it once more
        error = ServiceError(500, message, headers={"connection": "close"})
    return error_response(error)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=schemas.Health)
    async def health() -> Response:
        """Say that the service is there. It needs no key."""
        return as_json(service.health())

    @app.get("/info", response_model=schemas.Info)
    async def info() -> Response:
        """Describe the collection, and what can be done with it."""
        return as_json(service.info())

    @app.get("/report", response_model=schemas.ReportAnswer)
    async def report() -> Response:
        """Report how well items of a class find each other. The first call starts the computation."""
        return as_json(service.quality.state())

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.counters.text(service.gauges()), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_items(app: FastAPI, service: Service) -> None:
    collection = service.collection

    @app.get("/items", response_model=schemas.ItemPage)
    async def items(offset: Offset = 0, limit: Limit = 60, label: Label = None) -> Response:
        """List items in ascending order of their ids."""
        ids = collection.listed(label)
        found = collection.described(ids[offset : offset + limit])
        return as_json({"total": len(ids), "offset": offset, "items": found})

    @app.get("/items/{id:path}", response_model=schemas.ItemWithCode)
    async def item(id: str) -> Response:
        """Show one item with its code. An id in a path is percent-encoded."""
        ids = service.ids_of([id], "id")
        if not collection.has(ids):
            raise no_item(id)
        return as_json(collection.described(ids, bits=True)[0])

    @app.get("/images/{id:path}", response_class=Response, responses={200: {"content": {"image/*": {}}}})
    async def image(id: str) -> Response:
        """Show a small picture of an item."""
        content = await service.thumbnail(id)
        kind = "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"
        return Response(content, media_type=kind, headers={"cache-control": "private, max-age=3600"})

    @app.post("/items", status_code=201, response_model=schemas.ItemsAnswer, openapi_extra=BODIES["items"])
    async def add(request: Request) -> Response:
        """Add items, all or none. They are on disk when the answer comes."""
        service.writer.check()
        if content_type(request) == BINARY:
            ids = await add_rows(service, await request.body(), request.query_params)
        else:
            ids = await add_items(service, await read_json(request, schemas.ItemsRequest))
        answer = {"ids": [str(id_) for id_ in ids.tolist()], "items": len(collection.index)}
        return as_json(answer, status=201)

    @app.delete("/items/{id:path}", response_model=schemas.RemoveAnswer)
    async def remove(id: str) -> Response:
        """Remove an item. That is on disk when the answer comes."""
        service.writer.check()
        n_removed = await service.writer.remove(service.ids_of([id], "id"))
        if not n_removed:
            raise no_item(id)
        return as_json({"removed": n_removed, "items": len(collection.index)})


def _add_search(app: FastAPI, service: Service) -> None:
    collection, limits = service.collection, service.limits

    @app.post("/encode", response_model=schemas.EncodeAnswer, openapi_extra=BODIES["encode"])
    async def encode(request: Request) -> Response:
        """Turn features into codes."""
        if content_type(request) == BINARY:
            rows: Any = read_rows(
                await request.body(), kind="features", width=service.encoding.n_features, limit=limits.rows
            )
        else:
            asked = await read_json(request, schemas.EncodeRequest)
            rows = asked.features
        encoded = await service.encoding.encode(service.encoding.check_features(rows, "features"))
        if wants_binary(request):
            return Response(encoded.codes.tobytes(), media_type=BINARY)
        codes = [as_hex(code) for code in encoded.codes]
        return as_json({"codes": codes, "n_bits": collection.n_bits, "timings": milliseconds(encoded.seconds)})

    @app.post("/search", response_model=schemas.SearchAnswer, openapi_extra=BODIES["search"])
    async def search(request: Request) -> Response:
        """Find the nearest items of each query: features, codes, an item by its id, or a picture in a form."""
        started = time.perf_counter()
        question = await read_question(
            request, n_features=service.encoding.n_features, n_bytes=collection.n_bytes, limits=limits
        )
        found = await service.search(question)
        if wants_binary(request):
            return binary_results(found)
        histograms = None
        if question.options.histogram:
            if len(found.codes) > MAX_HISTOGRAMS:
                message = f"The 'histogram' field must be false for more than {MAX_HISTOGRAMS} queries. It is true."
                raise ServiceError(422, message, field="histogram")
            histograms = await service.histograms(found.codes)
        total = time.perf_counter() - started
        return json_results(collection, found, bits=question.options.bits, histograms=histograms, total=total)
