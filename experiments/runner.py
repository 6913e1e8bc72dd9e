"""Run the cells that have no result yet; runs that share a fit have a process of their own.

Every result is written at once, so a stopped suite goes on where it was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.datasets import DATASETS, data_root, load_dataset
from experiments.fits import shared_fit
from experiments.measures import lacking, slow_among
from experiments.methods import missing_package
from experiments.quick import quick_spec
from experiments.results import Store, run_key
from experiments.specs import Cell, Spec, Tables
from experiments.tables import load_tables
from experiments.workers import Workers
from hashgrove.runtime.threads import available_threads
from hashgrove.storage.formats import PathLike

__all__ = ["Job", "core_seconds", "list_experiments", "plan", "run"]

TO_DO, DONE, KEPT, FAILED, NOT_RUN = "to do", "done", "kept", "failed", "not run"
QUICK_BATCH = 24  # quick fits per process


@dataclass
class Job:
    """One run and the cells that share it.

    Attributes
    ----------
    spec : Spec
    cells : list of Cell
    slow : list of str
        Slow measures that some experiment shows of this run.
    state : {"to do", "done", "kept", "failed", "not run"}
        ``kept``: an earlier suite has done it; ``not run``: it cannot be done on this machine.
    reason : str
        Why it failed or was not run.
    home : str
        The experiment in whose file the result is stored: the first one that shows the run.
    key, fingerprint : str
        What identifies the run, and the hash of its data; empty if the data are missing.
    """

    spec: Spec
    cells: list[Cell]
    home: str
    slow: list[str] = field(default_factory=list)
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
    cells: Container[str] | None = None,
    root: PathLike | None = None,
    seed: int = 0,
    retry: bool = False,
) -> list[Job]:
    """List the runs of these experiments with their present states; see `run` for the parameters."""
    jobs: dict[str, Job] = {}
    shown: dict[str, set[str]] = {}  # the measures that any experiment shows of a run
    homes: dict[str, str] = {}
    for cell in _cells(["all"], tables):
        text = _text_of(cell, quick)
        shown.setdefault(text, set()).update(cell.measures)
        homes.setdefault(text, cell.experiment)
    for cell in _cells(names, tables):
        if dataset not in (None, cell.data.name) or only not in (None, cell.spec.method):
            continue
        if cells is not None and cell.name not in cells:
            continue
        text = _text_of(cell, quick)
        job = jobs.setdefault(text, Job(Spec(**json.loads(text)), [], homes[text], slow_among(shown[text])))
        job.cells.append(cell)
    fingerprints: dict[str, str] = {}
    records = store.read()
    for job in jobs.values():
        missing = _what_is_missing(job.spec, root)
        if missing:
            job.state, job.reason = NOT_RUN, missing
            continue
        data = json.dumps([job.spec.dataset, dict(job.spec.options)])
        if data not in fingerprints:
            fingerprints[data] = load_dataset(job.spec.dataset, root=root, **job.spec.options).fingerprint()
        job.fingerprint = fingerprints[data]
        job.key = run_key(job.spec.to_dict(), fingerprint=job.fingerprint, seed=seed)
        record = records.get(job.key)
        if record is not None and record["status"] == "done":
            found, slow = record["measures"], record.get("slow")
            job.state = TO_DO if any(lacking(cell.measures, found, slow=slow) for cell in job.cells) else KEPT
        elif record is not None and not retry:
            job.state, job.reason = FAILED, record["error"]
    return list(jobs.values())


def _text_of(cell: Cell, quick: bool) -> str:
    """Return the spec of a cell's run as text: the same for cells that share a run."""
    return json.dumps((quick_spec(cell.spec) if quick else cell.spec).to_dict(), sort_keys=True)


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
    cells: Container[str] | None = None,
    root: PathLike | None = None,
    n_jobs: int | None = None,
    seed: int = 0,
    n_workers: int = 1,
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
    cells : container of str, optional
        Run only the cells with these names.
    root : path, optional
        Folder of data sets, as in `experiments.datasets.load_dataset`.
    n_jobs : int, optional
        Threads per run; by default all cores, shared by the runs that are done at a time.
    seed : int
        Seed of the choice of rows and of the models.
    n_workers : int
        Runs that are done at a time. The results do not depend on it (but for times).
    timeout : float, optional
        Seconds that a run may take; runs that share a fit may take as much together as one by one.
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
        names, store=store, tables=tables or load_tables(), quick=quick, dataset=dataset, only=only, cells=cells,
        root=root, seed=seed, retry=retry,
    )  # fmt: skip
    queue = _grouped(job for job in jobs if job.state == TO_DO)
    if n_jobs is None and n_workers > 1:
        n_jobs = max(available_threads(None) // n_workers, 1)
    where = {"root": str(data_root(root)), "results": str(store.folder.absolute()), "seed": seed, "n_jobs": n_jobs}
    with report(sum(map(len, queue))) as show, Workers(n_workers, n_jobs=n_jobs, timeout=timeout) as workers:
        while queue or workers.busy:
            while queue and workers.free:
                batch, queue = queue[: QUICK_BATCH if quick else 1], queue[QUICK_BATCH if quick else 1 :]
                workers.start(batch, [_order(group) | where for group in batch])
            batch, reason = workers.wait()
            queue = _grouped(_read_results(batch, reason, store, seed=seed, show=show)) + queue
    return jobs


def _grouped(jobs: Iterable[Job]) -> list[list[Job]]:
    """Put runs that share a fit together, those with the most bits first."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        fit = shared_fit(job.spec)
        groups.setdefault(json.dumps([fit.to_dict(), job.fingerprint], sort_keys=True), []).append(job)
    return [sorted(group, key=lambda job: -job.spec.bits) for group in groups.values()]


def core_seconds(jobs: Iterable[Job], *, store: Store) -> float:
    """Add up the time that training and encoding of finished runs took, times their threads; a shared fit counts once.

    >>> core_seconds([], store=Store(Path("none")))
    0
    """
    finished = [job for job in jobs if job.state in (DONE, KEPT)]
    records = store.read()
    return sum(max(_core_seconds(records.get(job.key)) for job in group) for group in _grouped(finished))


def _core_seconds(record: dict[str, Any] | None) -> float:
    if record is None:
        return 0.0
    measures = record["measures"]
    return float(record["threads"] * (measures.get("fit_seconds", 0.0) + measures.get("encode_seconds", 0.0)))


def _order(group: list[Job]) -> dict[str, Any]:
    """Return the order to a worker to do the runs that share a fit."""
    runs = [{"cell": job.spec.to_dict(), "experiment": job.home, "slow": job.slow} for job in group]
    return {"runs": runs, "fingerprint": group[0].fingerprint}


def _read_results(
    batch: list[list[Job]], reason: str, store: Store, *, seed: int, show: Callable[[str, str], None]
) -> list[Job]:
    """Set the states of the runs of a batch; return those that another run kept from being done."""
    jobs = [job for group in batch for job in group]
    records = store.read()
    for number, job in enumerate(jobs):
        record = records.get(job.key)
        if record is None or record["status"] != "done":
            # this run ended the process
            job.state, job.reason = FAILED, reason
            _write_failure(job, store, seed=seed)
            show(job.name, reason)
            return jobs[number + 1 :]
        job.state = DONE
        show(job.name, DONE)
    return []


def _write_failure(job: Job, store: Store, *, seed: int) -> None:
    identity = {"cell": job.spec.to_dict(), "seed": seed, "fingerprint": job.fingerprint}
    store.write({**identity, "status": "failed", "error": job.reason}, job.home)
