"""The routes of the service, and the application that has them.

A new endpoint is a function that adds it to the application, and a line in `ROUTES`; see `docs/extending.md`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hashgrove._version import __version__
from hashgrove.web import answer_schemas as answered
from hashgrove.web import schemas
from hashgrove.web.answers import as_json, binary_results, json_results, milliseconds
from hashgrove.web.bodies import BINARY, BODIES, REF, wants_binary
from hashgrove.web.collection import Collection, as_hex
from hashgrove.web.counters import Counters
from hashgrove.web.current import Application, Current
from hashgrove.web.errors import MEANINGS, ServiceError, error_response, from_validation
from hashgrove.web.guard import LOOPBACK, Guard
from hashgrove.web.limits import LIMITS, Limits
from hashgrove.web.service import Service, no_item
from hashgrove.web.site import add_site

__all__ = ["ROUTES", "create_app"]

MANY = 500  # results that take longer to write, about a millisecond, than a change of threads
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=LIMITS.page)]
Label = Annotated[str | None, Query(max_length=1024, description="Only items with this label.")]
Name = Annotated[str | None, Query(max_length=1024, description="Only items that are shown with this name.")]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": answered.Problem, "description": meaning} for status, meaning in MEANINGS.items()
}


def create_app(
    collection: Collection,
    *,
    key: str | None = None,
    hosts: frozenset[str] | None = LOOPBACK,
    limits: Limits = LIMITS,
    reopen: Callable[[], Collection] | None = None,
    names: Sequence[str] = (),
    access_log: Callable[[str], None] | None = None,
) -> Guard:
    """Make the application that serves a collection.

    Parameters
    ----------
    collection : Collection
        It is closed when the application shuts down.
    key : str, optional
        The key that clients must send.
    hosts : set of str, optional
        Allowed names in the header ``Host``; None means any.
    limits : Limits
    reopen : function, optional
        Opens the collection anew, when another process has put codes of another model in its place.
    names : sequence of str
        The names of all indexes, if this is one of several; see `hashgrove.web.several`.
    access_log : function, optional
        Called with a line for each request.

    Returns
    -------
    app : ASGI application

    Examples
    --------
    >>> import numpy as np
    >>> from hashgrove import FlatIndex
    >>> app = create_app(Collection(FlatIndex(np.array([[1], [2]], np.uint8)), name="two"))
    >>> app.app.now.service.health()["items"]
    2
    """
    counters = Counters()

    def make(collection: Collection) -> Application:
        service = Service(collection, limits=limits, needs_key=key is not None, counters=counters, names=names)
        return Application(service, _ShortWay(_routes(service)))

    return Guard(
        Current(make, collection, reopen), counters=counters, limits=limits, key=key, hosts=hosts, log=access_log
    )


def _routes(service: Service) -> FastAPI:
    app = FastAPI(
        title="hashgrove",
        version=__version__,
        description="Search of binary codes by Hamming distance.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        root_path_in_servers=False,
        responses=ERRORS,
    )
    app.add_exception_handler(ServiceError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(Exception, _answer_error)
    for add_routes in ROUTES.values():
        add_routes(app, service)
    add_site(app)
    _complete_document(app, needs_key=service.needs_key)
    return app


class _ShortWay:
    """Calls endpoints that read the request themselves; all other requests go to the application.

    FastAPI finds the route, solves the parameters and keeps the resources of a request, which takes longer than
    such an endpoint itself. These have nothing of that: their only parameter is the request.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._routes = {
            (method, route.path): route
            for route in app.routes
            if isinstance(route, APIRoute) and [*inspect.signature(route.endpoint).parameters] == ["request"]
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["app"], scope["route"] = self.app, route  # as FastAPI does: forms and the counters read them
        request = Request(scope, receive)
        try:
            answer = await route.endpoint(request)
        except (ServiceError, ClientDisconnect):
            raise  # the guard answers the one, and the other has nobody to answer
        except Exception as error:
            await (await _answer_error(request, error))(scope, receive, send)
            raise  # the server writes it to its log
        await answer(scope, receive, send)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        error = from_validation(error.errors())
    elif isinstance(error, HTTPException):
        said = {404: "There is nothing at this path", 405: "This path does not take this method"}
        message = f"{said.get(error.status_code, error.detail)}."
        error = ServiceError(error.status_code, message, headers=error.headers)
    elif not isinstance(error, ServiceError):
        message = "There was an error inside the service; its log has the details."
        # uvicorn closes the connection after such an error; a client that does not know it might send to it once more
        error = ServiceError(500, message, headers={"connection": "close"})
    return error_response(error)


def state_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints about the service as a whole."""

    @app.get("/health", response_model=answered.Health)
    async def health() -> Response:
        """Liveness and number of items. It needs no key."""
        return as_json(service.health())

    @app.get("/info", response_model=answered.Info)
    async def info() -> Response:
        """Description of the collection, of the available queries and options, and of the limits."""
        return as_json(await service.info())

    @app.get("/report", response_model=answered.ReportAnswer)
    async def report() -> Response:
        """Retrieval quality: how often items of a label find each other. The first call starts the computation."""
        return as_json(await service.encoding.run(service.quality.state))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.counters.text(service.gauges()), media_type="text/plain; version=0.0.4; charset=utf-8")


def item_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints that list, show, add and remove items."""
    collection = service.collection

    @app.get("/items", response_model=answered.ItemPage)
    async def items(offset: Offset = 0, limit: Limit = 60, label: Label = None, name: Name = None) -> Response:
        """Items in the order in which they were added, a page at a time."""
        ids = await service.listed(label, name)
        found = collection.described(ids[offset : offset + limit])
        return as_json({"total": len(ids), "offset": offset, "items": found})

    @app.get("/items/{id:path}", response_model=answered.ItemWithCode)
    async def item(id: str) -> Response:
        """One item with its code. The id in the path is percent-encoded."""
        return as_json(await service.item(id))

    @app.get("/images/{id:path}", response_class=Response, responses={200: {"content": {"image/*": {}}}})
    async def image(id: str, large: bool = False) -> Response:
        """The image of an item, with sides of at most 256 pixels, or of 1,024 if it is to be ``large``."""
        content = await service.thumbnail(id, large=large)
        kind = "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"
        return Response(content, media_type=kind, headers={"cache-control": "private, max-age=3600"})

    @app.post("/items", status_code=201, response_model=answered.ItemsAnswer, openapi_extra=BODIES["items"].openapi())
    async def add(request: Request) -> Response:
        """Add items, all or none, or one from its picture in a form. They are on disk before the answer is sent."""
        service.writer.check_writable()
        given = await BODIES["items"].read(request, service.limits, run=service.encoding.run_large)
        ids = await service.writer.add(given)
        answer = {"ids": [str(id_) for id_ in ids.tolist()], "items": len(collection.index)}
        return as_json(answer, status=201)

    @app.delete("/items/{id:path}", response_model=answered.RemoveAnswer)
    async def remove(id: str) -> Response:
        """Remove an item. It is gone from the disk before the answer is sent."""
        service.writer.check_writable()
        n_removed = await service.writer.remove(id)
        if not n_removed:
            raise no_item(id)
        return as_json({"removed": n_removed, "items": len(collection.index)})


def search_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints that encode and search."""
    collection, limits = service.collection, service.limits

    @app.post("/encode", response_model=answered.EncodeAnswer, openapi_extra=BODIES["encode"].openapi())
    async def encode(request: Request) -> Response:
        """Encode features."""
        given = await BODIES["encode"].read(request, limits, run=service.encoding.run_large)
        if isinstance(given.asked, schemas.EncodeRequest):
            rows = await service.encoding.as_matrix(given.asked.features, "features")
        else:
            rows = service.encoding.check_rows(given.content, "features", limit=limits.rows)
        encoded = await service.encoding.encode(rows)
        if wants_binary(request):
            return Response(encoded.codes.tobytes(), media_type=BINARY)
        answer = {
            "codes": [as_hex(code) for code in encoded.codes],
            "n_bits": collection.n_bits,
            "model": collection.digest,
            "timings": milliseconds(encoded.seconds),
        }
        return as_json(answer)

    @app.post("/search", response_model=answered.SearchAnswer, openapi_extra=BODIES["search"].openapi())
    async def search(request: Request) -> Response:
        """Find the nearest items of each query: features, codes, an item by its id, or an image in a form."""
        started = time.perf_counter()
        given = await BODIES["search"].read(request, limits, run=service.encoding.run_large)
        found = await service.search(given)
        if wants_binary(request):
            return binary_results(found)
        histograms = await service.histograms(found.codes) if given.asked.show_histogram else None
        codes_in = await service.read() if given.asked.show_code else None
        total = time.perf_counter() - started

        def answer() -> Response:
            return json_results(collection, found, codes_in=codes_in, histograms=histograms, total=total)

        return await service.encoding.run_large(answer) if found.n_results > MANY else answer()


ROUTES: dict[str, Callable[[FastAPI, Service], None]] = {  # tried in this order, so the most frequent is first
    "search": search_routes,
    "items": item_routes,
    "state": state_routes,
}


def _complete_document(app: FastAPI, *, needs_key: bool) -> None:
    """Add the models of JSON bodies and the key to the OpenAPI document, which FastAPI keeps and serves."""
    document = app.openapi()
    components = document.setdefault("components", {})
    pairs: Any = [(body.json, "validation") for body in BODIES.values()]
    _, found = models_json_schema(pairs, ref_template=REF)
    components.setdefault("schemas", {}).update(found["$defs"])
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of an error, which is never sent
        components["schemas"].pop(name, None)
    if needs_key:
        components["securitySchemes"] = {
            "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            "bearer": {"type": "http", "scheme": "bearer"},
        }
        document["security"] = [{"key": []}, {"bearer": []}]
