"""Search of an index for the commands ``index search`` and ``query``: encode, find, print, and make a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click
import numpy as np

from hashgrove.cli import options
from hashgrove.cli.indexing import Found, open_for_queries
from hashgrove.cli.output import write_hits
from hashgrove.cli.page import write_page
from hashgrove.index import FlatIndex, Rerank
from hashgrove.storage.formats import FileError

__all__ = ["show_neighbours"]

QUERIES_PER_SEARCH = 1024  # so that the results of all queries are never in memory together


def show_neighbours(
    folder: str,
    queries: str,
    model: str | None,
    *,
    k: int,
    radius: int | None,
    rerank: bool,
    margins: bool,
    html: str | None,
    style: str | None,
    n_jobs: int | None,
) -> None:
    """Print the nearest items of each query; with ``html``, write a page of them too."""
    ways = sum((radius is not None, rerank, margins))
    options.refuse(ways > 1, "Give one of --radius, --rerank and --margins.")
    options.refuse(radius is not None and options.was_given("k"), "Give -k or --radius, not both.")
    opened, found = open_for_queries(folder, queries, model, n_jobs=n_jobs)
    if (rerank or margins) and (found.features is None or found.encoder is None):
        raise FileError(f"{queries}: must be features or images for --rerank and --margins. Got codes.")
    hits: Iterable[tuple[int, Any, Any]] = _hits(
        opened, found, k=k, radius=radius, rerank=rerank, margins=margins, n_jobs=n_jobs
    )
    widest = max((len(str(i)) for i in opened.ids[-1:].tolist()), default=1)
    if html is not None:
        hits = list(hits)
        write_page(html, hits, names=found.ids, title=f"Neighbours in {folder}")
        click.echo(f"Wrote {html}", err=True)
    depth = len(opened) if radius is not None else min(k, len(opened))
    write_hits(hits, style=style, largest=(len(found.codes), depth, 8 * (opened.n_bytes or 1), 10**widest - 1))


def _hits(
    opened: FlatIndex | Any,
    found: Found,
    *,
    k: int,
    radius: int | None,
    rerank: bool,
    margins: bool,
    n_jobs: int | None,
) -> Iterator[tuple[int, Any, Any]]:
    for start in range(0, len(found.codes), QUERIES_PER_SEARCH):
        part = slice(start, start + QUERIES_PER_SEARCH)
        codes = found.codes[part]
        common: dict[str, Any] = {"model": found.encoder, "n_jobs": n_jobs}
        features = None if found.features is None else found.features[part]
        if radius is not None:
            results = opened.search_radius(codes, radius, **common)
        elif rerank:
            results = opened.search(codes, k, rerank=Rerank(), features=features, **common)
        elif margins:
            encoder: Any = getattr(found.encoder, "encoder", found.encoder)
            results = opened.search_weighted(codes, np.abs(encoder.scores(features)), k, n_jobs=n_jobs)
        else:
            results = opened.search(codes, k, **common)
        for number, (distances, ids) in enumerate(zip(*results, strict=True), start=start):
            if distances.dtype.kind == "f":
                distances = np.round(distances.astype(np.float64), 4)
            yield number, distances, ids
