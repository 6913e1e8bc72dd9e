"""The page at ``/`` and its files, and the API reference at ``/docs``. Nothing is loaded from another host."""

from __future__ import annotations

import html
import json
import re
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
body { background: light-dark(#fff, #111513); color: light-dark(#1a201c, #e9eeea); }
a { color: light-dark(#1f6f4a, #6fcf9f); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
section { border-top: 1px solid var(--line); margin-top: 2rem; }
h2 code { font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top; }
code { font: .9em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
.try { display: none; margin-top: .8rem; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; }
.tries .try { display: block; }
.try form { display: grid; gap: .5rem; margin-top: .6rem; }
.try label { display: grid; gap: .2rem; }
.try input, .try textarea, .try button { font: inherit; padding: .3rem .6rem; }
.try textarea { font: .9em/1.5 ui-monospace, monospace; }
.try button { justify-self: start; }
.try pre { max-height: 24rem; overflow: auto; padding: .6rem; background: var(--soft); white-space: pre-wrap; }
.try img { max-width: 100%; }
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
    """The API reference as HTML, written from the OpenAPI document; a script of the page sends requests from it.

    >>> page = reference_page({"info": {"title": "T", "version": "1", "description": ""}, "paths": {}})
    >>> "<h1>T 1</h1>" in page
    True
    """
    info = document["info"]
    key = ""
    if document.get("security"):
        key = "<div class='try'><label>API key, kept in this tab <input type='password' id='key'></label></div>"
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
        "<meta name='viewport' content='width=device-width'>"
        "<link rel='icon' type='image/svg+xml' href='page/icon.svg'><link rel='stylesheet' href='docs/style.css'>"
        "<script type='module' src='page/try.js'></script></head>"
        f"<body><main><h1>{title}</h1><p>{_text(info.get('description', ''))}</p>"
        f"<p>As a file: <a href='openapi.json'>openapi.json</a></p>{key}{''.join(parts)}</main></body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section id='{_text(anchor(path, method))}'><h2><code>{method.upper()} {_text(path)}</code></h2>"
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
    for kind, body in bodies.items():  # a form has no schema of its own among the others
        fields = body.get("schema", {}).get("properties", {})
        if fields:
            rows = [(name, _kind(field), field.get("description", "")) for name, field in fields.items()]
            yield _table((f"field of {kind}", "type", "meaning"), rows)
    answers = [
        (
            status,
            ", ".join(_kind(body.get("schema", {})) for body in answer.get("content", {}).values()),
            answer["description"],
        )
        for status, answer in operation.get("responses", {}).items()
    ]
    yield _table(("status", "answer", "meaning"), answers)
    yield _form(path, method, operation) + "</section>"


def anchor(path: str, method: str) -> str:
    """The name of the section of an operation, for links.

    >>> anchor("/items/{id}", "delete")
    'delete-items-id'
    """
    return "-".join([method, *re.findall(r"\w+", path)])


def _form(path: str, method: str, operation: Mapping[str, Any]) -> str:
    """A form that sends the request; it is shown if the script of the page runs."""
    fields = []
    for parameter in operation.get("parameters", ()):
        name = _text(parameter["name"])
        required = " required" if parameter.get("required") else ""
        place = _text(parameter["in"])
        fields.append(f"<label>{name} <input name='{name}' data-in='{place}' autocomplete='off'{required}></label>")
    bodies = operation.get("requestBody", {}).get("content", {})
    if "application/json" in bodies:
        fields.append("<label>Body, JSON <textarea name='body' rows='4' spellcheck='false'>{}</textarea></label>")
    if "multipart/form-data" in bodies:
        fields.append("<label>or an image <input type='file' name='image' accept='image/*'></label>")
    where = f"data-method='{method.upper()}' data-path='{_text(path)}'"
    form = f"<form {where}>{''.join(fields)}<button>Send</button></form>"
    return f"<details class='try'><summary>Try it</summary>{form}<div class='answer' role='status'></div></details>"


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
