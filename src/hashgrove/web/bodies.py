"""Bodies of requests: an endpoint declares a model per type of body, which reads the body and describes it in OpenAPI.

JSON is validated by its model as it is. The fields of a form and the parameters of a query string are texts, from which
pydantic makes numbers and flags. Binary rows have their options in the query string.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from starlette.datastructures import ImmutableMultiDict, QueryParams, UploadFile
from starlette.exceptions import HTTPException

from hashgrove.web import schemas
from hashgrove.web.errors import ServiceError, from_validation, must_be
from hashgrove.web.limits import Limits

__all__ = ["BINARY", "BODIES", "REF", "Body", "Input", "read_rows", "read_texts", "schemas_of_texts", "wants_binary"]

JSON, FORM, BINARY = "application/json", "multipart/form-data", "application/octet-stream"
REF = "#/components/schemas/{model}"
SHORT = 256  # bytes of a query string that is read only once
LARGE = 2**15  # bytes of JSON that take longer to read, a quarter of a millisecond, than a change of threads
Run = Callable[[Callable[[], Any]], Awaitable[Any]]
BYTES = {"type": "string", "format": "binary"}


@dataclass(frozen=True, eq=False)
class Input:
    """A request as it was read: an instance of a model of `Body`, and the bytes of binary rows or of an image file."""

    asked: Any
    content: bytes = b""
    filename: str = ""


@dataclass(frozen=True)
class Body:
    """The types of body that an endpoint takes, with the model of each.

    Attributes
    ----------
    json : model of a JSON body
    form : model of the texts of a form that also has a file, the field ``image``; optional
    rows : model of the query string beside a body of binary rows; optional
    """

    json: type[BaseModel]
    form: type[BaseModel] | None = None
    rows: type[BaseModel] | None = None

    def openapi(self) -> dict[str, Any]:
        """Request body and parameters as they are in an OpenAPI document."""
        content: dict[str, Any] = {JSON: {"schema": {"$ref": REF.format(model=self.json.__name__)}}}
        if self.form is not None:
            fields = {"image": BYTES | {"description": "An image file."}, **schemas_of_texts(self.form)}
            content[FORM] = {"schema": {"type": "object", "required": ["image"], "properties": fields}}
        if self.rows is not None:
            content[BINARY] = {"schema": BYTES | {"description": "Rows of float32 (little-endian), or packed codes."}}
        parameters = [
            {"name": name, "in": "query", "required": False, "schema": schema}
            | {"description": f"{schema.get('description', '')} (With a binary body.)".strip()}
            for name, schema in (schemas_of_texts(self.rows) if self.rows is not None else {}).items()
        ]
        return {"requestBody": {"required": True, "content": content}, "parameters": parameters}

    async def read(self, request: Request, limits: Limits, *, run: Run) -> Input:
        """Read a request and check its fields. A large body is read by ``run``, in a thread."""
        kind = content_type(request)
        if kind == BINARY and self.rows is not None:
            return Input(_read_query(self.rows, request.scope["query_string"]), await request.body())
        if kind == FORM and self.form is not None:
            return await _read_form(request, self.form, limits)
        if kind != JSON:
            taken = [JSON, *[FORM] * (self.form is not None), *[BINARY] * (self.rows is not None)]
            got = repr(kind[:80]) if kind else "none"
            raise ServiceError(415, f"The content type must be {' or '.join(taken)}. Got {got} instead.")
        body = await request.body()
        return await run(lambda: self._from_json(body, limits)) if len(body) > LARGE else self._from_json(body, limits)

    def _from_json(self, body: bytes, limits: Limits) -> Input:
        """Read JSON. Nothing else runs in this process meanwhile, so what it has to read is limited."""
        for sign, most, what in (
            (b",", limits.json_values, f"{limits.json_values} values"),
            (b'"', 2 * limits.json_texts, f"{limits.json_texts} texts and names of fields"),
        ):
            if body.count(sign) >= most:
                advice = f"Send fewer at a time, or rows as {BINARY}."
                raise ServiceError(
                    413, f"The body must have fewer than {what} in JSON. Got more. {advice}", field="body"
                )
        try:
            return Input(self.json.model_validate_json(body))
        except ValidationError as error:
            raise from_validation(error) from None


BODIES = {
    "search": Body(schemas.SearchRequest, form=schemas.SearchOptions, rows=schemas.SearchRows),
    "encode": Body(schemas.EncodeRequest, rows=schemas.EncodeRows),
    "items": Body(schemas.ItemsRequest, form=schemas.ItemForm, rows=schemas.ItemsRows),
}


def content_type(request: Request) -> str:
    """The type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wants_binary(request: Request) -> bool:
    """Whether the answer should be binary."""
    return request.headers.get("accept", "").partition(";")[0].strip().lower() == BINARY


@cache
def schemas_of_texts(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """JSON schemas of the fields of a model that are given as texts.

    There is no text for null, and lists are limited by the length of a URL or the size of a form.

    >>> schemas_of_texts(schemas.SearchRows)["radius"]["minimum"]
    0
    """
    found = {}
    for name, declared in model.model_json_schema().get("properties", {}).items():
        choices = [choice for choice in declared.pop("anyOf", ()) if choice != {"type": "null"}]
        schema = declared | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})
        found[name] = {key: value for key, value in schema.items() if key not in ("title", "default", "maxItems")}
    return found


def read_texts(model: type[BaseModel], texts: ImmutableMultiDict[str, Any]) -> Any:
    """An instance of a model from the texts of a form or a query string; a list repeats its field.

    >>> from starlette.datastructures import QueryParams
    >>> options = read_texts(schemas.SearchRows, QueryParams("k=3&rerank=true&allowed=1&allowed=2"))
    >>> options.k, options.rerank, options.allowed
    (3, True, ['1', '2'])
    """
    lists = {name for name, schema in schemas_of_texts(model).items() if schema.get("type") == "array"}
    try:
        read = model.model_validate_strings({name: texts[name] for name in texts.keys() - lists})
        values = read.model_dump(exclude_unset=True) | {name: texts.getlist(name) for name in texts.keys() & lists}
        return model.model_validate(values)
    except ValidationError as error:
        raise from_validation(error) from None


def _read_query(model: type[BaseModel], query: bytes) -> Any:
    """An instance of a model from a query string. Clients send the same short ones again and again."""
    return (_read_query_once if len(query) <= SHORT else _read_query_once.__wrapped__)(model, query)


@lru_cache(maxsize=256)
def _read_query_once(model: type[BaseModel], query: bytes) -> Any:
    return read_texts(model, QueryParams(query))


async def _read_form(request: Request, model: type[BaseModel], limits: Limits) -> Input:
    try:
        async with request.form(max_files=1, max_fields=limits.rows, max_part_size=2**16) as form:
            image = form.get("image")
            if not isinstance(image, UploadFile):
                raise must_be("image", "an image file", image)
            texts = ImmutableMultiDict([(name, value) for name, value in form.multi_items() if name != "image"])
            asked = read_texts(model, texts)
            content = await image.read(limits.image_bytes + 1)
    except HTTPException as error:
        raise ServiceError(400, f"The form cannot be read: {error.detail}") from None
    if len(content) > limits.image_bytes:
        message = f"The 'image' field must have at most {limits.image_bytes} bytes. Got more instead."
        raise ServiceError(413, message, field="image")
    return Input(asked, content, image.filename or "")


def read_rows(body: bytes, *, kind: str, width: int | None, limit: int) -> NDArray[Any]:
    """Rows of a binary body: float32 in little-endian order, or packed codes.

    >>> read_rows(bytes([1, 2, 3, 4]), kind="codes", width=2, limit=10).tolist()
    [[1, 2], [3, 4]]
    """
    if width is None:
        raise ServiceError(422, f"Rows of {kind} cannot be read: the service does not know their length.", field="kind")
    size = width * (4 if kind == "features" else 1)
    if not body or len(body) % size or len(body) // size > limit:
        message = f"The body must have 1 to {limit} rows of {size} bytes. Got {len(body)} bytes instead."
        raise ServiceError(422, message, field="body")
    rows: NDArray[Any] = np.frombuffer(body, "<f4" if kind == "features" else np.uint8).reshape(-1, width)
    if kind == "features" and not np.isfinite(rows).all():
        raise ServiceError(422, "The body must have finite numbers. Got NaN or infinity instead.", field="body")
    return rows
