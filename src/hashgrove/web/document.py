"""The OpenAPI document: bodies that come in several types, errors, and the key."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from hashgrove.web import schemas
from hashgrove.web.bodies import BINARY, FORM, JSON, KINDS
from hashgrove.web.limits import LIMITS

__all__ = ["BODIES", "ERRORS", "describe"]

MEANINGS = {
    400: "The body cannot be read.",
    401: "The key is missing or wrong.",
    403: "The service is read-only, or the request comes from a page of another origin.",
    404: "There is no such item or picture.",
    406: "The answer cannot have the type that was asked for.",
    409: "There is an item with this id already.",
    413: "The body is too large.",
    415: "The body has a type that is not taken.",
    422: "A field is wrong; the answer names it.",
    503: "Too many requests wait, or this one took too long.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": meaning} for status, meaning in MEANINGS.items()
}
REF = "#/components/schemas/{model}"
REQUESTS = (schemas.SearchRequest, schemas.EncodeRequest, schemas.ItemsRequest)
ROWS = {"schema": {"type": "string", "format": "binary", "description": "Rows of float32, or packed codes."}}


def _parameter(name: str, schema: dict[str, Any], meaning: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": f"{meaning} (binary body)"}


def _body(model: str, *, binary: bool = True, form: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": {"$ref": REF.format(model=model)}}}
    if form is not None:
        content[FORM] = {"schema": form}
    if binary:
        content[BINARY] = ROWS
    return {"required": True, "content": content}


_options: dict[str, dict[str, Any]] = {
    "k": {"type": "integer", "minimum": 1, "maximum": LIMITS.k},
    "radius": {"type": "integer", "minimum": 0, "maximum": 2**16},
    "label": {"type": "string", "maxLength": 1024},
    "rerank": {"type": "boolean"},
    "margins": {"type": "boolean"},
    "bits": {"type": "boolean"},
    "histogram": {"type": "boolean"},
}
_form = {
    "type": "object",
    "required": ["image"],
    "properties": {"image": {"type": "string", "format": "binary"}, **_options},
}
_kind = _parameter("kind", {"type": "string", "enum": list(KINDS)}, "What the rows are")
BODIES: dict[str, dict[str, Any]] = {
    "search": {
        "requestBody": _body("SearchRequest", form=_form),
        "parameters": [_kind, *(_parameter(name, schema, "As in JSON") for name, schema in _options.items())],
    },
    "encode": {"requestBody": _body("EncodeRequest")},
    "items": {
        "requestBody": _body("ItemsRequest"),
        "parameters": [_kind, _parameter("id", {"type": "array", "items": {"type": "string"}}, "One id per row")],
    },
}


def describe(app: FastAPI, *, needs_key: bool) -> None:
    """Complete the document of an application: what requests look like, and where the key goes."""
    document = app.openapi()  # FastAPI keeps and serves this object
    components = document.setdefault("components", {})
    pairs: Any = [(model, "validation") for model in REQUESTS]
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
