"""Progress on stderr, with the time left: a series of runs, a download."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hashgrove.runtime.progress import progress_bar

__all__ = ["report_download", "report_runs"]

SECONDS_PER_LINE = 5.0  # between two lines about a download, where stderr is not a terminal


@contextmanager
def report_runs(total: int) -> Iterator[Callable[[str, str], None]]:
    """Give a callback that shows each finished run and its state: a bar on a terminal, one line per run elsewhere."""
    if not sys.stderr.isatty():
        yield _RunLines(total)
        return
    with progress_bar("runs") as progress:
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
