"""The command ``hashgrove demo``."""

from __future__ import annotations

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_step

__all__ = ["demo"]


@click.command()
@click.option("-o", "--output", default="hashgrove-demo.png", show_default=True, help="Image to write.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of the split and of the models.")
@click.option("--serve", "serves", is_flag=True, help="Instead, index images of the digits and serve them on a page.")
@options.port
def demo(output: str, seed: int, serves: bool, port: int) -> None:
    """Train, search and evaluate on handwritten digits.

    Compares FastHash with ITQ, LSH and the sign of the centred features, all at 64 bits. Prints a table and, if
    matplotlib is installed, draws a figure. It needs no files and no network.

    With --serve, the digits are images in a browser instead: click one, and see which ones are similar.

    \b
    Example:
      hashgrove demo -o hashgrove-demo.png
    """
    options.refuse(serves and options.was_given("output"), "Give --output or --serve, not both.")
    options.refuse(options.was_given("port") and not serves, "--port is for --serve only.")
    if serves:
        _serve_digits(seed=seed, port=port)
    else:
        _compare(output, seed=seed)


def _compare(output: str, *, seed: int) -> None:
    with show_step(LOADING):
        from hashgrove.cli.digits import compare, draw, format_results
    from hashgrove.cli.inputs import check_output

    check_output(output, inputs=())
    click.echo("Training four methods on handwritten digits ...", err=True)
    digits, results = compare(seed=seed)
    click.echo(format_results(digits, results))
    try:
        draw(digits, results, output)
    except ImportError:
        click.echo("For the figure, install matplotlib: pip install 'hashgrove[plot]'", err=True)
    else:
        click.echo(f"Wrote {output}", err=True)


def _serve_digits(*, seed: int, port: int) -> None:
    import os
    import tempfile

    from hashgrove.cli.serve import check_installed, open_collection, serve_collections

    check_installed()
    with show_step(LOADING):
        from hashgrove.cli.digits import IMAGES, INDEX, index_digits

    with tempfile.TemporaryDirectory(prefix="hashgrove-demo-") as folder:
        click.echo("Training on 600 handwritten digits, and indexing the others ...", err=True)
        with show_step("computing features and learning codes"):
            index_digits(folder, seed=seed)
        images = os.path.join(folder, IMAGES)
        collection = open_collection(os.path.join(folder, INDEX), labels_from_folders=True, images=images)
        from hashgrove.web.server import Served

        serve_collections([Served(collection)], host="127.0.0.1", port=port, api_key=None, insecure=False)
