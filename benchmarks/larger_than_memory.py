"""Fits whose rows are on disk, within a limit of memory that counts the page cache, too.

    python benchmarks/larger_than_memory.py --folder /var/tmp --jobs posterior trees auto --memory 12
    python benchmarks/larger_than_memory.py --folder /var/tmp --jobs posterior --rows 1000000 --features 256
    python benchmarks/larger_than_memory.py --folder /var/tmp --jobs memory warm larger --rows 1000000 --features 3072

The first job writes the rows (classes with Gaussian noise, float32) into the folder; the others use them again, and
`--remove` deletes them at the end. Each job runs in a process of its own, and with `--memory` in a cgroup with this
limit (version 2 or 1; needs root). For each the largest private memory (RssAnon) and the largest memory of the cgroup,
page cache included, are printed, and what 128 bits would take by the seconds per bit.

`memory`, `warm` and `larger` are the same trees with `subset="tree"`: on bins in memory, on a store in the page cache,
and on a store of 1.5 times the limit of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from environment import machine
from hashgrove import BoostedTrees, FastHash, FeatureStore, StoredRows, build_store

N_BITS = 128  # that the seconds per bit are extrapolated to
PIECE = 8192  # rows that are made at a time
CGROUPS = Path("/sys/fs/cgroup")
DEFAULT_BITS = {"posterior": 64, "auto": 64, "trees": 2, "memory": 2, "warm": 2, "larger": 2}


def labels(options: argparse.Namespace) -> np.ndarray:
    """Return the classes of the rows."""
    return np.random.default_rng(1).integers(options.classes, size=options.rows)


def rows_file(options: argparse.Namespace) -> Path:
    """Return the file of the rows; write it if it is not there."""
    path = Path(options.folder) / f"rows-{options.rows}x{options.features}-{options.classes}.npy"
    if not path.exists():
        started, rng, y = time.perf_counter(), np.random.default_rng(0), labels(options)
        means = 0.25 * rng.standard_normal((options.classes, options.features), np.float32)
        unfinished = path.with_suffix(".part")
        shape = options.rows, options.features
        np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float32, shape=shape).flush()
        start = os.path.getsize(unfinished) - 4 * options.rows * options.features
        with open(unfinished, "r+b") as file:  # not through the mapping, which would count as memory
            file.seek(start)
            for first in range(0, options.rows, PIECE):
                part = means[y[first : first + PIECE]]
                part += rng.standard_normal(part.shape, np.float32)
                file.write(part.data)
        unfinished.rename(path)
        print(f"wrote {path.stat().st_size / 1e9:.1f} GB in {time.perf_counter() - started:.0f} s", flush=True)
    return path


def store_file(options: argparse.Namespace) -> Path:
    """Return the file of the bins; write it if it is not there."""
    path = rows_file(options).with_suffix(".bins")
    started, is_new = time.perf_counter(), not path.exists()
    build_store(rows_file(options), path)
    if is_new:
        print(
            f"made a store of {path.stat().st_size / 1e9:.1f} GB in {time.perf_counter() - started:.0f} s", flush=True
        )
    return path


def learner(name: str, options: argparse.Namespace) -> Any:
    """Return the hash function of a job."""
    if name in ("posterior", "auto"):
        return name
    if name == "trees":
        return BoostedTrees(max_depth=16, n_trees=options.trees)
    return BoostedTrees(n_trees=options.trees, subset="tree")


def rows_in_bins(path: Path) -> Any:
    """Return an object that learners take for a store, with its bins in memory."""
    store = FeatureStore(path)
    store.bins = np.array(store.bins)
    return store


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Carry out a job in this process, after a small one that compiles what it needs."""
    rng, y = np.random.default_rng(0), np.arange(3000) % 5
    hasher = FastHash(4, hash_function=learner(name, options), random_state=0, n_jobs=options.threads)
    hasher.fit(rng.standard_normal((3000, 64), np.float32) + 9 * np.eye(5, 64, dtype=np.float32)[y], y)
    rows: Any = StoredRows(rows_file(options), cache=options.folder)
    if name in ("memory", "warm", "larger"):
        rows = rows_in_bins(store_file(options)) if name == "memory" else FeatureStore(store_file(options))
    hasher.set_params(n_bits=options.bits or DEFAULT_BITS[name], callbacks=[tell] if options.verbose else [])
    sampler = PrivateMemory()
    cpu, clock = time.process_time(), time.perf_counter()
    with sampler:
        hasher.fit(rows, labels(options))
    seconds = time.perf_counter() - clock
    of_bits = sum(record.seconds_inference + record.seconds_learning for record in hasher.history_)
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "seconds_per_bit": of_bits / len(hasher.history_),
        "n_learned": len(hasher.history_),
        "learned": str(hasher.hash_function_),
        "private_before": sampler.before,
        "private": sampler.largest,
        "largest_resident": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def tell(record: Any) -> None:
    """Print the record of a bit."""
    print(record, file=sys.stderr, flush=True)


class PrivateMemory:
    """A block during which the private memory of this process is looked at twenty times per second."""

    def __init__(self) -> None:
        self.before = self.largest = private_memory()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PrivateMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self.largest = max(self.largest, private_memory())


def private_memory() -> int:
    """Return the memory of this process that is not that of a file, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


class Cgroup:
    """A cgroup with a limit of memory, or None where none can be made."""

    def __init__(self, limit: float) -> None:
        is_new = (CGROUPS / "cgroup.controllers").exists()  # version 2
        self.folder = (CGROUPS if is_new else CGROUPS / "memory") / f"hashgrove-{os.getpid()}"
        self._peak = "memory.peak" if is_new else "memory.max_usage_in_bytes"
        self.folder.mkdir()
        (self.folder / ("memory.max" if is_new else "memory.limit_in_bytes")).write_text(str(int(limit * 1e9)))

    def enter(self) -> None:
        """Move this process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> float:
        """Delete the group; returns the largest memory of all processes in it, in GB."""
        peak = int((self.folder / self._peak).read_text()) / 1e9
        self.folder.rmdir()
        return peak


def forget(folder: Path) -> None:
    """Take the files of a folder out of the page cache, where they would not count as memory of the cgroup."""
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(name: str, options: argparse.Namespace, limit: float | None) -> dict[str, Any] | None:
    """Run a job in a process of its own, with a limit of memory in GB, and print what it took."""
    group = None if limit is None else Cgroup(limit)
    if group is not None:
        forget(Path(options.folder))
    given = [f"--{key}={value}" for key, value in vars(options).items() if key in GIVEN and value is not None]
    enter: Callable[[], None] | None = None if group is None else group.enter
    command = [sys.executable, __file__, f"--run={name}", *given, *(["--verbose"] if options.verbose else [])]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, preexec_fn=enter)
    peak = "" if group is None else f"{group.remove():.2f} GB with the page cache, of {limit:.2f}; "
    if child.returncode:
        print(f"{name}: {peak}ended with {child.returncode}", flush=True)
        return None
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    n = found["n_learned"]
    each, own = found["seconds_per_bit"], found["private_before"] / 1e9
    before = found["seconds"] - each * n
    print(
        f"{name}: {found['learned']}\n"
        f"    {found['private'] / 1e9:.2f} GB private, {own:.2f} of them before the fit; {peak}\n"
        f"    {found['seconds']:.1f} s, {found['cpu_seconds']:.1f} s of CPU: {before:.1f} s, and {n} learned bits of "
        f"{each:.2f} s; {N_BITS} bits would take {before + N_BITS * each:.0f} s",
        flush=True,
    )
    return found


GIVEN = ("rows", "features", "classes", "bits", "threads", "trees", "folder")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="Where rows and bins are written.")
    parser.add_argument("--jobs", nargs="+", choices=DEFAULT_BITS, default=["posterior", "trees", "auto"])
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--bits", type=int)
    parser.add_argument("--trees", type=int, default=20, help="Of a bit; the default of BoostedTrees is 290.")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory", type=float, help="Limit of memory in GB, page cache included.")
    parser.add_argument("--remove", action="store_true", help="Delete rows and bins at the end.")
    parser.add_argument("--verbose", action="store_true", help="Print each bit.")
    parser.add_argument("--run", choices=DEFAULT_BITS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.makedirs(options.folder, exist_ok=True)
    if options.run is not None:
        print(json.dumps(run(options.run, options)))
        return {}
    print(machine(), flush=True)
    rows, found = rows_file(options), {}
    if {"memory", "warm", "larger"} & {*options.jobs}:
        store_file(options)
    for name in options.jobs:
        limit = store_file(options).stat().st_size / 1.5e9 if name == "larger" else options.memory
        found[name] = measure(name, options, limit)
    for name in ("warm", "larger"):
        if found.get("memory") and found.get(name):
            print(f"{name} / memory: {found[name]['seconds'] / found['memory']['seconds']:.2f}")
    if options.remove:
        for file in (rows, *Path(options.folder).glob("bins-*"), *Path(options.folder).glob("rows-*.bins")):
            file.unlink()
    return found


if __name__ == "__main__":
    main()
