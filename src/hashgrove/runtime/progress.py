"""Progress on stderr, with the time left: bits or iterations of a fit, images, items."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["COMPILING", "COMPILING_AGAIN", "progress_bar", "report_iterations", "report_progress", "show_count"]

COMPILING = "compiling kernels, once; later runs start at once"
COMPILING_AGAIN = "compiling kernels, as in every run: no folder to keep them in is writable; set NUMBA_CACHE_DIR"


class LearnedBit(Protocol):
    """The attributes of a `BitRecord` that are shown."""

    @property
    def bit(self) -> int:
        """Number of the bit, from 0."""

    @property
    def objective(self) -> float:
        """Mean loss over the pairs."""

    @property
    def training_error(self) -> float:
        """Share of the training points whose learned bit is not the inferred one."""

    @property
    def seconds_inference(self) -> float:
        """Time of step 1."""

    @property
    def seconds_learning(self) -> float:
        """Time of step 2."""


@contextmanager
def report_progress(n_bits: int, *, done: int, verbose: int) -> Iterator[Callable[[LearnedBit], None]]:
    """Give a callback that shows each bit as it is learned.

    On a terminal it draws a progress bar; elsewhere it prints one line per bit if ``verbose`` is above 1. With
    ``verbose=0`` it shows nothing.
    """

    def line(record: LearnedBit) -> str:
        seconds = record.seconds_inference + record.seconds_learning
        return f"bit {record.bit}: {_figures(record)}  {seconds:.2f} s"

    with _report("learning bits", n_bits, done, verbose) as show:
        yield lambda record: show(_figures(record), line(record))


@contextmanager
def report_iterations(what: str, n_iter: int, *, verbose: int) -> Iterator[Callable[[int, float], None]]:
    """Give a callback that shows each iteration of a fit: its number and the share of the error that is left."""
    with _report(what, n_iter, 0, verbose) as show:
        yield lambda number, left: show(f"left {left:.4f}", f"{what}: iteration {number}: left {left:.4f}")


@contextmanager
def show_count(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a callback that takes the number of finished items: a progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with progress_bar(what) as progress:
        task = progress.add_task(what, total=total, figures="")
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def _report(what: str, total: int, done: int, verbose: int) -> Iterator[Callable[[str, str], None]]:
    """Give a callback that shows one more step: with figures beside the bar, or as a line."""
    if not (verbose > 0 and sys.stderr.isatty()):
        yield _print_line if verbose > 1 else _ignore
        return
    with progress_bar(what) as progress:
        task = progress.add_task(what, total=total, completed=done, figures="")
        yield lambda figures, line: progress.update(task, advance=1, figures=figures)


def progress_bar(title: str) -> Progress:
    """A bar of rich on stderr with counts and times; a task has the field ``figures``, a text behind them."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[dim]elapsed"),
        TimeElapsedColumn(),
        TextColumn("[dim]left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True))


def _figures(record: LearnedBit) -> str:
    return f"loss {record.objective:.4f}  error {record.training_error:.3f}"


def _print_line(figures: str, line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ignore(figures: str, line: str) -> None:
    """Show nothing."""
