"""The command ``hashgrove search``, and the search and output that ``hashgrove query`` shares with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    from hashgrove.cli.items import InputItems
    from hashgrove.cli.output import Hit

__all__ = ["search", "show_neighbours"]

QUERIES_PER_SEARCH = 1024  # keeps the results of all queries from being in memory together


@click.command()
@click.argument("codes")
@click.argument("queries")
@options.query_model
@options.columns()
@options.search_options
def search(
    codes: str,
    queries: str,
    model: str | None,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    **how: Any,
) -> None:
    """Find the nearest CODES for each query.

    CODES is a file of packed codes, whose ids are its row numbers from 0, an index, or the URL of an engine. QUERIES
    are packed codes or, with a model, features or images. The model is --model, or the one in the index.

    Packed codes find items by Hamming distance, and ids decide among ties. With features or images there is more to go
    by. If the model can decode codes (train --hash-function decodable), items are ranked by the classes that their
    codes state: the distance is one minus the probability that an item has the class of the query. Otherwise, if the
    index keeps features, the nearest items are ordered by the cosine distance of their features. Otherwise ties are
    broken by the margins of the bits that differ. --plain ranks by Hamming distance and id only.

    \b
    Example:
      hashgrove search codes.npy queries.npy --model model.hashgrove -k 10 --json
    """
    show_neighbours(codes, queries, model, columns=(label_column, id_column, feature_columns), **how)


def show_neighbours(
    database: str,
    queries: str,
    model: str | None,
    *,
    columns: tuple[str | None, str | None, str | None] = (None, None, None),
    k: int,
    radius: int | None,
    rerank: bool,
    plain: bool,
    weights: bool,
    html: str | None,
    style: str | None,
    n_jobs: int | None,
) -> None:
    """Print the nearest items of each query; with ``html``, write a page of them too.

    ``columns`` are those of labels, ids and features of a table of queries.
    """
    options.refuse(
        sum((radius is not None, rerank, plain, weights)) > 1, "Give one of --radius, --rerank, --plain and --weights."
    )
    options.refuse(radius is not None and options.was_given("k"), "Give -k or --radius, not both.")
    with show_step(LOADING):
        from hashgrove.cli.items import open_database
    from hashgrove.cli.output import write_hits
    from hashgrove.cli.page import write_page
    from hashgrove.storage.columns import Columns
    from hashgrove.storage.formats import FileError

    index, items = open_database(database, queries, model, columns=Columns.of(*columns), n_jobs=n_jobs)
    if (rerank or weights) and items.features is None:
        raise FileError(f"{queries}: must be features or images for --rerank and --weights. Got codes.")
    if rerank and getattr(index, "features", None) is None:
        raise FileError(f"{database}: must be an index with features for --rerank. It has none.")
    order = "plain" if plain else "features" if rerank else "weights" if weights else "best"
    hits: Iterable[Hit] = _hits(index, items, k=k, radius=radius, order=order, n_jobs=n_jobs)
    if html is not None:
        hits = list(hits)
        write_page(html, hits, names=items.ids, title=f"Neighbours in {database}")
        click.echo(f"Wrote {html}", err=True)
    depth = len(index) if radius is not None else min(k, len(index))
    longest_id = index.ids.dtype.itemsize // 4 if index.ids.dtype.kind == "U" else len(str(index.ids.max(initial=0)))
    widths = (len(str(len(items.codes))), len(str(depth)), len(str(8 * items.codes.shape[1])), longest_id)
    write_hits(hits, style=style, widths=widths)


def _hits(
    index: Any,
    items: InputItems,
    *,
    k: int,
    radius: int | None,
    order: str,
    n_jobs: int | None,
) -> Iterator[Hit]:
    """Number, distances and ids of each query; real-valued distances are rounded to four digits.

    The ``order`` is "plain" (by Hamming distance), "features", "weights", or "best": by decoded classes, otherwise by
    the features that the index keeps, otherwise by Hamming distance with ties by margins, whatever is possible.
    """
    import numpy as np

    from hashgrove.index import BreakTies, Decoded, Rerank
    from hashgrove.index.rerank import CAREFUL

    encoder: Any = getattr(items.encoder, "encoder", items.encoder)  # the part of an ImageEncoder that takes features
    orders: dict[str, Any] = {"features": Rerank()}
    stored = getattr(index, "features", None)  # engines keep none
    if order == "best" and items.features is not None:
        # other features than those that the model takes may be kept, for `Rerank` in Python
        can_rerank = stored is not None and stored.n_features == encoder.n_features and len(stored) == len(index)
        order = "decoded" if encoder.decoder is not None else "nearest" if can_rerank else "ties"
        orders |= {"decoded": Decoded(encoder), "ties": BreakTies(encoder), "nearest": Rerank(oversample=CAREFUL)}
    for start in range(0, len(items.codes), QUERIES_PER_SEARCH):
        part = slice(start, start + QUERIES_PER_SEARCH)
        codes, features = items.codes[part], None if items.features is None else items.features[part]
        common: dict[str, Any] = {"model": items.encoder, "n_jobs": n_jobs}
        results: Any
        with show_step("searching"):
            if radius is not None:
                results = index.search_radius(codes, radius, **common)
            elif order in orders:
                results = index.search(codes, k, rerank=orders[order], features=features, **common)
            elif order == "weights":
                results = index.search(codes, k, weights=np.abs(encoder.scores(features)), **common)
            else:
                results = index.search(codes, k, **common)
        for number, (distances, ids) in enumerate(zip(*results, strict=True), start=start):
            if distances.dtype.kind == "f":
                distances = np.round(distances.astype(np.float64), 4)
            yield number, distances, ids
