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
    not loaded, so the checksum is not verified. If FILE is the folder of an index, or the URL of an engine, this is
    `hashgrove index info`.

    \b
    Example:
      hashgrove info model.hashgrove
    """
    from hashgrove.index.manifest import is_index_folder

    if "://" in file or is_index_folder(file):
        from hashgrove.cli.index import write_info

        write_info(file, style=style)
        return
    from hashgrove.cli.output import write_header
    from hashgrove.storage.modelfile import read_header

    fields = read_header(file)
    write_header(file, Path(file).stat().st_size, fields, style=style)
