"""The command ``hashgrove info``."""

from __future__ import annotations

from pathlib import Path

import click

from hashgrove.cli import options

__all__ = ["info"]


@click.command()
@click.argument("file")
@options.json_style
@click.option("--card", is_flag=True, help="Print a model card instead: a short page of Markdown.")
def info(file: str, style: str | None, card: bool) -> None:
    """Describe a FILE that hashgrove wrote.

    The file holds a model, an index or an extractor. Shows its kind, parameters, arrays and checksum. The arrays are
    not loaded, so the checksum is not verified. If FILE is the folder of an index, or the URL of an engine, this is
    `hashgrove index info`.

    A model card says what the model learned from, why its hash function was chosen, how good its codes are on held-out
    rows, how to use it, and what it cannot do.

    \b
    Example:
      hashgrove info model.hashgrove
    """
    options.refuse(card and style is not None, "Give --card or --json, not both.")
    if card:
        _print_card(file)
        return
    from hashgrove.index.manifest import is_index_folder

    if "://" in file or is_index_folder(file):
        from hashgrove.cli.index import write_info

        write_info(file, style=style)
        return
    from hashgrove.cli.output import write_header
    from hashgrove.storage.modelfile import read_header

    fields = read_header(file)
    write_header(file, Path(file).stat().st_size, fields, style=style)


def _print_card(file: str) -> None:
    """Print the card of a model, or of the model that an index holds."""
    from hashgrove.cards import model_card
    from hashgrove.cli.items import stored_model
    from hashgrove.index.manifest import is_index_folder
    from hashgrove.storage.formats import FileError

    path = stored_model(file) if is_index_folder(file) else file
    if path is None:
        raise FileError(f"{file}: must hold its model for --card. It does not; give the model file.")
    click.echo(model_card(path), nl=False)
