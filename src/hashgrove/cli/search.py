"""The command ``hashgrove search``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hashgrove.cli.output import Hit

__all__ = ["search"]

QUERIES_PER_SEARCH = 1024  # so that the results of all queries are never in memory together


@click.command()
@click.argument("codes")
@click.argument("queries")
@options.query_model
@click.option("-k", type=options.POSITIVE, default=10, show_default=True, help="Number of nearest items per query.")
@click.option("--radius", type=click.IntRange(min=0), help="Find all items within this distance, instead of -k.")
@options.json_style
@options.csv_style
@options.threads
def search(
    codes: str,
    queries: str,
    model: str | None,
    k: int,
    radius: int | None,
    style: str | None,
    n_jobs: int | None,
) -> None:
    """Find the nearest CODES for each query.

    Results are sorted by distance and then by id. An id is a row number of CODES, from 0. CODES may also be an index,
    which has its own ids, and whose model encodes QUERIES if it holds one; `hashgrove index search` offers more.

    \b
    Example:
      hashgrove search codes.npy queries.npy --model model.hashgrove -k 10 --json
    """
    options.refuse(radius is not None and options.was_given("k"), "Give -k or --radius, not both.")
    from hashgrove import FlatIndex
    from hashgrove.cli.inputs import read_database
    from hashgrove.cli.output import write_hits
    from hashgrove.index.manifest import is_index_folder

    if is_index_folder(codes):
        from hashgrove.cli.neighbours import show_neighbours

        how = {"k": k, "radius": radius, "style": style, "n_jobs": n_jobs}
        show_neighbours(codes, queries, model, **how, rerank=False, margins=False, html=None)  # type: ignore[arg-type]
        return
    database, found = read_database(codes, queries, model, n_jobs=n_jobs)
    index = FlatIndex(database)
    depth = len(index) if radius is not None else min(k, len(index))
    largest = (len(found), depth, 8 * database.shape[1], len(index))

    def find(chunk: NDArray[np.uint8]) -> Any:
        if radius is None:
            return index.search(chunk, k, n_jobs=n_jobs)
        return index.search_radius(chunk, radius, n_jobs=n_jobs)

    write_hits(_hits(find, found), style=style, largest=largest)


def _hits(find: Callable[[NDArray[np.uint8]], Any], queries: NDArray[np.uint8]) -> Iterator[Hit]:
    for start in range(0, len(queries), QUERIES_PER_SEARCH):
        results = zip(*find(queries[start : start + QUERIES_PER_SEARCH]), strict=True)
        for query, (distances, ids) in enumerate(results, start=start):
            yield query, distances, ids
