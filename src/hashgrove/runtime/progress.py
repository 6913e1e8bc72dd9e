"""Progress on stderr: bits of a fit, iterations, images and items with the time left; other steps with their time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "COMPILING",
    "COMPILING_AGAIN",
    "LOADING",
    "is_watched",
    "progress_bar",
    "report_iterations",
    "report_progress",
    "show_count",
    "show_step",
]

STEP_DELAY = 0.5  # seconds; steps that are shorter are not shown

COMPILING = "compiling kernels, once; later runs start at once"
COMPILING_AGAIN = "compiling kernels, as in every run: no folder to keep them in is writable; set NUMBA_CACHE_DIR"

LOADING = "loading the library"


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
    if not is_watched():
        yield lambda done: None
        return
    with progress_bar(what) as progress:
        task = progress.add_task(what, total=total, figures="")
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def show_step(what: str, *, verbose: int = 1) -> Iterator[Callable[[str], None]]:
    """Show what is being done and for how long, and take it away when it is done; gives a callback with another text.

    For work that cannot be counted. On a terminal, steps that take longer than half a second are shown; elsewhere each
    text is printed if ``verbose`` is above 1. With ``verbose=0`` nothing is shown.
    """
    if not (verbose > 0 and is_watched()):
        say = partial(print, file=sys.stderr, flush=True) if verbose > 1 else _ignore
        say(what)
        yield say
        return
    step = _Step(what)
    try:
        yield step.say
    finally:
        step.end()


class _Step:
    """A line with a text and the time so far, which a thread shows after `STEP_DELAY`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.progress: Progress | None = None
        self.timer = threading.Timer(STEP_DELAY, self.show)
        self.timer.daemon = True
        self.timer.start()

    def show(self) -> None:
        """Show the line."""
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        self.progress = Progress(SpinnerColumn(), text, TimeElapsedColumn(), transient=True, **_where())
        self.progress.add_task(self.text)
        self.progress.start()

    def say(self, text: str) -> None:
        """Change the text."""
        self.text = text
        if self.progress is not None and self.progress.task_ids:
            self.progress.update(self.progress.task_ids[0], description=text)

    def end(self) -> None:
        """Take the line away."""
        self.timer.cancel()
        self.timer.join()
        if self.progress is not None:
            self.progress.stop()


def is_watched() -> bool:
    """Whether a person sees stderr: at a terminal, at a prompt of Python or in a notebook."""
    return hasattr(sys, "ps1") or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def _report(what: str, total: int, done: int, verbose: int) -> Iterator[Callable[[str, str], None]]:
    """Give a callback that shows one more step: with figures beside the bar, or as a line."""
    if not (verbose > 0 and is_watched()):
        yield _print_line if verbose > 1 else _ignore
        return
    with progress_bar(what) as progress:
        task = progress.add_task(what, total=total, completed=done, figures="")
        yield lambda figures, line: progress.update(task, advance=1, figures=figures)


def progress_bar(title: str) -> Progress:
    """A bar of rich with counts and times; a task has the field ``figures``, a text behind them."""
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
    return Progress(*columns, **_where())


def _where() -> dict[str, Any]:
    """Where rich draws: on stderr, without the widgets that a notebook may lack; what goes to a file stays there."""
    from rich.console import Console

    at_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(stderr=True, force_terminal=True, force_jupyter=False)
    return {"console": console, "redirect_stdout": at_terminal}


def _figures(record: LearnedBit) -> str:
    return f"loss {record.objective:.4f}  error {record.training_error:.3f}"


def _print_line(figures: str, line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ignore(*texts: str) -> None:
    """Show nothing."""
