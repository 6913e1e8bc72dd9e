"""The command ``hashgrove demo``."""

from __future__ import annotations

import click

from hashgrove.cli import options

__all__ = ["demo"]


@click.command()
@click.option("-o", "--output", default="hashgrove-demo.png", show_default=True, help="Picture to write.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of the split and of the models.")
def demo(output: str, seed: int) -> None:
    """Train, search and evaluate on handwritten digits.

    Compares FastHash with ITQ, LSH and the sign of the centred features, all at 64 bits. Prints a table and, if
    matplotlib is installed, draws a picture. It needs no files and no network.

    \b
    Example:
      hashgrove demo -o hashgrove-demo.png
    """
    from hashgrove.cli.comparison import compare, draw, format_results
    from hashgrove.cli.inputs import check_output

    check_output(output, inputs=())
    click.echo("Training four methods on handwritten digits ...", err=True)
    digits, results = compare(seed=seed)
    click.echo(format_results(digits, results))
    try:
        draw(digits, results, output)
    except ImportError:
        click.echo("For the picture, install matplotlib: pip install 'hashgrove[plot]'", err=True)
    else:
        click.echo(f"Wrote {output}", err=True)
