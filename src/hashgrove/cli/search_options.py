"""Options of the commands that search an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hashgrove.cli import options

__all__ = ["ids_option", "result_options"]

ids_option = click.option("--ids", metavar="FILE", help="Text file with the ids of the items, one per line.")


def result_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how many results there are, how they are ordered and where they go."""
    for decorate in reversed(
        (
            click.option("-k", type=options.POSITIVE, default=10, show_default=True, help="Number of nearest items."),
            click.option("--radius", type=click.IntRange(min=0), help="Find all items within this distance instead."),
            click.option("--rerank", is_flag=True, help="Order the nearest items by the features in the index."),
            click.option("--margins", is_flag=True, help="Weight each bit by how sure the query is of it."),
            click.option("--html", metavar="FILE", help="Also write a page with the pictures."),
            options.json_style,
            options.csv_style,
            options.threads,
        )
    ):
        command = decorate(command)
    return command
