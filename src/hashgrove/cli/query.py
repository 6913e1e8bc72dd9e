"""The command ``hashgrove query``: from a new picture to its neighbours."""

from __future__ import annotations

import click

from hashgrove.cli.search_options import result_options

__all__ = ["query"]


@click.command()
@click.argument("folder", metavar="INDEX")
@click.argument("images")
@result_options
def query(folder: str, images: str, **how: object) -> None:
    """Find the items of an INDEX that are nearest to new IMAGES: one image, or a folder of them.

    The model in the index encodes them; `hashgrove index build` puts it there.

    \b
    Example:
      hashgrove query photos.hgi new.jpg -k 10 --html out.html
    """
    from hashgrove.cli.neighbours import show_neighbours

    show_neighbours(folder, images, None, **how)  # type: ignore[arg-type]
