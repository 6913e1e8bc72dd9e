"""Answers to searches: JSON, or a compact binary format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

from hashgrove.web.bodies import BINARY
from hashgrove.web.collection import Collection, as_hex
from hashgrove.web.contents import Contents
from hashgrove.web.errors import ServiceError

__all__ = ["Neighbours", "as_json", "binary_results", "json_results", "milliseconds"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The results of a search.

    Attributes
    ----------
    codes : uint8 array of shape (n_queries, n_bytes)
        The queries.
    distances, ids : list of n_queries arrays
    ranked_by : str
        The meaning of the distances; see `hashgrove.web.answer_schemas.SearchAnswer`.
    truncated : bool array of shape (n_queries,), optional
        With a radius: whether there are more items within it than these.
    seconds : dict
        Time of each step.
    """

    codes: NDArray[np.uint8]
    distances: list[NDArray[Any]]
    ids: list[NDArray[Any]]
    ranked_by: str
    truncated: NDArray[np.bool_] | None
    seconds: dict[str, float]

    @property
    def n_results(self) -> int:
        """Results of all queries."""
        return sum(map(len, self.ids))


def milliseconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Times as they are in an answer.

    >>> milliseconds({"search": 0.00123456})
    {'search': 1.235}
    """
    return {name: round(1000 * value, 3) for name, value in seconds.items()}


def as_json(content: Any, *, status: int = 200) -> Response:
    """An answer in JSON. Its content is trusted and not validated again."""
    return Response(_encoded(content), status_code=status, media_type="application/json")


def _encoded(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def json_results(
    collection: Collection,
    found: Neighbours,
    *,
    codes_in: Contents | None,
    histograms: list[list[int]] | None,
    total: float,
) -> Response:
    """The results of a search in JSON; with ``codes_in``, also the codes of queries and items."""
    queries: list[dict[str, Any]] = [
        {"code": as_hex(code)} if codes_in is None else collection.shown_code(code) for code in found.codes
    ]
    for query, histogram in zip(queries, histograms or (), strict=False):
        query["histogram"] = histogram
    if found.truncated is not None:
        for query, truncated in zip(queries, found.truncated.tolist(), strict=True):
            query["truncated"] = truncated
    results = []  # each in JSON, because the encoder keeps all threads from running until it is done
    for distances, ids in zip(found.distances, found.ids, strict=True):
        hits = collection.described(ids, codes_in=codes_in)
        for hit, distance in zip(hits, _numbers(distances), strict=True):
            hit["distance"] = distance
        results.append(_encoded(hits))
    timings = milliseconds(found.seconds | {"total": total})
    parts = (b'{"queries":', _encoded(queries), b',"results":[', b",".join(results), b'],"ranked_by":')
    rest = (_encoded(found.ranked_by), b',"timings":', _encoded(timings), b"}")
    return Response(b"".join((*parts, *rest)), media_type="application/json")


def _numbers(distances: Any) -> list[Any]:
    if distances.dtype.kind != "f":
        return list(distances.tolist())
    largest = np.finfo(np.float32).max  # JSON has no infinity
    return [round(value, 4) + 0.0 for value in np.minimum(distances, largest).tolist()]  # + 0.0: no minus zero


def binary_results(found: Neighbours) -> Response:
    """The results of a search in little-endian numbers.

    That is: the number n of queries (uint32), the number of results of each (n uint32), whether each was truncated
    (n uint32, 1 or 0), all distances (float32), and all ids (int64), query by query. The header X-Ranked-By says what
    the distances are.
    """
    if any(ids.dtype.kind != "i" for ids in found.ids):
        raise ServiceError(406, "Binary answers need integer ids. Those of the index are texts.")
    counts = [len(ids) for ids in found.ids]
    truncated = np.zeros(len(counts)) if found.truncated is None else found.truncated
    parts = [
        np.array([len(counts), *counts], "<u4"),
        truncated.astype("<u4"),
        np.concatenate([np.asarray(row, "<f4") for row in found.distances]),
        np.concatenate([np.asarray(row, "<i8") for row in found.ids]),
    ]
    content = b"".join(part.tobytes() for part in parts)
    return Response(content, media_type=BINARY, headers={"x-ranked-by": found.ranked_by})
