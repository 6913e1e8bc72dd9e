"""Processes that do runs, several at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self

from hashgrove.runtime.threads import available_threads

__all__ = ["Workers"]

ROOT = str(Path(__file__).resolve().parents[1])
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS_TO_STOP = 10.0


class Workers:
    """At most ``n`` processes of `experiments.worker`, each with a batch of orders.

    At the end of a ``with`` block, also after Ctrl-C, no process is left.

    Parameters
    ----------
    n : int
    n_jobs : int or None
        Threads per process.
    timeout : float or None
        Seconds per run.
    """

    def __init__(self, n: int, *, n_jobs: int | None, timeout: float | None) -> None:
        self.n, self.timeout = n, timeout
        path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
        self._environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(available_threads(n_jobs)))
        self._environment |= {"PYTHONPATH": path}  # the package is not installed
        self._threads = ThreadPoolExecutor(n)  # one thread waits for each process
        self._running: dict[Future[str], tuple[Any, subprocess.Popen[str]]] = {}

    @property
    def busy(self) -> bool:
        """Whether a process is at work."""
        return bool(self._running)

    @property
    def free(self) -> bool:
        """Whether another process may be started."""
        return len(self._running) < self.n

    def start(self, batch: Any, orders: Sequence[dict[str, Any]]) -> None:
        """Start a process that carries out the orders; `wait` will return the batch."""
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._environment,
            text=True,
        )
        self._running[self._threads.submit(self._attend, process, orders)] = batch, process

    def wait(self) -> tuple[Any, str]:
        """Wait until a process has ended; return its batch, and why it ended, which matters if a result is missing."""
        ended = wait(self._running, return_when=FIRST_COMPLETED).done.pop()
        batch, _ = self._running.pop(ended)
        return batch, ended.result()

    def _attend(self, process: subprocess.Popen[str], orders: Sequence[dict[str, Any]]) -> str:
        limit = None if self.timeout is None else self.timeout * sum(len(order["runs"]) for order in orders)
        try:
            _, stderr = process.communicate("".join(json.dumps(order) + "\n" for order in orders), timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"time limit of {self.timeout:g} s"
        if process.returncode < 0:
            return f"killed by signal {-process.returncode}"
        return (stderr.strip().splitlines() or [f"ended with exit code {process.returncode}"])[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        processes = [process for _, process in self._running.values()]
        for process in processes:
            process.send_signal(signal.SIGINT)
        wait(self._running, timeout=SECONDS_TO_STOP)
        for process in processes:
            process.kill()  # does nothing if it has ended
        self._threads.shutdown()
