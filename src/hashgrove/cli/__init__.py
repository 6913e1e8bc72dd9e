"""The command line: one file per command, which is imported when it is used.

To add a command NAME, write ``cli/NAME.py`` with a click command called NAME and add NAME to `COMMANDS`. A command
imports the library inside its function, so that the help and the version come at once.
"""

from __future__ import annotations

import click

from hashgrove._version import __version__
from hashgrove.cli.program import Program

__all__ = ["COMMANDS", "main"]

COMMANDS = (
    "demo",
    "features",
    "train",
    "info",
    "encode",
    "search",
    "evaluate",
    "drift",
    "index",
    "reencode",
    "query",
    "duplicates",
    "push",
    "pull",
    "serve",
)


@click.group(
    cls=Program,
    names=COMMANDS,
    invoke_without_command=True,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="hashgrove")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn compact binary codes from labels, tags or pairs, and search them by Hamming distance.

    Features, labels and codes are .npy, .npz, .csv or .parquet files. Write file.npz:name for one array of an .npz
    file that holds several.

    \b
    Example:
      hashgrove demo
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
