"""The command ``hashgrove push``: items from a file or an index to another engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hashgrove.storage.columns import Columns

__all__ = ["push"]


@click.command()
@click.argument("items")
@click.option("--to", "url", required=True, metavar="URL", help="Where to send them, such as sqlite:///codes.db.")
@options.ids
@click.option("--model", metavar="MODEL", help="Model that encodes ITEMS, or that made them if they are codes.")
@options.columns()
@click.option("--replace", is_flag=True, help="Replace items that are there with other codes.")
@click.option("--batch", type=options.POSITIVE, default=10_000, show_default=True, help="Items per change.")
@options.n_jobs
def push(
    items: str,
    url: str,
    ids: str | None,
    model: str | None,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    replace: bool,
    batch: int,
    n_jobs: int | None,
) -> None:
    """Send items to another engine.

    An engine is a database or a file of another library. ITEMS is an index, a file of packed codes or, with --model,
    features or images. The digest of the model is stored with the codes, and items of another model are refused.

    Items that are there already with the same code are not sent again: a push that was interrupted goes on where it
    stopped, and one that is repeated changes nothing. Items that are there with another code are an error, unless
    --replace is given. Items that are there and not among ITEMS stay.

    Without --ids and --id-column, the id of a code is its row number, or its line in X.names.txt beside X.npy. Ids that
    are all written like integers become integers, unless the ids that are there are texts.

    \b
    Example:
      hashgrove push codes.npy --ids ids.txt --to sqlite:///codes.db
    """
    from hashgrove.index import connect
    from hashgrove.index.transfer import rows_to_send
    from hashgrove.runtime.progress import show_count
    from hashgrove.storage.columns import Columns
    from hashgrove.storage.formats import FileError

    columns = Columns.of(label_column, id_column, feature_columns)
    codes, names, digest = _read(items, ids, model, columns, n_jobs)
    with connect(url, n_bits=8 * codes.shape[1], model=digest) as index:
        if index.model is not None and digest is None:
            raise FileError(f"{items}: must be codes of the model of {index.place}. Say which made them by --model.")
        if len(index) and index.ids.dtype.kind == "U":
            names = names.astype(str)
        rows = rows_to_send(index, codes, ids=names)
        if not replace:
            _check_new(index, names[rows], items)
        with show_count("items", len(rows)) as show:
            for start in range(0, len(rows), batch):
                part = rows[start : start + batch]
                index.add(codes[part], ids=names[part], replace=replace, model=digest)
                show(start + len(part))
        click.echo(f"Sent {len(rows):,} of {len(codes):,} items; {index.place} has {len(index):,} now", err=True)


def _check_new(index: Any, ids: NDArray[Any], items: str) -> None:
    """Refuse items that the index has already."""
    from hashgrove.storage.formats import FileError

    there = ids[index.contains(ids)]
    if len(there):
        raise FileError(
            f"{items}: must be new items. Got {len(there):,} that {index.place} has with other codes, such as "
            f"{there[0]}; give --replace to replace them."
        )


def _read(
    items: str, ids: str | None, model: str | None, columns: Columns, n_jobs: int | None
) -> tuple[NDArray[np.uint8], NDArray[Any], str | None]:
    """The codes and ids of the items, and the digest of the model that made the codes, if it is known."""
    import numpy as np

    from hashgrove.cli.items import read_items
    from hashgrove.index import load_index
    from hashgrove.index.ids import check_ids
    from hashgrove.index.manifest import is_index_folder

    if is_index_folder(items):
        for_files = ids is not None or model is not None or columns.any_named
        options.refuse(for_files, "--ids, --model and columns are for files; an index holds ids and model.")
        opened = load_index(items)
        names, codes = opened.items()
        return codes, names, opened.model
    found = read_items(items, model, ids=ids, columns=columns, n_jobs=n_jobs)
    names = np.arange(len(found.codes)) if found.ids is None else check_ids(_as_integers(found.ids))
    return found.codes, names, None if found.encoder is None else found.encoder.digest


def _as_integers(lines: list[str]) -> list[int] | list[str]:
    """Lines as integers, if all of them are written like those that `hashgrove pull` writes."""
    try:
        numbers = [int(line) for line in lines]
    except ValueError:
        return lines
    return numbers if [str(number) for number in numbers] == lines else lines
