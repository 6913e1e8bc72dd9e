"""What requests and answers look like: the models of their JSON, from which the OpenAPI document is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, StrictStr

from hashgrove.index.ids import MAX_ID, MAX_TEXT
from hashgrove.web.limits import LIMITS

__all__ = [
    "EncodeAnswer",
    "EncodeRequest",
    "Health",
    "Info",
    "Item",
    "ItemPage",
    "ItemWithCode",
    "ItemsAnswer",
    "ItemsRequest",
    "NewItem",
    "Problem",
    "RemoveAnswer",
    "ReportAnswer",
    "SearchAnswer",
    "SearchOptions",
    "SearchRequest",
]

Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_TEXT)]
Integer = Annotated[StrictInt, Field(ge=-MAX_ID - 1, le=MAX_ID)]
Id = Annotated[Text | Integer, Field(description="An integer, or a text; integers may be given as texts, too.")]
Code = Annotated[StrictStr, Field(min_length=2, max_length=16384, pattern="^([0-9a-fA-F]{2})+$")]
Row = Annotated[list[FiniteFloat], Field(min_length=1)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=LIMITS.rows)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SearchOptions(_Request):
    """How to search; the same in every kind of body."""

    k: Annotated[StrictInt, Field(ge=1, le=LIMITS.k)] | None = Field(
        None, description="Number of results; 10 if there is no radius, otherwise as many as there may be."
    )
    radius: Annotated[StrictInt, Field(ge=0, le=2**16)] | None = Field(
        None, description="Only items within this Hamming distance."
    )
    label: Annotated[StrictStr, Field(max_length=MAX_TEXT)] | None = Field(
        None, description="Only items with this label."
    )
    allowed: Annotated[list[Id], Field(max_length=LIMITS.allowed)] | None = Field(
        None, description="Only items with these ids."
    )
    rerank: StrictBool = Field(False, description="Order the nearest items by the features that the index keeps.")
    margins: StrictBool = Field(False, description="Weigh each bit by how sure the query is of it.")
    bits: StrictBool = Field(False, description="Also return codes and bits.")
    histogram: StrictBool = Field(False, description="Also return how many items there are at each distance.")


class SearchRequest(SearchOptions):
    """Queries, as exactly one of features, codes and id, and how to search."""

    features: Rows | None = Field(None, description="Rows of features, which the model encodes.")
    codes: Annotated[list[Code], Field(min_length=1, max_length=LIMITS.rows)] | None = Field(
        None, description="Packed codes in hexadecimal digits."
    )
    id: Id | None = Field(None, description="An item of the index, whose neighbours are searched.")


class EncodeRequest(_Request):
    """Rows of features to encode."""

    features: Rows


class NewItem(_Request):
    """An item: exactly one of features and code."""

    id: Id | None = Field(None, description="Without it, the next integer after the largest id.")
    features: Row | None = None
    code: Code | None = None


class ItemsRequest(_Request):
    """Items to add."""

    items: Annotated[list[NewItem], Field(min_length=1, max_length=LIMITS.items)]
    replace: StrictBool = Field(False, description="Give items that are there already their new codes.")


class Item(BaseModel):
    """An item of the collection."""

    id: str
    label: str | None = None
    name: str | None = None
    fields: dict[str, str] | None = None
    image: str | None = Field(None, description="Where its picture is.")


class ItemWithCode(Item):
    """An item and its code."""

    code: str
    bits: str


class Hit(Item):
    """An item that was found."""

    distance: float
    code: str | None = None
    bits: str | None = None


class FoundQuery(BaseModel):
    """A query as it was searched for."""

    code: str
    bits: str | None = None
    histogram: list[int] | None = None


class SearchAnswer(BaseModel):
    """The nearest items of each query, nearest first."""

    queries: list[FoundQuery]
    results: list[list[Hit]]
    timings: dict[str, float] = Field(description="Milliseconds.")


class EncodeAnswer(BaseModel):
    """Codes in hexadecimal digits."""

    codes: list[str]
    n_bits: int
    timings: dict[str, float]


class ItemPage(BaseModel):
    """A page of the collection."""

    total: int
    offset: int
    items: list[Item]


class ItemsAnswer(BaseModel):
    """What was added; it is on disk."""

    ids: list[str]
    items: int = Field(description="Number of items of the index.")


class RemoveAnswer(BaseModel):
    """What was removed; that is on disk."""

    removed: int
    items: int


class Health(BaseModel):
    """That the service is there."""

    status: Literal["ok"]
    version: str
    items: int
    uptime: float = Field(description="Seconds.")


class Info(BaseModel):
    """What the collection has, and what the service can do with it."""

    version: str
    name: str
    items: int
    n_bits: int | None
    n_features: int | None
    id_kind: Literal["int", "text"] | None
    has_model: bool
    has_images: bool
    takes_images: bool
    has_labels: bool
    has_report: bool
    labels: list[str]
    fields: list[str]
    can_rerank: bool
    can_weigh: bool
    read_only: bool
    needs_key: bool
    model: str | None
    limits: dict[str, float]


class ReportAnswer(BaseModel):
    """How well the codes keep items of a class together."""

    status: Literal["ready", "running", "none", "failed"]
    reason: str | None = None
    report: dict[str, Any] | None = None


class Error(BaseModel):
    """Why a request cannot be answered."""

    status: int
    field: str | None
    message: str


class Problem(BaseModel):
    """A request that cannot be answered."""

    error: Error
