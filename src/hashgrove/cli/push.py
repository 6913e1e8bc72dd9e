"""The command ``hashgrove push``: codes from a file or an index to another engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.cli.search_options import ids_option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["push"]


@click.command()
@click.argument("items")
@click.option("--to", "url", required=True, metavar="URL", help="Where to send them, such as sqlite:///codes.db.")
@ids_option
@click.option("--model", metavar="MODEL", help="Model that made the codes; its digest is stored with them.")
@click.option("--batch", type=options.POSITIVE, default=10_000, show_default=True, help="Items per change.")
def push(items: str, url: str, ids: str | None, model: str | None, batch: int) -> None:
    """Send ITEMS, packed codes or an index, to a database or to a file of another library.

    Items that are there already with the same code are not sent again: a push that was interrupted goes on where it
    stopped, and one that is repeated changes nothing. Items that are there and not among ITEMS stay.

    Without --ids, the id of a code is its row number, or its line in X.names.txt beside X.npy. Ids that are all written
    like integers become integers, unless the ids that are there are texts.

    \b
    Example:
      hashgrove push codes.npy --ids ids.txt --to sqlite:///codes.db
    """
    from hashgrove.index import connect
    from hashgrove.index.transfer import rows_to_send
    from hashgrove.runtime.progress import show_count

    codes, names, digest = _read(items, ids, model)
    with connect(url, n_bits=8 * codes.shape[1], model=digest) as index:
        if len(index) and index.ids.dtype.kind == "U":
            names = names.astype(str)
        rows = rows_to_send(index, codes, ids=names)
        with show_count("items", len(rows)) as show:
            for start in range(0, len(rows), batch):
                part = rows[start : start + batch]
                index.update(codes[part], ids=names[part], insert=True)
                show(start + len(part))
        click.echo(f"Sent {len(rows):,} of {len(codes):,} items; {index.place} has {len(index):,} now", err=True)


def _read(items: str, ids: str | None, model: str | None) -> tuple[NDArray[np.uint8], NDArray[Any], str | None]:
    """The codes and ids of what is to be sent, and the digest of the model that made the codes, if it is known."""
    import numpy as np

    from hashgrove import index as indexes
    from hashgrove import load
    from hashgrove.cli.indexing import read_items
    from hashgrove.index.ids import check_ids
    from hashgrove.index.manifest import is_index_folder
    from hashgrove.index.transfer import all_items

    if is_index_folder(items):
        options.refuse(ids is not None or model is not None, "--ids and --model are for codes; an index holds both.")
        opened = indexes.load(items)
        names, codes = all_items(opened)
        return codes, names, opened.model
    found = read_items(items, None, ids=ids, n_jobs=None)
    names = np.arange(len(found.codes)) if found.ids is None else check_ids(_as_integers(found.ids))
    return found.codes, names, None if model is None else load(model).digest


def _as_integers(lines: list[str]) -> list[int] | list[str]:
    """Lines as integers, if all of them are written like those that `hashgrove pull` writes."""
    try:
        numbers = [int(line) for line in lines]
    except ValueError:
        return lines
    return numbers if [str(number) for number in numbers] == lines else lines
