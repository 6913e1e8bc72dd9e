"""Progress on stderr: bits of a fit or images done, time left, loss so far."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from hashgrove.fasthash import BitRecord

__all__ = ["image_progress", "report_progress"]


@contextmanager
def report_progress(n_bits: int, *, done: int, verbose: int) -> Iterator[Callable[[BitRecord], None]]:
    """A callback that shows each `BitRecord`: a bar on a terminal, elsewhere lines if ``verbose`` > 1, or nothing."""
    if verbose > 0 and sys.stderr.isatty():
        with _bar(n_bits, done) as show:
            yield show
    else:
        yield _print_line if verbose > 1 else _ignore


@contextmanager
def image_progress(n_images: int) -> Iterator[Callable[[int], None]]:
    """A callback for the number of images done: a bar with the time left on a terminal, elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with _progress("images") as progress:
        task = progress.add_task("images", total=n_images, figures="")
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def _bar(n_bits: int, done: int) -> Iterator[Callable[[BitRecord], None]]:
    with _progress("learning bits") as progress:
        task = progress.add_task("bits", total=n_bits, completed=done, figures="")
        yield lambda record: progress.update(task, advance=1, figures=_figures(record))


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
        TextColumn("{task.fields[figures]}"),
    )
    return Progress(*columns, console=Console(stderr=True))


def _figures(record: BitRecord) -> str:
    return f"loss {record.objective:.4f}  error {record.training_error:.3f}"


def _print_line(record: BitRecord) -> None:
    seconds = record.seconds_inference + record.seconds_learning
    print(f"bit {record.bit}: {_figures(record)}  {seconds:.2f} s", file=sys.stderr, flush=True)


def _ignore(record: BitRecord) -> None:
    """Say nothing."""
