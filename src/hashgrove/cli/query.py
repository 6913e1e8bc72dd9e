"""The command ``hashgrove query``: from a new image to its neighbours."""

from __future__ import annotations

from typing import Any

import click

from hashgrove.cli import options

__all__ = ["query"]


@click.command()
@click.argument("folder", metavar="INDEX")
@click.argument("images")
@options.search_options
def query(folder: str, images: str, **how: Any) -> None:
    """Find the neighbours of new images.

    IMAGES is one image, or a folder of them. The model in the INDEX encodes them; `hashgrove index build` puts it
    there. The nearest items by their codes are ordered by the features that the index keeps; --plain leaves them as the
    codes have them.

    \b
    Example:
      hashgrove query photos.hgi new.jpg -k 10 --html out.html
    """
    from hashgrove.cli.search import show_neighbours

    show_neighbours(folder, images, None, **how)
