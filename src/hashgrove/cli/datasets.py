"""The commands of data sets: what there is, what is known of one, and its download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from hashgrove.datasets import Entry

__all__ = ["datasets"]

root_option = click.option(
    "--root", metavar="FOLDER", help="Folder of data sets; by default $HASHGROVE_DATA or ~/.cache/hashgrove."
)
name_argument = click.argument("name", type=options.DATASETS, metavar="NAME")


@click.group(invoke_without_command=True)
@click.pass_context
def datasets(ctx: click.Context) -> None:
    """List, describe and download data sets.

    \b
    Example:
      hashgrove datasets list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@datasets.command("list")
@root_option
@options.json_style
def list_(root: str | None, style: str | None) -> None:
    """List the data sets that `hashgrove.datasets.load` knows, and which of them are here.

    \b
    Example:
      hashgrove datasets list
    """
    from hashgrove.cli.output import format_table
    from hashgrove.datasets import DATASETS, data_root

    folder = data_root(root)
    if style == "json":
        click.echo(json.dumps([_facts(entry, folder) for entry in DATASETS.values()], indent=2))
        return
    rows = [
        (entry.name, entry.what, entry.licence, _state(entry, folder), f"{entry.n_train + entry.n_query:,}")
        for entry in DATASETS.values()
    ]
    click.echo(format_table(("name", "what", "licence", "here", "rows"), rows, n_left=4))


@datasets.command()
@name_argument
@root_option
@options.json_style
def info(name: str, root: str | None, style: str | None) -> None:
    """Describe the data set NAME: rows, split, licence, files and where they are expected.

    \b
    Example:
      hashgrove datasets info digits
    """
    from hashgrove.cli.output import format_pairs
    from hashgrove.datasets import DATASETS, data_root

    facts = _facts(DATASETS[name], data_root(root))
    if style == "json":
        click.echo(json.dumps(facts, indent=2))
        return
    facts["here"] = "yes" if facts["here"] else "no"
    texts = {key: ", ".join(value) if isinstance(value, list) else value for key, value in facts.items()}
    click.echo(format_pairs((key.replace("_", " "), value) for key, value in texts.items() if value not in ("", None)))


@datasets.command()
@name_argument
@root_option
def fetch(name: str, root: str | None) -> None:
    """Download the data set NAME, and check it against the published checksum.

    A download that was interrupted goes on where it stopped.

    \b
    Example:
      hashgrove datasets fetch cifar10
    """
    from hashgrove.datasets import fetch as download
    from hashgrove.runtime.progress import report_download

    for path in download(name, root=root, report=report_download):
        click.echo(path)


def _state(entry: Entry, root: Path) -> str:
    if entry.find(root) is not None:
        return "yes"
    return "no; fetch" if entry.remotes else "no"


def _facts(entry: Entry, root: Path) -> dict[str, Any]:
    found = entry.find(root)
    is_embedded = not entry.layouts[0].needs
    return {
        "name": entry.name,
        "what": entry.what,
        "rows": entry.n_train + entry.n_query,
        "train": entry.n_train,
        "query": entry.n_query,
        "labels": entry.labels,
        "split": entry.split,
        "options": entry.options(),
        "licence": entry.licence,
        "source": entry.source,
        "here": found is not None,
        "files": [] if found is None or is_embedded else [str(found[0] / need) for need in found[1].needs],
        "to_get_it": entry.absence(root) if found is None else None,
    }
