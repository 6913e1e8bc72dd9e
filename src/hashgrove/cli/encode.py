"""The command ``hashgrove encode``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hashgrove.encoders import Encoder
    from hashgrove.features import ImageEncoder
    from hashgrove.storage.columns import Columns

__all__ = ["encode"]

MAX_COUNTED = 2**18  # codes of which the different ones are counted


@click.command()
@click.argument("model")
@click.argument("features")
@click.option(
    "-o", "--output", required=True, metavar="CODES", help="File to write, .npy, .csv or .parquet; or a folder."
)
@options.columns()
@options.scheduler
@options.n_jobs
def encode(
    model: str,
    features: str,
    output: str,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    scheduler: str | None,
    n_jobs: int | None,
) -> None:
    """Turn FEATURES into packed codes with a MODEL.

    The codes are a uint8 matrix with one row per item and eight bits per byte, in .parquet one column of fixed-size
    binary. The file does not say which model made them; the commands that read it take --model for that. If the model
    holds an extractor (see `train --features`), FEATURES may also be images: a folder, one image, a list of paths or an
    array, as for `hashgrove features`.

    Files in .npy and .parquet may be larger than the memory. FEATURES may be a folder of such shards; if CODES has no
    ending, it is then a folder, too, with one file of codes per shard. Run the command again if it was interrupted: it
    keeps the shards that are finished. With --scheduler, the workers of a Dask cluster share them.

    Of a table, the options say which columns have the features. With --id-column, the ids are written to
    CODES.names.txt, and the whole table is read at once.

    \b
    Example:
      hashgrove encode model.hashgrove database.npy -o codes.npy
    """
    suffix = Path(output).suffix.lower()
    to_folder = suffix == "" and os.path.isdir(features)
    options.refuse(
        suffix not in (".npy", ".csv", ".parquet") and not to_folder,
        f"--output must end in .npy, .csv or .parquet, or be a folder if FEATURES is one. Got {output!r}.",
    )
    options.refuse(
        scheduler is not None and not to_folder,
        "--scheduler: FEATURES must be a folder of shards, which the workers share, and --output another folder.",
    )
    client = options.cluster(scheduler)
    with show_step(LOADING):
        from hashgrove.cli.items import encode_images
    from hashgrove import load
    from hashgrove.cli.images import names_file, read_image_input, write_names
    from hashgrove.cli.inputs import check_output
    from hashgrove.features import ImageEncoder
    from hashgrove.storage.columns import Columns
    from hashgrove.storage.streams import write_codes

    if not to_folder:
        check_output(output, inputs=(model, features))
    encoder = load(model)
    columns = Columns.of(label_column, id_column, feature_columns)
    if columns.any_named:
        options.refuse(to_folder, "Columns can be named for a file, not for a folder of shards.")
        _encode_table(encoder, features, output, model=model, columns=columns, n_jobs=n_jobs)
        return
    rows_encoder = encoder.encoder if isinstance(encoder, ImageEncoder) else encoder
    holds_rows = features.lower().endswith((".csv", ".parquet")) and not os.path.isdir(features)  # and never images
    if not isinstance(encoder, ImageEncoder) or holds_rows:
        _encode_features(rows_encoder, features, output, to_folder=to_folder, client=client, n_jobs=n_jobs)
        return
    options.refuse(to_folder, f"--output must end in .npy, .csv or .parquet for images. Got {output!r}.")
    check_output(names_file(output), inputs=(model, features))
    images = read_image_input(features, or_matrix=True)
    if not isinstance(images, list) and images.ndim == 2:
        _encode_features(rows_encoder, features, output, to_folder=False, n_jobs=n_jobs)
        return
    codes, _ = encode_images(encoder, images, n_jobs, keep_features=False)
    with write_codes(output, n_rows=len(codes), n_bytes=codes.shape[1], model=encoder.digest) as write:
        write(codes)
    if isinstance(images, list):
        write_names(output, images)
    _report(codes, len(codes), output, has_names=isinstance(images, list))


def _encode_table(
    encoder: Encoder | ImageEncoder, features: str, output: str, *, model: str, columns: Columns, n_jobs: int | None
) -> None:
    """Encode the rows of a table whose columns are named, and write their ids beside the codes."""
    from hashgrove.cli.images import names_file, write_names
    from hashgrove.cli.inputs import check_output
    from hashgrove.cli.items import encode_file
    from hashgrove.storage.streams import write_codes

    if columns.id is not None:
        check_output(names_file(output), inputs=(model, features))
    items = encode_file(encoder, features, model=model, columns=columns, n_jobs=n_jobs)
    codes = items.codes
    with write_codes(output, n_rows=len(codes), n_bytes=codes.shape[1], model=encoder.digest) as write:
        write(codes)
    if items.ids is not None:
        write_names(output, items.ids)
    _report(codes, len(codes), output, has_names=items.ids is not None)


def _encode_features(
    encoder: Encoder, features: str, output: str, *, to_folder: bool, client: Any = None, n_jobs: int | None
) -> None:
    """Encode a file, or the shards of a folder, in bounded memory."""
    import numpy as np

    from hashgrove.runtime.progress import show_count
    from hashgrove.storage.streams import open_rows
    from hashgrove.streaming import encode_file, encode_shard, plan_shards

    first: list[NDArray[np.uint8]] = []
    n_done = 0

    def count(codes: NDArray[np.uint8]) -> None:
        nonlocal n_done
        n_done += len(codes)
        if sum(map(len, first)) < MAX_COUNTED:
            first.append(codes)
        show(n_done)

    if not to_folder:
        rows = open_rows(features)
        with show_count("rows", rows.n_rows) as show:
            n_rows = encode_file(encoder, rows, output, n_jobs=n_jobs, on_codes=count)
        nothing = np.empty((0, -(-encoder.n_bits // 8)), np.uint8)
        _report(np.concatenate([nothing, *first]), n_rows, output, has_names=False)
        return
    shards = plan_shards(features, output)
    with show_count("shards", len(shards)) as show:
        if client is not None:
            from hashgrove.distributed import encode

            finished = encode(encoder, features, output, client=client, on_shard=show)
        else:
            finished = []
            for shard, target in shards:
                finished.append(encode_shard(encoder, shard, target, n_jobs=n_jobs))
                show(len(finished))
    n_rows, n_kept = sum(shard.n_rows for shard in finished), sum(shard.was_finished for shard in finished)
    kept = f"; {n_kept:,} were finished before" if n_kept else ""
    click.echo(f"{output} has {n_rows:,} codes in {len(shards):,} shards{kept}", err=True)


def _report(codes: NDArray[np.uint8], n_rows: int, output: str, *, has_names: bool) -> None:
    """Print how many codes were written, how many of the first ones differ, and whether there are names of others."""
    from hashgrove.cli.images import names_file
    from hashgrove.metrics import describe_codes

    counted = codes[:MAX_COUNTED]
    distinct, warning = describe_codes(counted)
    if len(counted) < n_rows:
        distinct = distinct.replace("among", "among the first")
    click.echo(f"Wrote {n_rows:,} codes of {codes.shape[1]} bytes to {output}; {distinct}", err=True)
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)
    names = names_file(output)
    if not has_names and os.path.exists(names):
        text = f"Warning: {names} is from before, and commands take it for the ids of {output}. Remove it if it is not."
        click.echo(text, err=True)
