"""The command ``python -m experiments datasets``: list the data sets, describe one, download one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from experiments.datasets import Entry

__all__ = ["data_folder", "datasets"]

data_folder = click.option(
    "--root", metavar="FOLDER", help="Folder of data sets; by default $HASHGROVE_DATA or ~/.cache/hashgrove."
)


def _check_name(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    """Refuse a name that is not in the registry, which is imported only now."""
    from experiments.datasets import DATASETS

    if name not in DATASETS:
        raise click.BadParameter(f"must be one of {', '.join(DATASETS)}. Got {name!r} instead.", ctx, parameter)
    return name


name_argument = click.argument("name", callback=_check_name)


@click.group(invoke_without_command=True)
@click.pass_context
def datasets(ctx: click.Context) -> None:
    """List, describe and download data sets.

    \b
    Example:
      python -m experiments datasets list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@datasets.command("list")
@data_folder
@options.json_style
def list_(root: str | None, style: str | None) -> None:
    """List the data sets that `experiments.datasets.load_dataset` knows, and whether their files are on this machine.

    \b
    Example:
      python -m experiments datasets list
    """
    from experiments.datasets import DATASETS, data_root
    from hashgrove.cli.output import format_table

    folder = data_root(root)
    if style == "json":
        click.echo(json.dumps([_facts(entry, folder) for entry in DATASETS.values()], indent=2))
        return
    rows = [
        (entry.name, entry.description, entry.licence, _state(entry, folder), f"{entry.n_train + entry.n_query:,}")
        for entry in DATASETS.values()
    ]
    click.echo(format_table(("name", "description", "licence", "here", "rows"), rows, n_left=4))


@datasets.command()
@name_argument
@data_folder
@options.json_style
def info(name: str, root: str | None, style: str | None) -> None:
    """Describe the data set NAME: its rows, split, licence and files, and where the files are expected.

    \b
    Example:
      python -m experiments datasets info digits
    """
    from experiments.datasets import DATASETS, data_root
    from hashgrove.cli.output import format_pairs

    facts = _facts(DATASETS[name], data_root(root))
    if style == "json":
        click.echo(json.dumps(facts, indent=2))
        return
    facts["here"] = "yes" if facts["here"] else "no"
    texts = {key: ", ".join(value) if isinstance(value, list) else value for key, value in facts.items()}
    click.echo(format_pairs((key.replace("_", " "), value) for key, value in texts.items() if value not in ("", None)))


@datasets.command()
@name_argument
@data_folder
def fetch(name: str, root: str | None) -> None:
    """Download the data set NAME and check it against the published checksum.

    A download that was interrupted continues where it stopped.

    \b
    Example:
      python -m experiments datasets fetch cifar10
    """
    from experiments.datasets import fetch as download
    from experiments.progress import report_download

    for path in download(name, root=root, report=report_download):
        click.echo(path)


def _state(entry: Entry, root: Path) -> str:
    if entry.find(root) is not None:
        return "yes"
    return "no; fetch" if entry.remotes else "no"


def _facts(entry: Entry, root: Path) -> dict[str, Any]:
    found = entry.find(root)
    return {
        "name": entry.name,
        "description": entry.description,
        "rows": entry.n_train + entry.n_query,
        "train": entry.n_train,
        "query": entry.n_query,
        "labels": entry.labels,
        "split": entry.split,
        "options": entry.options(),
        "licence": entry.licence,
        "source": entry.source,
        "here": found is not None,
        "files": [] if found is None or entry.is_embedded else [str(found[0] / file) for file in found[1].files],
        "how_to_get_it": entry.explain_missing(root) if found is None else None,
    }
