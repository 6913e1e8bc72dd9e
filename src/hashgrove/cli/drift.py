"""The command ``hashgrove drift``."""

from __future__ import annotations

import json

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_step

__all__ = ["drift"]


@click.command()
@click.argument("model", metavar="MODEL_OR_INDEX")
@click.argument("rows", metavar="NEW_ROWS")
@options.columns()
@options.json_style
@options.n_jobs
def drift(
    model: str,
    rows: str,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    style: str | None,
    n_jobs: int | None,
) -> None:
    """Say whether new rows are still like those that a model learned from.

    MODEL_OR_INDEX is a model file, or an index that holds its model. NEW_ROWS are features, or images for a model that
    takes images; a hundred or more, as they come. They need no labels. Shown are the share of new rows that are far
    from all that the model remembers, the distance to the nearest, and how much the share of ones changed, and whether
    to train anew. Models of `train --validate` compare with rows that were held out, and can tell best.

    \b
    Example:
      hashgrove drift model.hashgrove new.npy
    """
    with show_step(LOADING):
        from hashgrove.cli.items import encode_file, stored_model
    from hashgrove import load, measure_drift
    from hashgrove.index.manifest import is_index_folder
    from hashgrove.storage.columns import Columns
    from hashgrove.storage.formats import FileError

    file = stored_model(model) if is_index_folder(model) else model
    if file is None:
        raise FileError(f"{model}: must hold its model. It does not; give the model file.")
    columns = Columns.of(label_column, id_column, feature_columns)
    items = encode_file(load(file), rows, model=file, columns=columns, n_jobs=n_jobs)
    assert items.features is not None
    found = measure_drift(file, items.features, n_jobs=n_jobs)
    click.echo(json.dumps(found.to_dict(), indent=2) if style == "json" else str(found))
