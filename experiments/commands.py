"""The commands of ``python -m experiments``: list the experiments, run them, write the pages of results, get data."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.dataset_commands import data_folder, datasets
from hashgrove.cli import options
from hashgrove.cli.program import Program

if TYPE_CHECKING:
    from experiments.runner import Job

__all__ = ["NAME", "main"]

NAME = "python -m experiments"
RESULTS = "experiments/runs"
PAGE = "docs/results.md"
MORE_SEEDS = [1, 2]  # besides seed 0

tables_option = click.option("--tables", metavar="FILE", help="Your own experiments: a file like tables.toml.")


class Experiments(Program):
    """The program's handling of errors, with commands that are registered one by one."""

    list_commands = click.Group.list_commands
    get_command = click.Group.get_command


@click.group(cls=Experiments, invoke_without_command=True, context_settings={"max_content_width": 100})
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run the paper's tables and figures, and report our figures beside the paper's.

    \b
    Example:
      python -m experiments list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


main.add_command(datasets)


@main.command("list")
@tables_option
def list_(tables: str | None) -> None:
    """List the experiments.

    \b
    Example:
      python -m experiments list
    """
    from experiments import list_experiments, load_tables
    from hashgrove.cli.output import format_table

    rows = [(name, title, of, str(n)) for name, title, of, n in list_experiments(tables=load_tables(tables))]
    click.echo(format_table(("name", "what", "in the paper", "cells"), rows, n_left=3))


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--quick", is_flag=True, help="Run a small version of each cell, on handwritten digits.")
@click.option("--dataset", metavar="NAME", help="Run only this data set of the tables.")
@click.option("--only", metavar="METHOD", help="Run only this method.")
@data_folder
@click.option("--results", metavar="FOLDER", help=f"Folder of results; by default {RESULTS}, with --quick a new one.")
@click.option(
    "--workers", "n_workers", type=options.POSITIVE, default=1, show_default=True, help="Runs that are done at a time."
)
@click.option(
    "--n-jobs", "n_jobs", type=options.POSITIVE, help="Threads per run; by default all cores, shared by the workers."
)
@click.option(
    "--seed", type=options.SEED, default=0, show_default=True, help="Seed of the choice of rows and of the models."
)
@click.option(
    "--claims",
    is_flag=True,
    help="Instead of --seed, run seeds 1 and 2 of the cells whose claims rest on too small a difference for one seed.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds that a run may take.")
@click.option("--retry", is_flag=True, help="Repeat runs that failed earlier.")
@click.option("--dry-run", is_flag=True, help="Only list the runs, their states and the time they took.")
@tables_option
def run(
    names: tuple[str, ...], results: str | None, dry_run: bool, tables: str | None, claims: bool, **settings: Any
) -> None:
    """Run the cells of the experiments NAME (or all) that have no result yet.

    \b
    Example:
      python -m experiments run unsupervised --dataset cifar10-gist --quick
    """
    from experiments import load_tables
    from experiments import run as run_all
    from experiments.progress import report_runs
    from experiments.records import Records
    from experiments.results import Store
    from experiments.runner import core_seconds, plan

    quick = settings["quick"]
    is_real = results is not None and Path(results).resolve() == Path(RESULTS).resolve()
    options.refuse(quick and is_real, f"--quick needs another folder: {RESULTS} is for real results.")
    folder = results or (tempfile.mkdtemp(prefix="hashgrove-experiments-") if quick else RESULTS)
    store, experiments, seeds = Store(Path(folder)), load_tables(tables), [settings.pop("seed")]
    if claims:
        from experiments.claims import undecided_cells

        verdicts = Records(store, quick=quick).verdicts(experiments)
        settings["cells"] = undecided_cells(verdict for found in verdicts.values() for verdict in found)
        seeds = MORE_SEEDS
    jobs: list[Job] = []
    for seed in seeds:
        if dry_run:
            chosen = {k: v for k, v in settings.items() if k not in ("n_jobs", "n_workers", "timeout")}
            jobs += plan(names, store=store, tables=experiments, seed=seed, **chosen)
        else:
            jobs += run_all(names, results=folder, tables=experiments, seed=seed, report=report_runs, **settings)
    if dry_run:
        _show(jobs, hours=core_seconds(jobs, store=store) / 3600)
    else:
        _summarise(jobs, folder)


def _show(jobs: list[Job], *, hours: float) -> None:
    from hashgrove.cli.output import format_table

    rows = [
        (cell.name, f"{job.state}: {job.reason}" if job.reason else job.state) for job in jobs for cell in job.cells
    ]
    click.echo(format_table(("cell", "state"), rows, n_left=2))
    took = f"; to train and encode what is kept took {hours:.1f} core hours" if hours else ""
    click.echo(f"{len(rows)} cells, {len(jobs)} runs: {_counts(jobs)}{took}", err=True)


def _counts(jobs: list[Job]) -> str:
    return ", ".join(f"{n} {state}" for state, n in Counter(job.state for job in jobs).items()) or "nothing"


def _summarise(jobs: list[Job], folder: str) -> None:
    """Count the runs on stdout, say on stderr why results are missing, and exit with code 1 if a run failed."""
    for job in jobs:
        if job.reason:
            click.echo(f"{job.name}: {job.state}: {job.reason}", err=True)
    click.echo(f"{_counts(jobs)}; results in {folder}")
    if any(job.state == "failed" for job in jobs):
        raise click.ClickException("some runs failed; --retry repeats them")


@main.command()
@click.option("--results", metavar="FOLDER", default=RESULTS, show_default=True, help="Folder of results.")
@click.option("-o", "--output", metavar="PAGE", default=PAGE, show_default=True, help="Front page to write.")
@click.option("--quick", is_flag=True, help="The results are those of run --quick.")
@tables_option
def report(results: str, output: str, quick: bool, tables: str | None) -> None:
    """Write the pages of results, with the paper's figures beside ours.

    The front page is PAGE. The pages of the experiments and the pictures go to the folder of the same name without
    its ending. All of them are overwritten.

    \b
    Example:
      python -m experiments report
    """
    options.refuse(
        quick and Path(output).resolve() == Path(PAGE).resolve(),
        f"--quick needs another page: {PAGE} is for real results.",
    )
    from experiments import load_tables
    from experiments import report as write_report

    pages, pictures = write_report(results=results, output=output, tables=load_tables(tables), quick=quick)
    if not pictures:
        click.echo("No pictures: no table has two results, or matplotlib is missing ('hashgrove[plot]').", err=True)
    click.echo(f"Wrote {output}, {len(pages) - 1} pages of experiments and {len(pictures)} pictures", err=True)
