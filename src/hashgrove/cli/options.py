"""Options that several commands share, and two checks of how a command was called."""

from __future__ import annotations

import click

__all__ = [
    "POSITIVE",
    "SEED",
    "csv_style",
    "json_style",
    "query_model",
    "refuse",
    "threads",
    "was_given",
]

POSITIVE = click.IntRange(min=1)
SEED = click.IntRange(0, 2**32 - 1)

json_style = click.option("--json", "style", flag_value="json", default=None, help="Print JSON instead of a table.")
csv_style = click.option("--csv", "style", flag_value="csv", default=None, help="Print CSV instead of a table.")
threads = click.option("--threads", "n_jobs", type=POSITIVE, help="Number of threads; all cores if not given.")
query_model = click.option(
    "--model", metavar="MODEL", help="Model that encodes QUERIES; without it QUERIES must be packed codes."
)


def was_given(parameter: str) -> bool:
    """Whether the caller gave this parameter of the running command, rather than leave it at its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse(wrong: bool, message: str) -> None:
    """Refuse a ``wrong`` call of the running command, with exit code 2."""
    if wrong:
        raise click.UsageError(message, click.get_current_context())
