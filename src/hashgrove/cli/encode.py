"""The command ``hashgrove encode``."""

from __future__ import annotations

from pathlib import Path

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_step

__all__ = ["encode"]


@click.command()
@click.argument("model")
@click.argument("features")
@click.option("-o", "--output", required=True, metavar="CODES", help="File to write, .npy or .csv.")
@options.n_jobs
def encode(model: str, features: str, output: str, n_jobs: int | None) -> None:
    """Turn FEATURES into packed codes with a MODEL.

    The codes are a uint8 matrix with one row per item and eight bits per byte. The file does not say which model made
    them; the commands that read it take --model for that. If the model holds an extractor (see
    `train --features`), FEATURES may also be images: a folder, one image, a list of paths or an array, as for
    `hashgrove features`.

    \b
    Example:
      hashgrove encode model.hashgrove database.npy -o codes.npy
    """
    suffix = Path(output).suffix.lower()
    options.refuse(suffix not in (".npy", ".csv"), f"--output must end in .npy or .csv. Got {output!r}.")
    with show_step(LOADING):
        from hashgrove.cli.items import encode_file
    from hashgrove import load
    from hashgrove.cli.images import names_file, write_names
    from hashgrove.cli.inputs import check_output
    from hashgrove.features import ImageEncoder
    from hashgrove.metrics import describe_codes
    from hashgrove.storage.matrices import write_matrix

    check_output(output, inputs=(model, features))
    encoder = load(model)
    if isinstance(encoder, ImageEncoder):
        check_output(names_file(output), inputs=(model, features))
    items = encode_file(encoder, features, model=model, n_jobs=n_jobs, keep_features=False)
    write_matrix(output, items.codes)
    if items.ids is not None:
        write_names(output, items.ids)
    distinct, warning = describe_codes(items.codes)
    click.echo(f"Wrote {len(items.codes):,} codes of {items.codes.shape[1]} bytes to {output}; {distinct}", err=True)
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)
