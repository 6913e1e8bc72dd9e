"""The command ``hashgrove index``: build an index in a folder, change it, describe it and search it."""

from __future__ import annotations

import click

from hashgrove.cli import options
from hashgrove.cli.search_options import ids_option, result_options

__all__ = ["index"]

_folder = click.argument("folder", metavar="INDEX")
_model = click.option("--model", metavar="MODEL", help="Model that encodes ITEMS; without it they are packed codes.")


@click.group()
def index() -> None:
    """Build, change, describe and search an index.

    An index is a folder, such as photos.hgi. It is opened at once at any size, and a change that has been reported
    survives a crash.

    \b
    Example:
      hashgrove index build photos/ --network net.onnx -o photos.hgi
    """


@index.command()
@click.argument("items")
@click.option("-o", "--output", required=True, metavar="INDEX", help="Folder to write; an index there is replaced.")
@_model
@click.option("--network", metavar="FILE", help="ONNX network for images: its features are learned from and indexed.")
@click.option("--bits", type=options.POSITIVE, default=64, show_default=True, help="Bits of a code, with --network.")
@click.option("--labels-from-folders", is_flag=True, help="With --network: the folder of an image is its class.")
@click.option("--output-name", metavar="NAME", help="Output of the network, if it has several.")
@click.option("--size", type=options.POSITIVE, help="Side of the network's input, if the file leaves it open.")
@click.option("--mean", type=float, default=0.0, show_default=True, help="Mean of the pixels, for the network.")
@click.option("--std", type=float, default=1.0, show_default=True, help="Standard deviation of the pixels.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of what is learned.")
@ids_option
@click.option("--features/--no-features", "keep", default=True, help="Keep features in one byte each, for --rerank.")
@options.threads
def build(
    items: str,
    output: str,
    model: str | None,
    network: str | None,
    bits: int,
    labels_from_folders: bool,
    output_name: str | None,
    size: int | None,
    mean: float,
    std: float,
    seed: int,
    ids: str | None,
    keep: bool,
    n_jobs: int | None,
) -> None:
    """Index ITEMS: packed codes, features with --model, or images with --network or a model for images.

    With --network, codes are learned from the images themselves: from their folders with --labels-from-folders
    (FastHash), otherwise without labels (ITQ). Names of images become ids; so do names in X.names.txt beside X.npy.

    \b
    Example:
      hashgrove index build photos/ --network net.onnx -o photos.hgi
    """
    options.refuse(model is not None and network is not None, "Give --model or --network, not both.")
    options.refuse(labels_from_folders and network is None, "--labels-from-folders is for --network only.")
    from hashgrove.cli.indexing import learn_from_images, read_items, say_what_was_indexed, write_index

    if network is not None:
        settings = {"output": output_name, "image_size": size, "mean": mean, "std": std}
        found = learn_from_images(
            items, network, settings, n_bits=bits, by_folder=labels_from_folders, seed=seed, n_jobs=n_jobs
        )
    else:
        found = read_items(items, model, ids=ids, n_jobs=n_jobs)
    write_index(output, found, keep=keep)
    say_what_was_indexed(found, output)


@index.command()
@_folder
@click.argument("items")
@click.option("--model", metavar="MODEL", help="Model that encodes ITEMS, if the index holds none.")
@ids_option
@click.option("--replace", is_flag=True, help="Give items whose ids are in the index their new codes.")
@options.threads
def add(folder: str, items: str, model: str | None, ids: str | None, replace: bool, n_jobs: int | None) -> None:
    """Add ITEMS to an INDEX: packed codes, features or images, encoded by the model in the index.

    \b
    Example:
      hashgrove index add photos.hgi more-photos/
    """
    from hashgrove.cli.indexing import add_items, read_items, stored_model

    found = read_items(items, model or stored_model(folder), ids=ids, n_jobs=n_jobs)
    size = add_items(folder, found, replace=replace)
    click.echo(f"Added {len(found.codes):,} items; {folder} has {size:,} now", err=True)


@index.command()
@_folder
@click.argument("names", nargs=-1, metavar="[ID]...")
@ids_option
@click.option("--missing-ok", is_flag=True, help="Ignore ids that are not in the index.")
@click.option("--compact", is_flag=True, help="Free the room of removed items at once, by rewriting the files.")
def remove(folder: str, names: tuple[str, ...], ids: str | None, missing_ok: bool, compact: bool) -> None:
    """Remove items from an INDEX by their ids.

    \b
    Example:
      hashgrove index remove photos.hgi photos/blurred.jpg
    """
    options.refuse(bool(names) == (ids is not None) and not (compact and not names), "Give IDs or --ids.")
    from hashgrove.cli.indexing import as_ids, read_lines
    from hashgrove.index import load

    with load(folder, writable=True) as opened:
        wanted = as_ids(list(names) if ids is None else read_lines(ids), opened)
        n_removed = opened.remove(wanted, missing_ok=missing_ok)
        if compact:
            opened.compact()
        click.echo(f"Removed {n_removed:,} items; {folder} has {len(opened):,} now", err=True)


@index.command()
@_folder
@options.json_style
def info(folder: str, style: str | None) -> None:
    """Describe an INDEX: how many items, their ids and codes, the model, and whether codes have collapsed.

    \b
    Example:
      hashgrove index info photos.hgi
    """
    from hashgrove.cli.indexing import write_info

    write_info(folder, style=style)


@index.command()
@_folder
@click.argument("queries")
@click.option("--model", metavar="MODEL", help="Model that encodes QUERIES, if the index holds none.")
@result_options
def search(folder: str, queries: str, model: str | None, **how: object) -> None:
    """Find the nearest items of each query: QUERIES are packed codes, features or images.

    Results are sorted by distance and then by id.

    \b
    Example:
      hashgrove index search photos.hgi queries.npy -k 10 --json
    """
    from hashgrove.cli.neighbours import show_neighbours

    show_neighbours(folder, queries, model, **how)  # type: ignore[arg-type]
