"""Options that several commands share, and two checks of how a command was called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = [
    "POSITIVE",
    "SEED",
    "cluster",
    "columns",
    "csv_style",
    "ids",
    "json_style",
    "n_jobs",
    "port",
    "query_model",
    "refuse",
    "scheduler",
    "search_options",
    "was_given",
]

POSITIVE = click.IntRange(min=1)
SEED = click.IntRange(0, 2**32 - 1)

json_style = click.option("--json", "style", flag_value="json", default=None, help="Print JSON instead of a table.")
csv_style = click.option("--csv", "style", flag_value="csv", default=None, help="Print CSV instead of a table.")
n_jobs = click.option("--n-jobs", type=POSITIVE, show_default="all cores", help="Number of threads.")
ids = click.option("--ids", metavar="FILE", help="Text file with the ids of the items, one per line.")
query_model = click.option(
    "--model", metavar="MODEL", help="Model that encodes QUERIES, or that made them if they are packed codes."
)
scheduler = click.option(
    "--scheduler", metavar="ADDRESS", help="Dask scheduler, such as tcp://10.0.0.1:8786, whose workers share the work."
)
port = click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 for any free one."
)


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a search: number and order of the results, and where they go."""
    for decorate in reversed(
        (
            click.option("-k", type=POSITIVE, default=10, show_default=True, help="Number of nearest items per query."),
            click.option("--radius", type=click.IntRange(min=0), help="Find all items within this distance instead."),
            click.option(
                "--rerank",
                is_flag=True,
                help="Order the nearest items by the features in the index; an error if it keeps none.",
            ),
            click.option("--plain", is_flag=True, help="Rank by Hamming distance and id only."),
            click.option("--weights", is_flag=True, help="Weight each bit by the model's certainty about the query."),
            click.option("--html", metavar="FILE", help="Also write a page with the images."),
            json_style,
            csv_style,
            n_jobs,
        )
    ):
        command = decorate(command)
    return command


def columns(*, label: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add options that name the columns of a table."""
    options = [
        click.option("--id-column", metavar="NAME", help="Column of a .csv or .parquet file that has the ids."),
        click.option("--label-column", metavar="NAME", help="Column of a .csv or .parquet file that has the labels."),
        click.option(
            "--feature-columns",
            metavar="NAMES",
            help="Columns of a .csv or .parquet file that have the features, such as embedding or 'x*'; others are "
            "ignored. [default: all others]",
        ),
    ]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorate in reversed(options if label else [options[0], options[2]]):
            command = decorate(command)
        return command

    return add


def was_given(parameter: str) -> bool:
    """Whether the caller gave this parameter of the running command, rather than leave it at its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse(wrong: bool, message: str) -> None:
    """Refuse a ``wrong`` call of the running command, with exit code 2."""
    if wrong:
        raise click.UsageError(message, click.get_current_context())


def cluster(address: str | None) -> Any:
    """A client of a Dask scheduler, which is closed when the command ends; None without an address."""
    if address is None:
        return None
    from hashgrove.distributed import connect

    return click.get_current_context().with_resource(connect(address))
