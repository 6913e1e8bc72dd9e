"""Progress on stderr, with the time left: for a fit (bits or iterations), images, a download or a series of runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["report_download", "report_iterations", "report_progress", "report_runs", "show_count"]

SECONDS_PER_LINE = 5.0  # between two lines about a download, where stderr is not a terminal


class LearnedBit(Protocol):
    """What is shown of one bit of a fit; `hashgrove.fasthash.BitRecord` has these attributes."""

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
    """Give a callback for how many are done, of images for example: a progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with _progress(what) as progress:
        task = progress.add_task(what, total=total, figures="")
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def report_runs(total: int) -> Iterator[Callable[[str, str], None]]:
    """Give a callback that shows each finished run and its state: a bar on a terminal, one line per run elsewhere."""
    if not sys.stderr.isatty():
        yield _RunLines(total)
        return
    with _progress("runs") as progress:
        task = progress.add_task("runs", total=total, figures="")
        yield lambda name, state: progress.update(task, advance=1, figures=f"{name}: {state}")


class _RunLines:
    """Prints one line per run, with the time that the remaining runs will take at the pace so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.started = total, 0, time.monotonic()

    def __call__(self, name: str, state: str) -> None:
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        line = f"{self.done} of {self.total}  {name}: {state}  {left:.0f} s left"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def report_download(file: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callback that shows how many bytes have arrived: by a bar on a terminal, by lines elsewhere."""
    if not sys.stderr.isatty():
        yield _DownloadLines(file)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("[dim]left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(file, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _DownloadLines:
    """Prints a line every `SECONDS_PER_LINE` seconds, and one at the end."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.started = self.printed = time.monotonic()
        self.first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = done  # bytes from an earlier run do not count towards the speed
        if now - self.printed < SECONDS_PER_LINE and done < total:
            return
        self.printed = now
        speed = (done - self.first) / max(now - self.started, 1e-9)
        left = f"{(total - done) / speed:.0f} s left" if speed and done < total else ""
        line = f"{self.file}: {done / 1e6:.1f} of {total / 1e6:.1f} MB  {left}"
        print(line.rstrip(), file=sys.stderr, flush=True)


@contextmanager
def _report(what: str, total: int, done: int, verbose: int) -> Iterator[Callable[[str, str], None]]:
    """Give a callback that shows one more step: with figures beside the bar, or as a line."""
    if not (verbose > 0 and sys.stderr.isatty()):
        yield _print_line if verbose > 1 else _ignore
        return
    with _progress(what) as progress:
        task = progress.add_task(what, total=total, completed=done, figures="")
        yield lambda figures, line: progress.update(task, advance=1, figures=figures)


def _progress(title: str) -> Progress:
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
