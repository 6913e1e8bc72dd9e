"""Run the cells that have no result yet, each in a process of its own.

Every result is written at once, so a stopped suite goes on where it was stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from hashgrove.bench.measures import lacking
from hashgrove.bench.methods import missing_package
from hashgrove.bench.quick import quick_spec
from hashgrove.bench.results import FORMAT, Store, run_key
from hashgrove.bench.specs import Cell, Spec, Tables
from hashgrove.bench.tables import load_tables
from hashgrove.datasets import DATASETS, data_root, load
from hashgrove.runtime.threads import available_threads
from hashgrove.storage.formats import PathLike

__all__ = ["Job", "list_experiments", "plan", "run"]

TO_DO, DONE, KEPT, FAILED, NOT_RUN = "to do", "done", "kept", "failed", "not run"
QUICK_BATCH = 24  # quick runs per process
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass
class Job:
    """One run and the cells that share it.

    Attributes
    ----------
    spec : Spec
    cells : list of Cell
    state : {"to do", "done", "kept", "failed", "not run"}
        ``kept``: an earlier suite has done it; ``not run``: it cannot be done on this machine.
    reason : str
        Why it failed or was not run.
    key, fingerprint : str
        Hash of the run and of its data; empty if the data are missing.
    """

    spec: Spec
    cells: list[Cell]
    state: str = TO_DO
    reason: str = ""
    key: str = ""
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """The first cell, and how many other cells share the run."""
        more = f" (+{len(self.cells) - 1})" if len(self.cells) > 1 else ""
        return self.cells[0].name + more


def list_experiments(*, tables: Tables | None = None) -> list[tuple[str, str, str, int]]:
    """List name, title, place in the paper and number of cells of each experiment.

    >>> list_experiments()[0][0]
    'ksh'
    """
    tables = tables or load_tables()
    return [(e.name, e.title, e.of, len(e.cells)) for e in tables.experiments.values()]


def _what_is_missing(spec: Spec, root: PathLike | None) -> str:
    """Say which package or data a run needs and this machine lacks; empty if it can be run."""
    package = missing_package(spec.method)
    if package is not None:
        return f"{package} is not installed (pip install 'hashgrove[bench]')"
    return "" if DATASETS[spec.dataset].find(data_root(root)) is not None else "its data are missing"


def plan(
    names: Sequence[str],
    *,
    store: Store,
    tables: Tables,
    quick: bool = False,
    dataset: str | None = None,
    only: str | None = None,
    root: PathLike | None = None,
    seed: int = 0,
    retry: bool = False,
) -> list[Job]:
    """List the runs of these experiments with their present states; see `run` for the parameters."""
    jobs: dict[str, Job] = {}
    for cell in _cells(names, tables):
        if dataset not in (None, cell.data.name) or only not in (None, cell.spec.method):
            continue
        spec = quick_spec(cell.spec) if quick else cell.spec
        job = jobs.setdefault(json.dumps(spec.to_dict(), sort_keys=True), Job(spec, []))
        job.cells.append(cell)
    fingerprints: dict[str, str] = {}
    for job in jobs.values():
        missing = _what_is_missing(job.spec, root)
        if missing:
            job.state, job.reason = NOT_RUN, missing
            continue
        data = json.dumps([job.spec.dataset, dict(job.spec.options)])
        if data not in fingerprints:
            fingerprints[data] = load(job.spec.dataset, root=root, **job.spec.options).fingerprint()
        job.fingerprint = fingerprints[data]
        job.key = run_key(job.spec, fingerprint=job.fingerprint, seed=seed)
        record = store.find(job.key, job.spec)
        if record is not None and record["status"] == "done":
            incomplete = any(lacking(cell.measures, record["measures"]) for cell in job.cells)
            job.state = TO_DO if incomplete else KEPT
        elif record is not None and not retry:
            job.state, job.reason = FAILED, record["error"]
    return list(jobs.values())


def _cells(names: Iterable[str], tables: Tables) -> list[Cell]:
    known = tables.experiments
    for name in names:
        if name != "all" and name not in known:
            raise ValueError(f"The 'names' parameter must name some of {['all', *known]}. Got {name!r} instead.")
    chosen = list(known) if "all" in names else list(dict.fromkeys(names))
    return [cell for name in chosen for cell in known[name].cells]


def run(
    names: Sequence[str],
    *,
    results: PathLike,
    tables: Tables | None = None,
    quick: bool = False,
    dataset: str | None = None,
    only: str | None = None,
    root: PathLike | None = None,
    n_jobs: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    retry: bool = False,
    report: Callable[[int], AbstractContextManager[Callable[[str, str], None]]] = lambda n: nullcontext(
        lambda *_: None
    ),
) -> list[Job]:
    """Run the cells of experiments that have no result yet, or one without the measures of the paper.

    Parameters
    ----------
    names : sequence of str
        Names of experiments, or ``all``.
    results : path
        Folder of results. A run whose result is there is not repeated, unless it lacks measures of the paper that the
        cell shows.
    tables : Tables, optional
        Experiments from `load_tables`; by default the project's own.
    quick : bool
        Run a small version of each cell, on the embedded digits.
    dataset, only : str, optional
        Run only this data set of the tables; only this method.
    root : path, optional
        Folder of data sets, as in `hashgrove.datasets.load`.
    n_jobs : int, optional
        Threads per run; all cores by default.
    seed : int
        Seed of the choice of rows and of the models.
    timeout : float, optional
        Seconds that a run may take.
    retry : bool
        Repeat runs that failed earlier.
    report : callable, optional
        Called with the number of runs to do. It returns a context manager whose value is called with the name and
        the state of each run when it ends.

    Returns
    -------
    list of Job

    Examples
    --------
    >>> import tempfile
    >>> jobs = run(["unsupervised"], quick=True, only="lsh", dataset="cifar10-gist", results=tempfile.mkdtemp())
    >>> [(job.spec.method, job.state) for job in jobs]
    [('lsh', 'done')]
    """
    store = Store(Path(results))
    jobs = plan(
        names, store=store, tables=tables or load_tables(), quick=quick, dataset=dataset, only=only, root=root,
        seed=seed, retry=retry,
    )  # fmt: skip
    queue = [job for job in jobs if job.state == TO_DO]
    size = QUICK_BATCH if quick else 1
    with report(len(queue)) as show:
        while queue:
            batch, queue = queue[:size], queue[size:]
            reason = _run_batch(batch, store, root=root, n_jobs=n_jobs, seed=seed, timeout=timeout)
            for number, job in enumerate(batch):
                record = store.find(job.key, job.spec)
                if record is None or record["status"] != "done":
                    # this run ended the process: the rest of the batch goes back into the queue
                    job.state, job.reason = FAILED, reason
                    _write_failure(job, store, seed=seed)
                    queue = batch[number + 1 :] + queue
                    show(job.name, reason)
                    break
                job.state = DONE
                show(job.name, DONE)
    return jobs


def _run_batch(
    batch: list[Job], store: Store, *, root: PathLike | None, n_jobs: int | None, seed: int, timeout: float | None
) -> str:
    """Do some runs in one process; return why the process ended, which matters if a result is missing."""
    where = {"root": str(data_root(root)), "results": str(store.folder.absolute())}
    orders = [
        {"key": job.key, "cell": job.spec.to_dict(), "fingerprint": job.fingerprint, "seed": seed, "n_jobs": n_jobs}
        for job in batch
    ]
    try:
        process = subprocess.run(
            [sys.executable, "-m", "hashgrove.bench.worker"],
            input="".join(json.dumps(order | where) + "\n" for order in orders),
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(available_threads(n_jobs))),
            capture_output=True,
            text=True,
            timeout=None if timeout is None else timeout * len(batch),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"time limit of {timeout:g} s"
    if process.returncode < 0:
        return f"killed by signal {-process.returncode}"
    return (process.stderr.strip().splitlines() or [f"ended with exit code {process.returncode}"])[-1]


def _write_failure(job: Job, store: Store, *, seed: int) -> None:
    record = {"format": FORMAT, "key": job.key, "status": "failed", "error": job.reason, "cell": job.spec.to_dict()}
    store.write({**record, "seed": seed, "fingerprint": job.fingerprint}, job.spec)
