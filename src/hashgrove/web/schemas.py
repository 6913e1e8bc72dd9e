"""Models of requests. Each field is declared once, here: bodies of every type and OpenAPI follow from it.

A request may have several types of body (`hashgrove.web.bodies`), with a model for each: ``...Request`` for JSON,
``...Rows`` for the query string beside binary rows, and their base class ``...Options``, which has what they share, for
the fields of a form beside its image.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from hashgrove.index.ids import MAX_ID, MAX_TEXT
from hashgrove.web.details import MAX_CELL
from hashgrove.web.errors import HEX, PRINTABLE
from hashgrove.web.limits import LIMITS

__all__ = [
    "EncodeRequest",
    "EncodeRows",
    "ItemForm",
    "ItemsOptions",
    "ItemsRequest",
    "ItemsRows",
    "NewItem",
    "SearchOptions",
    "SearchRequest",
    "SearchRows",
]

Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_TEXT)]
Integer = Annotated[StrictInt, Field(ge=-MAX_ID - 1, le=MAX_ID)]
Id = Annotated[Text | Integer, Field(description="An integer or a text. An integer may be given as a text.")]
Code = Annotated[StrictStr, Field(min_length=2, max_length=16384, pattern=HEX)]
# A list is wrong at its first wrong entry: one error is shown, and a million of them would take seconds.
Row = Annotated[list[FiniteFloat], Field(fail_fast=True, min_length=1)]
Rows = Annotated[list[Row], Field(fail_fast=True, min_length=1, max_length=LIMITS.rows)]
Kind = Annotated[Literal["features", "codes"], Field(description="What the rows are: float32, or packed codes.")]
Digest = Annotated[
    Annotated[StrictStr, Field(min_length=1, max_length=128)] | None,
    Field(
        description="Digest of the model that made the codes, as in /info. Codes need it if the index knows its model."
    ),
]


Label = Annotated[
    Annotated[StrictStr, Field(max_length=MAX_TEXT, pattern=PRINTABLE)] | None,
    Field(description="Label of the item."),
]
Fields = Annotated[
    Annotated[
        dict[
            Annotated[StrictStr, Field(min_length=1, max_length=64, pattern=PRINTABLE)],
            Annotated[StrictStr, Field(max_length=MAX_CELL)],
        ],
        Field(max_length=64),
    ]
    | None,
    Field(description="Further fields, as texts by their names; the one called name is the name of the item."),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _from_json(given: Any) -> Any:
    """The object that a text of a form stands for."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        raise PydanticCustomError("no_json", "JSON") from None


class _Json(_Request):
    @model_validator(mode="before")
    @classmethod
    def _refuse_many_fields(cls, given: Any) -> Any:
        """Refuse at the first unknown field if there are many, each of which would be an error of its own."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            unknown = next(name for name in given if name not in cls.model_fields)
            raise PydanticCustomError("unknown_field", "unknown field", {"field": str(unknown)[:80]})
        return given


class SearchOptions(_Request):
    """Options of a search, the same for every type of body."""

    k: Annotated[StrictInt, Field(ge=1, le=LIMITS.k)] | None = Field(
        None, description=f"Number of results per query: by default 10, or with a radius {LIMITS.k}."
    )
    radius: Annotated[StrictInt, Field(ge=0, le=2**16)] | None = Field(
        None, description="Only items within this Hamming distance. The answer says if there are more than k of them."
    )
    label: Annotated[StrictStr, Field(max_length=MAX_TEXT)] | None = Field(
        None, description="Only items with this label."
    )
    allowed: Annotated[list[Id], Field(fail_fast=True, max_length=LIMITS.allowed)] | None = Field(
        None, description="Only items with these ids."
    )
    rerank: StrictBool = Field(
        False, description="Order the nearest items by the features that the index stores, or fail."
    )
    plain: StrictBool = Field(False, description="Rank by the number of bits that differ, and by id.")
    weights: StrictBool = Field(False, description="Weight each bit by the confidence of the query in it.")
    show_code: StrictBool = Field(False, description="Return the code of each item, also as a text of bits.")
    show_histogram: StrictBool = Field(False, description="Return the number of items at each distance.")
    model: Digest = None


class SearchRequest(SearchOptions, _Json):
    """Queries, as exactly one of features, codes and id, and options."""

    features: Rows | None = Field(None, description="Rows of features, which the model encodes.")
    codes: Annotated[list[Code], Field(fail_fast=True, min_length=1, max_length=LIMITS.rows)] | None = Field(
        None, description="Packed codes in hexadecimal digits."
    )
    id: Id | None = Field(None, description="Id of an item of the index; its neighbours are searched.")


class SearchRows(SearchOptions):
    """The query string of a search whose body is binary."""

    kind: Kind = "features"


class EncodeRequest(_Json):
    """Rows of features to encode."""

    features: Rows


class EncodeRows(_Request):
    """The query string of a request to encode whose body is binary: nothing."""


class NewItem(_Json):
    """An item: exactly one of features and code."""

    id: Id | None = Field(None, description="By default the next integer after the largest id.")
    features: Row | None = None
    code: Code | None = None
    label: Label = None
    fields: Fields = None


class ItemsOptions(_Request):
    """Options of adding items, the same for every type of body."""

    replace: StrictBool = Field(False, description="Give existing items their new codes instead of refusing them.")
    model: Digest = None


class ItemsRequest(ItemsOptions, _Json):
    """Items to add."""

    items: Annotated[list[NewItem], Field(fail_fast=True, min_length=1, max_length=LIMITS.items)]


class ItemsRows(ItemsOptions):
    """The query string of a request to add items whose body is binary."""

    kind: Kind = "features"
    id: Annotated[list[Id], Field(fail_fast=True, max_length=LIMITS.items)] | None = Field(
        None, description="One id per row."
    )
    label: (
        Annotated[
            list[Annotated[StrictStr, Field(max_length=MAX_TEXT, pattern=PRINTABLE)]],
            Field(fail_fast=True, max_length=LIMITS.items),
        ]
        | None
    ) = Field(None, description="One label per row; an empty text is none.")


class ItemForm(ItemsOptions):
    """The fields of a form with the picture of a new item."""

    id: Id | None = Field(
        None, description="By default the next integer, or the name of the file if ids are texts or there are none."
    )
    label: Label = None
    fields: Annotated[Fields, BeforeValidator(_from_json)] = None
