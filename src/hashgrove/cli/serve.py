"""The command ``hashgrove serve``, and the functions by which ``hashgrove demo --serve`` serves an index as well."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.runtime.credentials import hide_credentials
from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hashgrove.web.collection import Collection

__all__ = ["check_installed", "open_collection", "serve", "serve_collection"]

KEY = "HASHGROVE_API_KEY"


@click.command()
@click.argument("place", metavar="INDEX")
@click.option("--model", metavar="MODEL", help="Model that encodes queries, if the index holds none.")
@click.option("--labels", metavar="FILE", help="Labels of the items, in the order in which they were added.")
@click.option("--labels-from-folders", is_flag=True, help="The folder of an image is its label.")
@click.option("--fields", metavar="FILE", help=".csv file of fields to show, with a column 'id'.")
@click.option("--images", metavar="FOLDER", help="Images, whose names are the ids of the items.")
@click.option("--read-only", is_flag=True, help="Refuse to add and remove items.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@options.port
@click.option("--api-key", envvar=KEY, help=f"Key that clients must send. Better set as ${KEY}.")
@click.option(
    "--connections-per-address",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Connections of one client; 0 means no limit, for a proxy that all clients come through.",
)
@click.option("--insecure", is_flag=True, help="Let anyone who reaches --host in, without a key.")
def serve(
    place: str,
    labels: str | None,
    labels_from_folders: bool,
    host: str,
    port: int,
    api_key: str | None,
    insecure: bool,
    connections_per_address: int,
    **known: Any,
) -> None:
    """Serve an index over HTTP.

    Programs search it by requests, and people on a page. INDEX is a folder that `hashgrove index build` made, or the
    URL of an engine. Only this machine is served, unless --host says otherwise; then a key is needed. Ctrl+C stops the
    service.

    \b
    Example:
      hashgrove serve photos.hgi --port 8000
    """
    options.refuse(labels is not None and labels_from_folders, "Give --labels or --labels-from-folders, not both.")
    where: dict[str, Any] = {"host": host, "port": port, "api_key": api_key, "insecure": insecure}
    _check_open(**where)
    with show_step(f"opening {hide_credentials(place)}"):
        collection = open_collection(place, labels=labels, labels_from_folders=labels_from_folders, **known)
    serve_collection(collection, connections_per_address=connections_per_address or None, **where)


def _check_open(*, host: str, api_key: str | None, insecure: bool, **_: Any) -> None:
    """Refuse a call that would let strangers in."""
    check_installed()
    from hashgrove.web.guard import is_loopback

    strangers = not is_loopback(host) and not api_key and not insecure
    options.refuse(strangers, f"--host {host} lets other machines in. Give --api-key, or --insecure to let anyone in.")
    options.refuse(api_key == "", "--api-key must not be empty.")


def serve_collection(
    collection: Collection,
    *,
    host: str,
    port: int,
    api_key: str | None,
    insecure: bool,
    connections_per_address: int | None = 256,
) -> None:
    """Serve until Ctrl+C, and say where."""
    _check_open(host=host, port=port, api_key=api_key, insecure=insecure)
    with show_step(LOADING):
        from hashgrove.web.server import run

    with show_step("preparing for the first request"):
        collection.warm_up()

    def say(url: str) -> None:
        click.echo(f"Serving {len(collection.index):,} items at {url} (stop with Ctrl+C)", err=True)

    run(collection, host=host, port=port, key=api_key, connections_per_address=connections_per_address, ready=say)
    click.echo("Stopped", err=True)


def open_collection(
    place: str,
    *,
    model: str | None = None,
    labels: str | None = None,
    labels_from_folders: bool = False,
    fields: str | None = None,
    images: str | None = None,
    read_only: bool = False,
) -> Collection:
    """Open an index and everything that is known about its items.

    Parameters
    ----------
    place : str
        The folder of an index, or the URL of an engine.
    model : str, optional
        File of the model, if the index holds none.
    labels : str, optional
        File with one label per item, in the order in which the items were added.
    labels_from_folders : bool
        Whether the name of the folder in an image's path is its label.
    fields : str, optional
        Table of fields of the items, whose ids are in the column "id"; "label" and "name" may be among the fields.
    images : str, optional
        Folder with an image per item; without it, the images that the index was built from.
    read_only : bool
    """
    check_installed()
    import numpy as np

    from hashgrove.web.collection import Collection
    from hashgrove.web.details import Details, read_fields
    from hashgrove.web.images import images_in_folder, remembered_images

    collection = Collection.open(place, model=model, read_only=read_only)
    try:
        needs_ids = labels is not None or labels_from_folders or fields is not None
        if needs_ids:
            ids = collection.contents()[0]
            columns = {} if fields is None else read_fields(fields, ids)
            found = columns.pop("label", None)
            known = _labels(ids, labels, labels_from_folders, of=place)
            if known is None and found is not None:
                known = np.array(found, np.str_)
            collection = replace(collection, details=Details(ids, labels=known, columns=columns))
        find = images_in_folder(images) if images is not None else remembered_images(place)
        return replace(collection, find_image=find)
    except BaseException:
        collection.index.close()
        raise


def _labels(ids: NDArray[Any], file: str | None, from_folders: bool, *, of: str) -> NDArray[np.str_] | None:
    import numpy as np

    from hashgrove.storage.formats import FileError

    if from_folders:
        names = [os.path.basename(os.path.dirname(str(id_))) for id_ in ids.tolist()]
        if not any(names):
            raise FileError(f"{of}: must have paths of images as ids for --labels-from-folders. It has none.")
        return np.array(names, np.str_)
    if file is None:
        return None
    from hashgrove.cli.inputs import read_rows_labels  # it loads everything that a model needs

    labels = read_rows_labels(file, rows=len(ids), of=of, may_be_missing=True)
    if labels.ndim != 1:
        raise FileError(f"{file}: must have one label per item. Got tags of shape {labels.shape}.")
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), np.bool_)
    whole = labels.dtype.kind == "f" and bool((labels[~missing] == np.trunc(labels[~missing])).all())
    texts = [str(int(label)) if whole else str(label) for label in labels[~missing].tolist()]
    shown = np.full(len(labels), "", np.array(texts, np.str_).dtype if texts else "<U1")
    shown[~missing] = texts
    return shown


def check_installed() -> None:
    """Raise an error of one line if packages of the service are missing."""
    from hashgrove.storage.formats import FileError

    if not all(find_spec(name) for name in ("fastapi", "httptools", "python_multipart", "uvicorn")):
        raise FileError("The service needs more packages: pip install 'hashgrove[serve]'")
