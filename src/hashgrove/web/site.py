"""The page at ``/`` and its files, and the API reference at ``/docs``. Nothing is loaded from another host."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from hashgrove.web.errors import ServiceError

__all__ = ["add_site", "reference_page"]

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
REFERENCE_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
section { border-top: 1px solid var(--line); margin-top: 2rem; }
h2 code { font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top; }
code { font: .9em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
"""


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
        return Response(REFERENCE_STYLE, media_type="text/css")


def reference_page(document: Mapping[str, Any]) -> str:
    """The API reference as HTML, written from the OpenAPI document, without scripts.

    >>> page = reference_page({"info": {"title": "T", "version": "1", "description": ""}, "paths": {}})
    >>> "<h1>T 1</h1>" in page
    True
    """
    info = document["info"]
    title = f"{_text(info['title'])} {_text(info['version'])}"
    schemas = document.get("components", {}).get("schemas", {})
    parts = [
        part
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for part in _operation(path, method, operation)
    ]
    parts += [part for name, schema in sorted(schemas.items()) for part in _schema(name, schema)]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        "<meta name='viewport' content='width=device-width'><link rel='stylesheet' href='/docs/style.css'></head>"
        f"<body><main><h1>{title}</h1><p>{_text(info.get('description', ''))}</p>"
        f"<p>As a file: <a href='/openapi.json'>openapi.json</a></p>{''.join(parts)}</main></body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section><h2><code>{method.upper()} {_text(path)}</code></h2>"
    yield f"<p>{_text(operation.get('description', ''))}</p>"
    rows = [
        (parameter["name"], _kind(parameter.get("schema", {})), parameter.get("description", ""))
        for parameter in operation.get("parameters", ())
    ]
    if rows:
        yield _table(("parameter", "type", "meaning"), rows)
    bodies = operation.get("requestBody", {}).get("content", {})
    if bodies:
        yield _table(("body", "type"), [(kind, _kind(body.get("schema", {}))) for kind, body in bodies.items()])
    answers = [
        (
            status,
            ", ".join(_kind(body.get("schema", {})) for body in answer.get("content", {}).values()),
            answer["description"],
        )
        for status, answer in operation.get("responses", {}).items()
    ]
    yield _table(("status", "answer", "meaning"), answers) + "</section>"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section id='{_text(name)}'><h2>{_text(name)}</h2><p>{_text(schema.get('description', ''))}</p>"
    rows = [
        (member, _kind(value), value.get("description", "")) for member, value in schema.get("properties", {}).items()
    ]
    yield _table(("member", "type", "meaning"), rows) + "</section>"


def _kind(schema: Mapping[str, Any]) -> str:
    """Short description of a JSON schema, such as "list of integer"."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(choice) for choice in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join([str(schema.get("format") or schema.get("type", "any")), *limits])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = "".join(f"<th scope='col'>{name}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def _text(text: str) -> str:
    return html.escape(" ".join(str(text).split()))
