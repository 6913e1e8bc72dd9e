"""Errors of the service: a status, the field that is wrong, and one sentence. No answer has a traceback."""

from __future__ import annotations

import errno
import logging
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.formats import FileError, one_line

__all__ = [
    "BUSY",
    "HEX",
    "MEANINGS",
    "PRINTABLE",
    "ServiceError",
    "cannot_use",
    "error_body",
    "error_response",
    "from_validation",
    "from_value_error",
    "must_be",
]

log = logging.getLogger("hashgrove")

DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
BUSY = {"Retry-After": "1"}
SHOWN = 80  # characters of a wrong value in a message
MEANINGS = {
    400: "The body cannot be read.",
    401: "The key is missing or wrong.",
    403: "The service is read-only, or the request comes from a page of another origin.",
    404: "There is no such item or image.",
    406: "The answer cannot have the requested type.",
    409: "There is an item with this id already.",
    413: "The body is too large.",
    415: "The type of the body is not supported.",
    422: "A field is wrong; the answer names it.",
    503: "Too many requests wait, or this one took too long.",
    507: "The disk of the service is full; nothing has been changed.",
}
HEX = "^([0-9a-fA-F]{2})+$"
PRINTABLE = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
PATTERNS = {HEX: "pairs of hexadecimal digits", PRINTABLE: "a text without control characters"}
# Parts of a place that pydantic and FastAPI report, besides names of fields: where it is, and the choice of a union.
NO_FIELDS = {"body", "query", "path", "header", "str", "int", "constrained-str", "constrained-int"}
# What a field must be, by the type of the error that pydantic reports; braces are filled from the error's context.
REQUIREMENTS = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "bytes_type": "an image file",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of 64 bits",
    "int_type": "an integer",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "dict_type": "an object",
    "no_json": "an object in JSON",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "string_type": "a text",
    "too_long": "a list of at most {max_length} entries",
    "too_short": "a list of at least {min_length} entries",
}


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


def _made_up(name: str) -> str:
    """A name that a client has made up, on one line and not long."""
    return " ".join(name.split())[:SHOWN]


def must_be(field: str, what: str, got: Any) -> ServiceError:
    """The error for a field that is not what it must be.

    >>> must_be("k", "an integer from 1 to 1000", 0).message
    "The 'k' field must be an integer from 1 to 1000. Got 0 instead."
    """
    return ServiceError(422, f"The '{field}' field must be {what}. Got {_shown(got)} instead.", field=field)


def cannot_use(field: str, reason: str) -> ServiceError:
    """The error for a field that this service, or this kind of query, does not take.

    >>> cannot_use("label", "items have no labels").message
    "The 'label' field cannot be used: items have no labels."
    """
    return ServiceError(422, f"The '{field}' field cannot be used: {reason}.", field=field)


def from_value_error(error: ValueError, field: str) -> ServiceError:
    """The error for a field whose value the library refuses.

    >>> from_value_error(ParameterError("X", "must have 3 columns. Got 2 instead."), "features").message
    "The 'features' field must have 3 columns. Got 2 instead."
    """
    if isinstance(error, ParameterError):
        return ServiceError(422, f"The '{field}' field {error.reason}", field=field)
    if isinstance(error, FileError):  # its message has a path of the server
        log.error("A change failed: %s", one_line(error))
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL:
            return ServiceError(507, "The disk of the service is full. Nothing has been changed.")
        return ServiceError(500, "The index could not be changed; the log of the service has the details.")
    return ServiceError(422, f"The '{field}' field cannot be used: {one_line(error)}", field=field)


class _Short(reprlib.Repr):
    """``repr`` that looks at the beginning of a value only, however large it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 2 * SHOWN
        self.maxlist = self.maxtuple = self.maxdict = SHOWN // 4

    def repr_str(self, x: str, level: int) -> str:
        return repr(x[: self.maxstring])

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        return super().repr_dict(dict(islice(x.items(), self.maxdict)), level)  # which sorts them


def _shown(value: Any) -> str:
    text = " ".join(_Short().repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def error_body(error: ServiceError) -> dict[str, Any]:
    """An error as JSON.

    >>> error_body(ServiceError(404, "There is no item with the id '7'.", field="id"))
    {'error': {'status': 404, 'field': 'id', 'message': "There is no item with the id '7'."}}
    """
    return {"error": {"status": error.status, "field": error.field, "message": error.message}}


def error_response(error: ServiceError) -> JSONResponse:
    """The answer to a request that cannot be answered."""
    return JSONResponse(error_body(error), status_code=error.status, headers=error.headers)


def from_validation(error: ValidationError | Sequence[Mapping[str, Any]]) -> ServiceError:
    """The first error that pydantic found in a body or in parameters, in the wording of hashgrove.

    Parameters
    ----------
    error : ValidationError of pydantic, or its list of errors
    """
    errors = error.errors(include_url=False) if isinstance(error, ValidationError) else list(error)
    first = errors[0]
    kind, context = str(first["type"]), first.get("ctx", {})
    if kind == "json_invalid":
        return ServiceError(400, f"The body must be JSON: {context['error']}.")
    field = _field_of(first)
    if kind == "unknown_field":
        field = _made_up(".".join(part for part in (_field_of(first, empty=""), context["field"]) if part))
        return ServiceError(422, f"There is no field '{field}'.", field=field)
    if kind == "missing":
        return ServiceError(422, f"The '{field}' field must be given. It is missing.", field=field)
    if kind == "extra_forbidden":
        field = _made_up(field)
        return ServiceError(422, f"There is no field '{field}'.", field=field)
    if kind not in REQUIREMENTS and kind != "string_pattern_mismatch":
        return ServiceError(422, f"The '{field}' field is wrong: {first['msg']}.", field=field)
    if kind == "string_pattern_mismatch":
        return must_be(field, PATTERNS[context["pattern"]], first.get("input"))
    same = [one for one in errors if _field_of(one) == field and one["type"] in REQUIREMENTS]  # choices of a union
    wanted = " or ".join(REQUIREMENTS[one["type"]].format(**one.get("ctx", {})) for one in same)
    return must_be(field, wanted, first.get("input"))


def _field_of(error: Mapping[str, Any], *, empty: str = "body") -> str:
    return ".".join(str(part) for part in error["loc"] if part not in NO_FIELDS) or empty
