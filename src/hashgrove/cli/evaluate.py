"""The command ``hashgrove evaluate``."""

from __future__ import annotations

import click

from hashgrove.cli import options
from hashgrove.cli.signature import Settings, SignatureCommand, SignatureOption, signature_options

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
@click.option(
    "--labels", nargs=2, required=True, metavar="CODES QUERIES", help="Two files: classes or tags of CODES and QUERIES."
)
@options.query_model
@options.json_style
@options.csv_style
@options.threads
def evaluate(
    codes: str,
    queries: str,
    labels: tuple[str, str],
    model: str | None,
    style: str | None,
    n_jobs: int | None,
    settings: Settings,
) -> None:
    """Measure how well QUERIES find relevant CODES.

    An item is relevant to a query if both are of the same class or, for tags, if they share at least --min-shared
    tags. CODES may also be an index: then its labels are in ascending order of its ids, and the model in it encodes
    QUERIES if it holds one.

    \b
    Example:
      hashgrove evaluate codes.npy queries.npy --model model.hashgrove --labels yd.npy yq.npy
    """
    from hashgrove import FlatIndex
    from hashgrove import evaluate as measure
    from hashgrove.cli.indexing import open_for_queries
    from hashgrove.cli.inputs import check_min_shared, read_database, read_rows_labels
    from hashgrove.cli.output import write_report
    from hashgrove.index.manifest import is_index_folder

    chosen = settings.of("")
    if is_index_folder(codes):
        opened, items = open_for_queries(codes, queries, model, n_jobs=n_jobs)
        database, found = opened.codes, items.codes
    else:
        database, found = read_database(codes, queries, model, n_jobs=n_jobs)
    y_database = read_rows_labels(labels[0], rows=len(database), of=codes)
    y_query = read_rows_labels(labels[1], rows=len(found), of=queries)
    check_min_shared(chosen, y_database)
    report = measure(FlatIndex(database), found, y_queries=y_query, y_database=y_database, n_jobs=n_jobs, **chosen)
    write_report(report, style=style)
