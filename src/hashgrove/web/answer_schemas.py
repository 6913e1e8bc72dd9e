"""Models of answers, from which their description in OpenAPI follows. What is sent is not validated again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

__all__ = [
    "EncodeAnswer",
    "Health",
    "Info",
    "Item",
    "ItemPage",
    "ItemWithCode",
    "ItemsAnswer",
    "Problem",
    "RemoveAnswer",
    "ReportAnswer",
    "SearchAnswer",
]


class Item(BaseModel):
    """An item of the collection."""

    id: str
    label: str | None = None
    name: str | None = None
    fields: dict[str, str] | None = None
    image: str | None = Field(None, description="Path of its image, below that of the index.")


class ItemWithCode(Item):
    """An item and its code."""

    code: str
    bits: str


class Hit(Item):
    """An item that was found."""

    distance: float = Field(description="0 is nearest; `ranked_by` of the answer says what it measures.")
    code: str | None = None
    bits: str | None = None


class FoundQuery(BaseModel):
    """A query as it was searched for."""

    code: str
    bits: str | None = None
    histogram: list[int] | None = None
    truncated: bool | None = Field(
        None, description="With a radius: whether there are more items within it than are returned."
    )


RankedBy = Annotated[
    Literal["bits", "classes", "weights", "features"],
    Field(
        description="What the distances are: `bits`, the number of bits that differ; `classes`, one minus the "
        "probability that the item has the class of the query, decoded from its code; `weights`, the sum of the "
        "weights of the bits that differ; `features`, the cosine distance of the features."
    ),
]


class SearchAnswer(BaseModel):
    """The nearest items of each query, nearest first."""

    queries: list[FoundQuery]
    results: list[list[Hit]]
    ranked_by: RankedBy
    timings: dict[str, float] = Field(description="Milliseconds.")


class EncodeAnswer(BaseModel):
    """Codes in hexadecimal digits."""

    codes: list[str]
    n_bits: int
    model: str = Field(description="Digest of the model that made the codes.")
    timings: dict[str, float] = Field(description="Milliseconds.")


class ItemPage(BaseModel):
    """A page of the collection."""

    total: int
    offset: int
    items: list[Item]


class ItemsAnswer(BaseModel):
    """The ids of the new items, which are on disk."""

    ids: list[str]
    items: int = Field(description="Number of items of the index.")


class RemoveAnswer(BaseModel):
    """The number of removed items, which are gone from the disk."""

    removed: int
    items: int = Field(description="Number of items of the index.")


class Health(BaseModel):
    """Liveness and number of items."""

    status: Literal["ok"]
    version: str
    items: int
    uptime: float = Field(description="Seconds.")
    process: int = Field(description="Id of the process that answers, which is one of several with --workers.")


class Info(BaseModel):
    """Description of the collection and of the available queries and options."""

    version: str
    name: str
    items: int
    n_bits: int | None
    n_features: int | None
    id_kind: Literal["int", "text"] | None
    has_model: bool
    has_images: bool
    keeps_details: bool = Field(description="Whether new items can have labels and fields.")
    keeps_pictures: bool = Field(description="Whether the pictures of new items are kept, and shown.")
    takes_images: bool
    takes_weights: bool
    has_labels: bool
    labels: list[str]
    fields: list[str]
    can_rerank: bool
    can_decode: bool = Field(description="Whether queries that the model encodes are ranked by decoded classes.")
    default_ranking: RankedBy
    read_only: bool
    needs_key: bool
    indexes: list[str] = Field(description="Where several indexes are served: their names, which begin their paths.")
    model: str | None = Field(description="Digest of the model of the index, if it is known.")
    limits: dict[str, float]


class ReportAnswer(BaseModel):
    """Retrieval quality: how often items of a label find each other."""

    status: Literal["ready", "running", "none", "failed"]
    reason: str | None = None
    report: dict[str, Any] | None = None


class Error(BaseModel):
    """Status, wrong field and message of an error."""

    status: int
    field: str | None
    message: str


class Problem(BaseModel):
    """The answer to a request that cannot be answered."""

    error: Error
