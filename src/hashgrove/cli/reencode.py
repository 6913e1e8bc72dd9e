"""The command ``hashgrove reencode``."""

from __future__ import annotations

from typing import Any

import click

from hashgrove.cli import options
from hashgrove.runtime.progress import LOADING, show_count, show_step

__all__ = ["reencode"]


@click.command()
@click.argument("place", metavar="INDEX_OR_URL")
@click.argument("model", metavar="NEW_MODEL")
@click.option("--features", metavar="FILE", help="Features of the items, one row per item in their order, or by ids.")
@click.option("--images", is_flag=True, help="Read the images again: the ids of the items are their paths.")
@options.ids
@options.columns()
@click.option("--work", metavar="FOLDER", help="Folder for unfinished work. [default: beside INDEX]")
@options.n_jobs
def reencode(
    place: str,
    model: str,
    features: str | None,
    images: bool,
    ids: str | None,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    work: str | None,
    n_jobs: int | None,
) -> None:
    """Encode the items of an index again by a NEW_MODEL.

    INDEX_OR_URL is an index in a folder, or the URL of an engine. The items are encoded from the features that the
    index keeps, from --features, or from their --images. The old index can be searched meanwhile; the new one takes its
    place in one step when it is complete. Run the command again if it was interrupted: it goes on.

    \b
    Example:
      hashgrove reencode photos.hgi new.hashgrove
    """
    options.refuse(images and features is not None, "Give --features or --images, not both.")
    for_features = any(name is not None for name in (ids, id_column, label_column, feature_columns))
    options.refuse(for_features and features is None, "--ids and columns are for --features only.")
    options.refuse(ids is not None and id_column is not None, "Give --ids or --id-column, not both.")
    with show_step(LOADING):
        from hashgrove import connect, load_index
        from hashgrove import reencode as library
        from hashgrove.cli.items import is_url
    X, row_ids = None, None
    with connect(place, create=False) if is_url(place) else load_index(place) as index:
        n_items, texts = len(index), len(index) > 0 and index.ids.dtype.kind == "U"
        if images:
            X = [str(id_) for id_ in index.ids]
        shown = getattr(index, "place", place)
    if features is not None:
        X, row_ids = _read(features, ids, (label_column, id_column, feature_columns), texts=texts)
    with show_count("items", n_items) as show:
        done = library(place, model, X=X, ids=row_ids, work=work, n_jobs=n_jobs, on_items=show)
    resumed = f"; an earlier run had encoded {done.n_resumed:,} of them" if done.n_resumed else ""
    click.echo(f"{shown} has {done.n_items:,} items of the model {done.model[:12]} now{resumed}", err=True)


def _read(path: str, ids: str | None, columns: tuple[str | None, str | None, str | None], *, texts: bool) -> Any:
    """Features, and the ids of their rows as the index has them, or None."""
    import os

    from hashgrove.cli.images import names_file
    from hashgrove.cli.inputs import read_lines
    from hashgrove.storage.columns import Columns, read_rows
    from hashgrove.storage.formats import FileError

    rows = read_rows(path, Columns.of(*columns))
    names = None if rows.ids is None else [str(id_) for id_ in rows.ids.tolist()]
    file = ids or names_file(path)
    if names is None and (ids is not None or os.path.isfile(file)):
        names = read_lines(file)
    if names is None or texts:
        return rows.X, names
    try:
        return rows.X, [int(name) for name in names]
    except ValueError:
        raise FileError(f"{path}: the ids of the index are integers. Got text instead.") from None
