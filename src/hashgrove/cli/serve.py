"""The command ``hashgrove serve``, and the functions by which ``hashgrove demo --serve`` serves an index as well."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
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
    from hashgrove.web.details import Details
    from hashgrove.web.images import FindImage
    from hashgrove.web.server import Served

__all__ = ["check_installed", "open_collection", "serve", "serve_collections"]

KEY = "HASHGROVE_API_KEY"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = {"health"}  # paths of the service as a whole
ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


@click.command()
@click.argument("places", metavar="INDEX...", nargs=-1, required=True)
@click.option("--model", metavar="MODEL", help="Model that encodes queries, if the index holds none.")
@click.option("--labels", metavar="FILE", help="Labels of the items, in the order in which they were added.")
@click.option("--labels-from-folders", is_flag=True, help="The folder of an image is its label.")
@click.option("--fields", metavar="FILE", help=".csv file of fields to show, with a column 'id'.")
@click.option("--images", metavar="FOLDER", help="Images, whose names are the ids of the items.")
@click.option("--read-only", is_flag=True, help="Refuse to add and remove items; show those that others add.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@options.port
@click.option(
    "--workers", type=options.POSITIVE, default=1, show_default=True, help="Number of processes; with --read-only."
)
@click.option("--api-key", envvar=KEY, help=f"Key that clients must send. Better set as ${KEY}.")
@click.option("--access-log", is_flag=True, help="Write a line for each request to the standard error stream.")
@click.option(
    "--connections-per-address",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Connections of one client; 0 means no limit, for a proxy that all clients come through.",
)
@click.option(
    "--host-name",
    "host_names",
    metavar="NAME",
    multiple=True,
    help="Name by which a proxy on this machine is called; may be repeated.",
)
@click.option("--root-path", default="", metavar="PATH", help="Path under which a proxy shows the service.")
@click.option("--proxy", metavar="ADDRESS", help="Address of a proxy, whose X-Forwarded-For the access log believes.")
@click.option("--insecure", is_flag=True, help="Let anyone who reaches --host in, without a key.")
def serve(places: tuple[str, ...], workers: int, host: str, port: int, **settings: Any) -> None:
    """Serve indexes over HTTP.

    Programs search them by requests, and people on a page. INDEX is a folder that `hashgrove index build` made, or the
    URL of an engine. If there are several, the paths of each begin with its name, which is that of its folder; another
    is given as NAME=INDEX. Only this machine is served, unless --host says otherwise; then a key is needed. Ctrl+C
    stops the service.

    \b
    Examples:
      hashgrove serve photos.hgi --port 8000
      hashgrove serve photos.hgi texts=articles.hgi --read-only --workers 2
    """
    labels, from_folders = settings["labels"], settings["labels_from_folders"]
    options.refuse(labels is not None and from_folders, "Give --labels or --labels-from-folders, not both.")
    for_one = [name for name in ("model", "labels", "fields", "images") if settings[name] is not None]
    options.refuse(len(places) > 1 and bool(for_one), f"--{' and --'.join(for_one)}: for one index only.")
    options.refuse(workers > 1 and not settings["read_only"], "--workers is for --read-only: one process can write.")
    root_path = settings["root_path"]
    options.refuse(
        root_path != "" and not ROOT_PATH.fullmatch(root_path),
        f"--root-path must be a path such as /codes, without a slash at its end. Got {root_path!r}.",
    )
    _check_open(host=host, api_key=settings["api_key"], insecure=settings["insecure"])
    settings |= {"places": dict(_named(places)), "host": host}
    if workers == 1:
        _serve(**settings, port=port)
    else:
        with show_step(LOADING):
            from hashgrove.web.workers import run_workers

        def say(url: str) -> None:
            click.echo(f"Serving at {url} by {workers} workers (stop with Ctrl+C)", err=True)

        run_workers(workers, _serve_worker, settings, host=host, port=port, ready=say)
    click.echo("Stopped", err=True)


def _named(places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Names and places of the indexes."""
    names: set[str] = set()
    for given in places:
        name, equals, place = given.partition("=")
        if not (equals and NAME.fullmatch(name)):
            place = given
            name = os.path.splitext(os.path.basename(place.partition("?")[0].rstrip("/")))[0]
        wrong = len(places) > 1 and (name in names or not NAME.fullmatch(name) or name in RESERVED)
        advice = "Give another one as NAME=INDEX, of letters, digits, '.', '_' and '-'."
        options.refuse(wrong, f"{hide_credentials(given)}: cannot be called {name!r}, or another one is. {advice}")
        names.add(name)
        yield name, place


def _check_open(*, host: str, api_key: str | None, insecure: bool) -> None:
    """Refuse a call that would let strangers in."""
    check_installed()
    from hashgrove.web.guard import is_loopback

    strangers = not is_loopback(host) and not api_key and not insecure
    options.refuse(strangers, f"--host {host} lets other machines in. Give --api-key, or --insecure to let anyone in.")
    options.refuse(api_key == "", "--api-key must not be empty.")


def _serve_worker(**settings: Any) -> None:
    """Serve in one of several processes; an error is one line."""
    try:
        _serve(**settings)
    except (OSError, ValueError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None


def _serve(
    places: dict[str, str],
    *,
    model: str | None,
    labels: str | None,
    labels_from_folders: bool,
    fields: str | None,
    images: str | None,
    read_only: bool,
    **how: Any,
) -> None:
    """Open indexes and serve them."""
    known: dict[str, Any] = {"model": model, "labels": labels, "labels_from_folders": labels_from_folders}
    known |= {"fields": fields, "images": images, "read_only": read_only}
    with show_step(LOADING):
        from hashgrove.web.server import Served
    served = []
    for name, place in places.items():
        reopen = partial(open_collection, place, **known)
        with show_step(f"opening {hide_credentials(place)}"):
            served.append(Served(reopen(), name, reopen))
    serve_collections(served, **how)


def serve_collections(
    served: Sequence[Served],
    *,
    host: str,
    port: int = 0,
    api_key: str | None,
    insecure: bool,
    connections_per_address: int = 256,
    ready: Callable[[str], None] | None = None,
    **how: Any,
) -> None:
    """Serve until Ctrl+C, and say where."""
    _check_open(host=host, api_key=api_key, insecure=insecure)
    with show_step(LOADING):
        from hashgrove.web.server import run
        from hashgrove.web.warming import warm_up

    with show_step("preparing for the first request"):
        for one in served:
            warm_up(one.collection)

    def say(url: str) -> None:
        items = f"{sum(len(one.collection.index) for one in served):,} items"
        what = items if len(served) == 1 else f"{items} in {len(served)} indexes"
        click.echo(f"Serving {what} at {url} (stop with Ctrl+C)", err=True)

    per_address = connections_per_address or None
    run(*served, host=host, port=port, key=api_key, connections_per_address=per_address, ready=ready or say, **how)


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
    from hashgrove.web.opening import open_index

    collection = open_index(place, model=model, read_only=read_only)
    try:
        file_labels = None if labels is None else _file_labels(collection, labels, of=place)

        def look_up(now: Collection) -> tuple[Details, FindImage | None]:
            return _details(now, file_labels, labels_from_folders, fields, of=place), _find_image(place, images)

        details, find_image = look_up(collection)
        return replace(
            collection, details=details, find_image=find_image, by_folder=labels_from_folders, look_up=look_up
        )
    except BaseException:
        collection.index.close()
        raise


def _find_image(place: str, images: str | None) -> FindImage | None:
    from hashgrove.web.images import images_in_folder, remembered_images

    return images_in_folder(images) if images is not None else remembered_images(place)


def _details(
    collection: Collection,
    file_labels: tuple[NDArray[Any], NDArray[np.str_]] | None,
    from_folders: bool,
    fields: str | None,
    *,
    of: str,
) -> Details:
    """Labels and fields of the items that there are now; ``file_labels`` belong to the ids that are given with them."""
    import numpy as np

    from hashgrove.storage.formats import FileError
    from hashgrove.web.details import Details, Lookup, folder_of, read_fields

    if file_labels is None and not from_folders and fields is None:
        return collection.details
    ids = collection.contents()[0]
    columns = {} if fields is None else read_fields(fields, ids)
    found = columns.pop("label", None)
    labels: NDArray[np.str_] | None = None
    if from_folders:
        names = [folder_of(str(id_)) for id_ in ids.tolist()]
        if not any(names):
            raise FileError(f"{of}: must have paths of images as ids for --labels-from-folders. It has none.")
        labels = np.array(names, np.str_)
    elif file_labels is not None:
        places, known = Lookup(file_labels[0]).find(ids)
        labels = np.where(known, file_labels[1][places], "") if len(file_labels[0]) else np.full(len(ids), "")
    elif found is not None:
        labels = np.array(found, np.str_)
    return Details(ids, labels=labels, columns=columns)


def _file_labels(collection: Collection, file: str, *, of: str) -> tuple[NDArray[Any], NDArray[np.str_]]:
    """The ids of the items that the labels of a file belong to, and the labels."""
    import numpy as np

    from hashgrove.cli.inputs import read_rows_labels  # it loads everything that a model needs
    from hashgrove.storage.formats import FileError

    added = {} if collection.additions is None else collection.additions.entries
    ids = collection.contents()[0]
    ids = ids[[str(id_) not in added for id_ in ids.tolist()]] if added else ids  # they have labels of their own
    labels = read_rows_labels(file, rows=len(ids), of=of, may_be_missing=True)
    if labels.ndim != 1:
        raise FileError(f"{file}: must have one label per item. Got tags of shape {labels.shape}.")
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), np.bool_)
    whole = labels.dtype.kind == "f" and bool((labels[~missing] == np.trunc(labels[~missing])).all())
    texts = [str(int(label)) if whole else str(label) for label in labels[~missing].tolist()]
    shown = np.full(len(labels), "", np.array(texts, np.str_).dtype if texts else "<U1")
    shown[~missing] = texts
    return ids, shown


def check_installed() -> None:
    """Raise an error of one line if packages of the service are missing."""
    from hashgrove.storage.formats import FileError

    if not all(find_spec(name) for name in ("fastapi", "httptools", "python_multipart", "uvicorn")):
        raise FileError("The service needs more packages: pip install 'hashgrove[serve]'")
