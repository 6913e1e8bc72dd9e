"""The command ``hashgrove duplicates``."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING

import click

from hashgrove.cli import options
from hashgrove.cli.signature import Settings, SignatureCommand, SignatureOption, signature_options
from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    from hashgrove.duplicates import Duplicates

__all__ = ["duplicates"]

COLUMNS = ("group", "", "bits", "picture")


def _network_options() -> list[SignatureOption]:
    """Options of a network."""
    from hashgrove.features import OnnxFeatures

    names = ("output", "image_size", "preprocess", "mean", "std", "channels", "layout")
    return signature_options({"": OnnxFeatures}, only=names)


@click.command(cls=SignatureCommand, derive=_network_options)
@click.argument("images")
@click.option("--network", metavar="FILE", help="ONNX network, best one for copies: compare its features instead.")
@click.option(
    "--radius", type=click.IntRange(min=0), help="Largest distance of duplicates, in bits. [default: measured]"
)
@click.option("--html", metavar="FILE", help="Also write a page with the groups, side by side.")
@click.option("--list", "remove", metavar="FILE", help="Also write the files to remove, one per line.")
@options.json_style
@options.csv_style
@options.n_jobs
def duplicates(
    images: str,
    network: str | None,
    radius: int | None,
    html: str | None,
    remove: str | None,
    style: str | None,
    n_jobs: int | None,
    settings: Settings,
) -> None:
    """Find near-duplicates among pictures.

    IMAGES is a folder, which is searched with all folders in it, or a text file with one path per line. Copies that
    were saved again, resized, brightened or cut a little count as duplicates. No labels and no network are needed; with
    --network, pictures are compared by its features. Of each group the largest picture is kept, and nothing is removed:
    look at --html first, and remove the files of --list yourself.

    The radius is measured: altered copies that are made of some of the pictures say how far copies are, and mirror
    images, which are no copies, how near others come by chance. Both are printed.

    \b
    Example:
      hashgrove duplicates photos/ --html duplicates.html --list remove.txt
    """
    foreign = settings.flags_not_of() if network is None else []
    options.refuse(bool(foreign), f"{' and '.join(foreign)}: for --network only.")
    with show_step(LOADING):
        from hashgrove.duplicates import find_duplicates
        from hashgrove.features import OnnxFeatures
    from hashgrove.cli.images import read_image_input
    from hashgrove.cli.inputs import check_output
    from hashgrove.storage.atomic import atomic_write
    from hashgrove.storage.formats import FileError

    for output, others in ((html, (remove,)), (remove, ())):
        if output is not None:
            check_output(output, inputs=(images, network), outputs=others)
    paths = read_image_input(images)
    if not isinstance(paths, list):
        raise FileError(f"{images}: must be a folder or a list of pictures. Got an array.")
    extractor = None if network is None else OnnxFeatures(network, **settings.of(""), n_jobs=n_jobs)
    found = find_duplicates(paths, network=extractor, radius=radius, n_jobs=n_jobs, verbose=1)
    _write(found, style)
    if html is not None:
        _write_page(html, found, images)
        click.echo(f"Wrote {html}", err=True)
    if remove is not None:
        with atomic_write(remove) as file:
            file.write("".join(f"{path}\n" for path in found.to_remove).encode(errors="surrogateescape"))
        click.echo(f"Wrote {len(found.to_remove):,} files to remove to {remove}", err=True)
    click.echo(str(found), err=True)


def _write(found: Duplicates, style: str | None) -> None:
    """Print the groups: a line for each picture."""
    from hashgrove.cli.output import format_table, printable

    if style == "json":
        groups = [vars(group) for group in found.groups]
        print(json.dumps({"radius": found.radius, "bits": found.n_bits, "groups": groups}, indent=2))
        return
    rows = [
        (str(number), kind, str(distance), path)
        for number, group in enumerate(found.groups)
        for kind, distance, path in (
            ("keep", 0, group.kept),
            *(("remove", *pair) for pair in zip(group.distances, group.removed, strict=True)),
        )
    ]
    if style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("group", "action", "bits", "picture"))
        writer.writerows(rows)
    elif rows:
        table = format_table(COLUMNS, [(*row[:3], printable(row[3])) for row in rows], n_left=4)
        print("\n".join(line.rstrip() for line in table.splitlines()))


def _write_page(path: str, found: Duplicates, images: str) -> None:
    import numpy as np

    from hashgrove.cli.page import write_page

    hits = [(number, np.array(group.distances), np.array(group.removed)) for number, group in enumerate(found.groups)]
    kept = [group.kept for group in found.groups]
    write_page(path, hits, names=kept, title=f"Near-duplicates in {images}", caption="keep")
