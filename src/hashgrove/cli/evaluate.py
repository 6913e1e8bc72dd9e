"""The command ``hashgrove evaluate``."""

from __future__ import annotations

import click

from hashgrove.cli import options
from hashgrove.cli.signature import Settings, SignatureCommand, SignatureOption, signature_options
from hashgrove.runtime.progress import LOADING, show_step

__all__ = ["evaluate"]


def _derive() -> list[SignatureOption]:
    from hashgrove import evaluate as measure
    from hashgrove.metrics.evaluation import TIES
    from hashgrove.metrics.protocols import NORMALISE, PROTOCOLS

    names = ("k", "ties", "min_shared", "depth", "normalise", "protocol")
    choices = {"ties": TIES, "normalise": NORMALISE, "protocol": tuple(PROTOCOLS)}
    return signature_options({"": measure}, only=names, choices=choices)


@click.command(cls=SignatureCommand, derive=_derive)
@click.argument("codes")
@click.argument("queries")
@click.option("--y-queries", required=True, metavar="FILE", help="Classes or tags of QUERIES.")
@click.option("--y-database", required=True, metavar="FILE", help="Classes or tags of CODES.")
@options.query_model
@options.json_style
@options.csv_style
@options.n_jobs
def evaluate(
    codes: str,
    queries: str,
    y_queries: str,
    y_database: str,
    model: str | None,
    style: str | None,
    n_jobs: int | None,
    settings: Settings,
) -> None:
    """Measure how well QUERIES find relevant CODES.

    An item is relevant to a query if both are of the same class or, for tags, if they share at least --min-shared
    tags. CODES may also be an index, or the URL of an engine: then --y-database is in the order in which its items were
    added, and the model in the index encodes QUERIES if it holds one.

    \b
    Example:
      hashgrove evaluate codes.npy queries.npy --model model.hashgrove --y-queries yq.npy --y-database yd.npy
    """
    with show_step(LOADING):
        from hashgrove.cli.items import open_database
    from hashgrove import evaluate as measure
    from hashgrove.cli.inputs import check_min_shared, read_rows_labels
    from hashgrove.cli.output import write_report

    chosen = settings.of("")
    index, items = open_database(codes, queries, model, n_jobs=n_jobs)
    of_database = read_rows_labels(y_database, rows=len(index), of=codes)
    of_queries = read_rows_labels(y_queries, rows=len(items.codes), of=queries)
    check_min_shared(chosen, of_database)
    how = {"y_queries": of_queries, "y_database": of_database, "model": items.encoder, "n_jobs": n_jobs, **chosen}
    with show_step("searching and measuring"):
        report = measure(index, items.codes, **how)
    write_report(report, style=style)
