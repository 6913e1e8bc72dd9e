"""What a request asks for: JSON, a form with a picture, or binary rows become one kind of question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams, UploadFile
from starlette.exceptions import HTTPException

from hashgrove.web.errors import ServiceError, from_validation, must_be
from hashgrove.web.limits import Limits
from hashgrove.web.schemas import SearchOptions, SearchRequest

__all__ = [
    "BINARY",
    "FORM",
    "JSON",
    "KINDS",
    "Question",
    "content_type",
    "kind_of_rows",
    "read_json",
    "read_question",
    "read_rows",
    "wants_binary",
]

JSON, FORM, BINARY = "application/json", "multipart/form-data", "application/octet-stream"
KINDS = ("features", "codes")
FLAGS = ("rerank", "margins", "bits", "histogram")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class Question:
    """What a search is about: exactly one of the first four, and how to search."""

    options: SearchOptions
    features: NDArray[np.float32] | list[list[float]] | None = None
    codes: NDArray[np.uint8] | list[str] | None = None
    id: str | int | None = None
    picture: bytes | None = None


def content_type(request: Request) -> str:
    """The type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wants_binary(request: Request) -> bool:
    """Whether the answer should be binary."""
    return request.headers.get("accept", "").partition(";")[0].strip().lower() == BINARY


async def read_json(request: Request, model: type[Model]) -> Model:
    """The JSON of a body, checked."""
    if content_type(request) != JSON:
        raise _wrong_type(request, JSON)
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise from_validation(error) from None


def _wrong_type(request: Request, *allowed: str) -> ServiceError:
    got = content_type(request) or "none"
    return ServiceError(415, f"The content type must be {' or '.join(allowed)}. Got {got} instead.")


async def read_question(request: Request, *, n_features: int | None, n_bytes: int | None, limits: Limits) -> Question:
    """What a request to search asks for."""
    kind = content_type(request)
    if kind == BINARY:
        wanted = kind_of_rows(request.query_params)
        width = n_features if wanted == "features" else n_bytes
        rows = read_rows(await request.body(), kind=wanted, width=width, limit=limits.rows)
        options = _options(dict(request.query_params) | _allowed(request.query_params.getlist("allowed")), "kind")
        return Question(options, features=rows) if wanted == "features" else Question(options, codes=rows)
    if kind == FORM:
        return await _read_form(request, limits)
    if kind != JSON:
        raise _wrong_type(request, JSON, FORM, BINARY)
    asked = await read_json(request, SearchRequest)
    given = [name for name in ("features", "codes", "id") if getattr(asked, name) is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        message = f"Exactly one of the fields 'features', 'codes' and 'id' must be given. Got {got} instead."
        raise ServiceError(422, message, field=given[1] if given else "features")
    return Question(asked, features=asked.features, codes=asked.codes, id=asked.id)


def kind_of_rows(parameters: QueryParams) -> str:
    """What the rows of a binary body are, by the query string: "features" or "codes"."""
    kind = parameters.get("kind", "features")
    if kind not in KINDS:
        raise must_be("kind", f"one of {list(KINDS)}", kind)
    return kind


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


def _options(values: dict[str, Any], *ignored: str) -> SearchOptions:
    """How to search, from the texts of a form or of a query string."""
    read: dict[str, Any] = {name: value for name, value in values.items() if name not in ignored}
    for name in ("k", "radius"):
        if name in read and str(read[name]).lstrip("-").isdecimal() and len(read[name]) < 10:
            read[name] = int(read[name])
    for name in FLAGS:
        if name in read:
            read[name] = {"true": True, "false": False, "1": True, "0": False}.get(read[name], read[name])
    try:
        return SearchOptions.model_validate(read)
    except ValidationError as error:
        raise from_validation(error) from None


def _allowed(ids: list[Any]) -> dict[str, Any]:
    return {"allowed": ids} if ids else {}


async def _read_form(request: Request, limits: Limits) -> Question:
    try:
        async with request.form(max_files=1, max_fields=limits.rows, max_part_size=2**16) as form:
            picture = form.get("image")
            if not isinstance(picture, UploadFile):
                raise must_be("image", "a file with a picture", picture)
            values = {name: form[name] for name in form if name != "image"}
            options = _options(values | _allowed(form.getlist("allowed")))
            content = await picture.read(limits.image_bytes + 1)
    except HTTPException as error:
        raise ServiceError(400, f"The form cannot be read: {error.detail}") from None
    if len(content) > limits.image_bytes:
        message = f"The 'image' field must have at most {limits.image_bytes} bytes. Got more instead."
        raise ServiceError(413, message, field="image")
    return Question(options, picture=content)
