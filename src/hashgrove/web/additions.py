"""New items of a request: from JSON or binary rows to codes, ids and features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams

from hashgrove.web.bodies import kind_of_rows, read_rows
from hashgrove.web.errors import ServiceError, must_be
from hashgrove.web.schemas import ItemsRequest
from hashgrove.web.service import Service

__all__ = ["add_items", "add_rows"]


async def add_items(service: Service, asked: ItemsRequest) -> NDArray[Any]:
    """Add the items of a request in JSON; return their ids."""
    for number, item in enumerate(asked.items):
        if (item.features is None) == (item.code is None):
            place = f"items.{number}"
            got = "none" if item.code is None else "both"
            message = f"The '{place}' field must have exactly one of 'features' and 'code'. Got {got} instead."
            raise ServiceError(422, message, field=place)
    by_code = [item.code for item in asked.items if item.code is not None]
    rows = [item.features for item in asked.items if item.features is not None]
    ids = _ids(service, [item.id for item in asked.items if item.id is not None], len(asked.items))
    features = service.encoding.check_features(rows, "items.features") if rows else None
    parts: dict[bool, Any] = {}
    if features is not None:
        parts[True] = (await service.encoding.encode(features)).codes
    if by_code:
        parts[False] = service.encoding.check_codes(by_code, "items.code")
    if len({part.shape[1] for part in parts.values()}) > 1:
        raise must_be("items.code", "as long as the codes of the model", by_code[0])
    encoded = np.array([item.features is not None for item in asked.items])
    codes = np.empty((len(asked.items), next(iter(parts.values())).shape[1]), np.uint8)
    for is_row, part in parts.items():
        codes[encoded == is_row] = part
    return await service.writer.add(codes, ids, features=None if by_code else features, replace=asked.replace)


async def add_rows(service: Service, body: bytes, parameters: QueryParams) -> NDArray[Any]:
    """Add the rows of a binary request; return their ids."""
    kind = kind_of_rows(parameters)
    width = service.encoding.n_features if kind == "features" else service.collection.n_bytes
    rows = read_rows(body, kind=kind, width=width, limit=service.limits.items)
    ids = _ids(service, parameters.getlist("id"), len(rows))
    if kind == "codes":
        return await service.writer.add(rows, ids, features=None, replace=False)
    codes = (await service.encoding.encode(rows)).codes
    return await service.writer.add(codes, ids, features=rows, replace=False)


def _ids(service: Service, given: list[Any], n_items: int) -> NDArray[Any] | None:
    """The ids of new items, of which all or none are given."""
    if given and len(given) != n_items:
        raise must_be("id", f"given for all {n_items} items or for none", f"{len(given)} ids")
    return service.ids_of(given, "id") if given else None
