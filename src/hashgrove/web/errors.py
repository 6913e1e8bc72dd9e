"""Errors of the service: a status, the field that is wrong, and one sentence. Nobody ever sees a traceback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

__all__ = ["BUSY", "ServiceError", "error_body", "error_response", "from_validation", "must_be"]

BUSY = {"Retry-After": "1"}
SHOWN = 80  # characters of a wrong value in a message


class ServiceError(Exception):
    """A request that cannot be answered.

    Parameters
    ----------
    status : int
        The HTTP status.
    message : str
        One sentence for people.
    field : str, optional
        The field or parameter that is wrong.
    headers : mapping, optional
        Further headers of the answer.
    """

    def __init__(
        self, status: int, message: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.headers = status, message, field, dict(headers or {})


def must_be(field: str, what: str, got: Any) -> ServiceError:
    """The error for a field that is not what it must be.

    >>> must_be("k", "an integer from 1 to 1000", 0).message
    "The 'k' field must be an integer from 1 to 1000. Got 0 instead."
    """
    return ServiceError(422, f"The '{field}' field must be {what}. Got {_shown(got)} instead.", field=field)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def error_body(error: ServiceError) -> dict[str, Any]:
    """What an error looks like as JSON.

    >>> error_body(ServiceError(404, "There is no item with the id '7'.", field="id"))
    {'error': {'status': 404, 'field': 'id', 'message': "There is no item with the id '7'."}}
    """
    return {"error": {"status": error.status, "field": error.field, "message": error.message}}


def error_response(error: ServiceError) -> JSONResponse:
    """The answer to a request that cannot be answered."""
    return JSONResponse(error_body(error), status_code=error.status, headers=error.headers)


def from_validation(error: ValidationError | Sequence[Mapping[str, Any]]) -> ServiceError:
    """The first thing that is wrong with a body or with parameters, in the words of hashgrove.

    Parameters
    ----------
    error : ValidationError of pydantic, or its list of errors
    """
    first = (error.errors(include_url=False) if isinstance(error, ValidationError) else list(error))[0]
    kind, said = str(first["type"]), str(first["msg"])
    if kind in ("json_invalid", "json_type"):
        return ServiceError(400, f"The body must be JSON. {said.removeprefix('Invalid JSON: ').capitalize()}.")
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(place) or "body"
    if kind == "missing":
        return ServiceError(422, f"The '{field}' field must be given. It is missing.", field=field)
    if kind == "extra_forbidden":
        return ServiceError(422, f"There is no field '{field}'.", field=field)
    for start in ("Input should be ", "Input should ", "Value error, "):
        if said.startswith(start):
            said = said.removeprefix(start)
            break
    if said.startswith("List should have"):
        said = said.replace("List should have", "a list of").split(" after validation")[0]
    return must_be(field, said, first.get("input"))
