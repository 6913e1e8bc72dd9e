"""The command ``hashgrove pull``: codes from another engine to a file or an index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pull"]


@click.command()
@click.argument("url")
@click.option("-o", "--output", required=True, metavar="FILE", help="Index to write (.hgi), or codes (.npy or .csv).")
@click.option("--ids", metavar="FILE", help="Text file to write the ids of the codes to, one per line.")
def pull(url: str, output: str, ids: str | None) -> None:
    """Fetch all items from an engine.

    They are written to an index or to a file of codes. URL says where the engine is, such as sqlite:///codes.db.
    Items are in the order in which they were added. An output that exists is replaced when all items have arrived, so
    a pull that is interrupted leaves it as it is.

    \b
    Example:
      hashgrove pull sqlite:///codes.db -o codes.hgi
    """
    suffix = os.path.splitext(output)[1].lower()
    options.refuse(suffix not in (".hgi", ".npy", ".csv"), f"--output must end in .hgi, .npy or .csv. Got {output!r}.")
    options.refuse(suffix == ".hgi" and ids is not None, "--ids is for codes only; an index holds the ids.")
    from hashgrove.cli.inputs import check_output
    from hashgrove.index import build_index, connect
    from hashgrove.storage.matrices import write_matrix

    for path, others in ((ids, (output,)), (None if suffix == ".hgi" else output, ())):
        if path is not None:
            check_output(path, inputs=(), outputs=others)
    with connect(url, create=False) as index:
        found, codes = index.items()
        if suffix == ".hgi":
            build_index(codes, ids=found).save(output)
        else:
            options.refuse(ids is None and not _are_row_numbers(found), "--ids must be given: ids are no row numbers.")
            if ids is not None:
                _write_ids(ids, found)
            write_matrix(output, codes)
    click.echo(f"Wrote {len(codes):,} items of {codes.shape[1]} bytes to {output}", err=True)


def _are_row_numbers(ids: NDArray[Any]) -> bool:
    return ids.dtype.kind == "i" and ids.tolist() == list(range(len(ids)))


def _write_ids(path: str, ids: NDArray[Any]) -> None:
    from hashgrove.storage.atomic import atomic_write
    from hashgrove.storage.formats import FileError

    lines = [str(i) for i in ids.tolist()]
    broken = [line for line in lines if line.splitlines() != [line]]
    if broken:
        raise FileError(f"{path}: ids must fit on one line each. Got {broken[0]!r}; write an index (.hgi) instead.")
    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
