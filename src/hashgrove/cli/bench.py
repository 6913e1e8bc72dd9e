"""The commands of experiments: what there is, to run it, and the page of results."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from hashgrove.bench.runner import Job

__all__ = ["bench"]

RESULTS = "docs/results/runs"  # in a checkout
PAGE = "docs/results.md"

tables_option = click.option("--tables", metavar="FILE", help="Experiments of your own, a file like tables.toml.")
root_option = click.option(
    "--root", metavar="FOLDER", help="Folder of data sets; by default $HASHGROVE_DATA or ~/.cache/hashgrove."
)


@click.group(invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Run the paper's tables and figures, and report them beside the paper's.

    \b
    Example:
      hashgrove bench list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@bench.command("list")
@tables_option
def list_(tables: str | None) -> None:
    """List the experiments.

    \b
    Example:
      hashgrove bench list
    """
    from hashgrove.bench import list_experiments, load_tables
    from hashgrove.cli.output import format_table

    rows = [(name, title, of, str(n)) for name, title, of, n in list_experiments(tables=load_tables(tables))]
    click.echo(format_table(("name", "what", "in the paper", "cells"), rows, n_left=3))


@bench.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--quick", is_flag=True, help="Each cell in small, on handwritten digits: does everything run?")
@click.option("--dataset", metavar="NAME", help="Only this data set of the tables.")
@click.option("--only", metavar="METHOD", help="Only this method.")
@root_option
@click.option("--results", metavar="FOLDER", help=f"Folder of results; {RESULTS}, or a new one with --quick.")
@click.option("--n-jobs", "n_jobs", type=options.POSITIVE, help="Threads of a run; all cores if not given.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of rows and models.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds that a run may take.")
@click.option("--retry", is_flag=True, help="Run what failed earlier once more.")
@click.option("--dry-run", is_flag=True, help="Only list the runs, and which are done.")
@tables_option
def run(names: tuple[str, ...], results: str | None, dry_run: bool, tables: str | None, **settings: Any) -> None:
    """Run the experiments NAME (or all), those cells that have no result yet.

    \b
    Example:
      hashgrove bench run unsupervised --dataset cifar10-gist --quick
    """
    from hashgrove.bench import load_tables
    from hashgrove.bench import run as run_all
    from hashgrove.runtime.progress import report_runs

    quick = settings["quick"]
    same = results is not None and Path(results).resolve() == Path(RESULTS).resolve()
    options.refuse(quick and same, f"--quick needs a folder of its own. {RESULTS} is for real results.")
    folder = results or (tempfile.mkdtemp(prefix="hashgrove-bench-") if quick else RESULTS)
    experiments = load_tables(tables)
    if dry_run:
        from hashgrove.bench.results import Store
        from hashgrove.bench.runner import plan

        chosen = {name: settings[name] for name in ("quick", "dataset", "only", "root", "seed", "retry")}
        _show(plan(names, store=Store(Path(folder)), tables=experiments, **chosen))
        return
    jobs = run_all(names, results=folder, tables=experiments, report=report_runs, **settings)
    _summarise(jobs, folder)


def _show(jobs: list[Job]) -> None:
    from hashgrove.cli.output import format_table

    rows = [
        (cell.name, f"{job.state}: {job.reason}" if job.reason else job.state) for job in jobs for cell in job.cells
    ]
    click.echo(format_table(("cell", "state"), rows, n_left=2))
    click.echo(f"{len(rows)} cells, {len(jobs)} runs: {_counts(jobs)}", err=True)


def _counts(jobs: list[Job]) -> str:
    return ", ".join(f"{n} {state}" for state, n in Counter(job.state for job in jobs).items()) or "nothing"


def _summarise(jobs: list[Job], folder: str) -> None:
    """Count the runs on stdout, and say of each that has no result why; exit code 1 if one failed."""
    for job in jobs:
        if job.reason:
            click.echo(f"{job.name}: {job.state}: {job.reason}", err=True)
    click.echo(f"{_counts(jobs)}; results in {folder}")
    if any(job.state == "failed" for job in jobs):
        raise click.ClickException("some runs failed; --retry runs them once more")


@bench.command()
@click.option("--results", metavar="FOLDER", default=RESULTS, show_default=True, help="Folder of results.")
@click.option("-o", "--output", metavar="PAGE", default=PAGE, show_default=True, help="Page to write, in its marks.")
@click.option("--quick", is_flag=True, help="The results are those of --quick.")
@root_option
@tables_option
def report(results: str, output: str, quick: bool, root: str | None, tables: str | None) -> None:
    """Write the page of results, with the paper's figures beside ours.

    Only what stands between its marks is written, <!-- claims --> to <!-- /claims --> and <!-- bench --> to
    <!-- /bench -->; a page that has none gets them at its end.

    \b
    Example:
      hashgrove bench report
    """
    options.refuse(
        quick and Path(output).resolve() == Path(PAGE).resolve(),
        "--quick needs another page: quick runs are no results.",
    )
    from hashgrove.bench import load_tables
    from hashgrove.bench import report as write

    pictures = write(results=results, output=output, tables=load_tables(tables), root=root, quick=quick)
    if not pictures:
        click.echo("No pictures: fewer than two results in each table, or no matplotlib ('hashgrove[plot]').", err=True)
    click.echo(f"Wrote {output} and {len(pictures)} pictures", err=True)
