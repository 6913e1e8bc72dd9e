"""The command ``hashgrove info``."""

from __future__ import annotations

from pathlib import Path

import click

from hashgrove.cli import options

__all__ = ["info"]


@click.command()
@click.argument("file")
@options.json_style
def info(file: str, style: str | None) -> None:
    """Describe a FILE that hashgrove wrote.

    The file holds a model, an index or an extractor. Shows its kind, parameters, arrays and checksum. The arrays are
    not loaded, so the checksum is not verified.

    \b
    Example:
      hashgrove info model.hashgrove
    """
    from hashgrove.cli.output import write_header
    from hashgrove.storage.modelfile import read_header

    fields = read_header(file)
    write_header(file, Path(file).stat().st_size, fields, style=style)
