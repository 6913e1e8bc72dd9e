"""The page at ``/`` and its files, and the reference at ``/docs``. Nothing is loaded from another host."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from hashgrove.web.errors import ServiceError
from hashgrove.web.reference import STYLE, reference_page

__all__ = ["add_site"]

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def add_site(app: FastAPI) -> None:
    """Add the page, its files and the reference to an application."""
    folder = files("hashgrove.web") / "page"
    known = {file.name: file for file in folder.iterdir() if file.name.endswith(tuple(TYPES))}

    def answer(name: str) -> Response:
        if name not in known:
            raise ServiceError(404, f"The page has no file {name[:80]!r}.")
        kind = TYPES[name[name.rindex(".") :]]
        return Response(known[name].read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return answer("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page(name: str) -> Response:
        return answer(name)

    @app.get("/docs", include_in_schema=False)
    async def reference() -> Response:
        return HTMLResponse(reference_page(app.openapi()))

    @app.get("/docs/style.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")
