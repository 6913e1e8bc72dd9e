"""The command ``hashgrove serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from hashgrove.web.collection import Collection

__all__ = ["serve", "serve_collection", "server_options"]

KEY = "HASHGROVE_API_KEY"


def server_options(command: Any) -> Any:
    """Add the options that say where a service listens, and to whom."""
    for decorate in reversed(
        (
            click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at."),
            click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any."),
            click.option("--api-key", envvar=KEY, help=f"What clients must know. Better set as ${KEY}."),
            click.option("--insecure", is_flag=True, help="Let anyone who reaches --host in, without a key."),
        )
    ):
        command = decorate(command)
    return command


@click.command()
@click.argument("place", metavar="INDEX")
@click.option("--model", metavar="MODEL", help="Model that encodes queries, if the index holds none.")
@click.option("--labels", metavar="FILE", help="Labels of the items, in ascending order of their ids.")
@click.option("--labels-from-folders", is_flag=True, help="The folder of an image is its label.")
@click.option("--fields", metavar="FILE", help=".csv file of fields to show, with a column 'id'.")
@click.option("--images", metavar="FOLDER", help="Images, whose names are the ids of the items.")
@click.option("--read-only", is_flag=True, help="Refuse to add and remove items.")
@server_options
def serve(
    place: str,
    model: str | None,
    labels: str | None,
    labels_from_folders: bool,
    fields: str | None,
    images: str | None,
    read_only: bool,
    **where: Any,
) -> None:
    """Serve an INDEX over HTTP: search for programs, and a page for people.

    INDEX is a folder that `hashgrove index build` made, or the URL of an engine. Only this machine is served, unless
    --host says otherwise; then a key is needed. Ctrl+C stops the service.

    \b
    Example:
      hashgrove serve photos.hgi --port 8000
    """
    options.refuse(labels is not None and labels_from_folders, "Give --labels or --labels-from-folders, not both.")
    _check_open(**where)
    from hashgrove.cli.serving import open_collection

    collection = open_collection(
        place,
        model=model,
        labels=labels,
        labels_from_folders=labels_from_folders,
        fields=fields,
        images=images,
        read_only=read_only,
    )
    serve_collection(collection, **where)


def _check_open(*, host: str, port: int, api_key: str | None, insecure: bool) -> None:
    """Refuse a call that would let strangers in."""
    from hashgrove.cli.serving import check_installed

    check_installed()
    from hashgrove.web.guard import is_loopback

    strangers = not is_loopback(host) and not api_key and not insecure
    options.refuse(strangers, f"--host {host} lets other machines in. Give --api-key, or --insecure to let anyone in.")
    options.refuse(api_key == "", "--api-key must not be empty.")


def serve_collection(collection: Collection, *, host: str, port: int, api_key: str | None, insecure: bool) -> None:
    """Serve until Ctrl+C, and say where."""
    _check_open(host=host, port=port, api_key=api_key, insecure=insecure)
    from hashgrove.web.server import run

    def say(url: str) -> None:
        click.echo(f"Serving {len(collection.index):,} items at {url} (stop with Ctrl+C)", err=True)

    run(collection, host=host, port=port, key=api_key, ready=say)
    click.echo("Stopped", err=True)
