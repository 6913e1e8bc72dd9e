"""Limits of a request."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of the number of requests that wait.

    Attributes
    ----------
    body_bytes : int
        Size of the body of a request.
    json_values : int
        Numbers, texts and so on in a body in JSON, which is read at once. A binary body has no such limit.
    json_texts : int
        Texts and names of fields in it, which take longer to read than numbers.
    rows : int
        Queries, or rows to encode, in one request.
    items : int
        Items that one request adds.
    k : int
        Results per query.
    results : int
        Results of all queries of a request together.
    shown_bits : int
        Bits of all codes that an answer shows.
    page : int
        Items on one page of the gallery.
    allowed : int
        Ids in the filter ``allowed``.
    seconds : float
        Time until a request is refused.
    waiting : int
        Queries that wait for the next pass over the codes; further ones are refused.
    image_bytes : int
        Size of an uploaded image. Its pixels are limited by `hashgrove.features.images.read_image`.
    waiting_images : int
        Images that are being decoded or wait for it; further ones are refused.
    """

    body_bytes: int = 2**24
    json_values: int = 2**20
    json_texts: int = 2**17
    rows: int = 1024
    items: int = 10_000
    k: int = 1000
    results: int = 100_000
    shown_bits: int = 2**25
    page: int = 500
    allowed: int = 100_000
    seconds: float = 30.0
    waiting: int = 4096
    image_bytes: int = 2**24
    waiting_images: int = 16


LIMITS = Limits()
