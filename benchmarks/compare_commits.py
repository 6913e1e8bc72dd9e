"""Compare the speed of this source tree with that of an earlier commit: key kernels and whole fits, side by side.

    make bench-change                                                # this tree and the commit before HEAD
    make bench-change BASE=main                                      # ... and any other commit
    python benchmarks/compare_commits.py --only scan                 # only the jobs with "scan" in their name
    python benchmarks/compare_commits.py --fits ../shared/data       # also fits on real data, with their MAP

The commit is checked out into a temporary worktree of git. Each side runs in a process of its own, which imports
hashgrove from its tree and keeps compiled kernels there; both run the jobs of this file, which use public names only.
The sides take turns, so that what else the machine does slows down both, and the best turn of each counts. This tree
is measured as it is now, with changes that are not committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Both sides run this file. So hashgrove and what imports it are not imported up here, and the jobs use what is public.

REPOSITORY = Path(__file__).resolve().parent.parent
ROUNDS = 5
PATIENCE = 120.0  # seconds: a job whose turns have taken longer gets no further round
SHORTEST_TURN = 0.1  # seconds: a shorter job is repeated within its turn
NEARBY_FLIPS = 4
WIDE = ("avx512vpopcntdq", "avx512vbmi", "avx512bw", "avx2", "popcnt", "neon")  # the features that kernels ask for


@dataclass
class Job:
    """Something to time, what its answer consists of, and how good the answer is."""

    run: Callable[[], Any]
    parts: Callable[[Any], Any] = lambda answer: answer
    score: Callable[[Any], float] | None = None


def scan(n: int, n_bits: int, n_queries: int) -> Job:
    """Find the 100 nearest of uniform codes."""
    from hashgrove import FlatIndex

    codes = uniform_codes(n + n_queries, n_bits)
    index, queries = FlatIndex(codes[:n]), codes[n:]
    return Job(lambda: index.search(queries, min(100, n), n_jobs=1))


def radius_search(n: int, n_queries: int) -> Job:
    """Find all uniform codes of 64 bits within a radius that holds about one in 25,000."""
    from hashgrove import FlatIndex

    codes = uniform_codes(n + n_queries, 64)
    index, queries = FlatIndex(codes[:n]), codes[n:]
    return Job(lambda: index.search_radius(queries, 16, n_jobs=1))


def multi_index_search(n: int, n_queries: int) -> Job:
    """Find the 10 nearest of uniform codes by tables; each query is an item with a few bits flipped."""
    from hashgrove import MultiIndex, pack, unpack

    codes = uniform_codes(n, 64)
    rng = np.random.default_rng(1)
    bits = np.asarray(unpack(codes[rng.integers(n, size=n_queries)], 64)) > 0
    flips = rng.random(bits.shape).argsort(axis=1) < NEARBY_FLIPS
    queries = pack(bits ^ flips)
    index = MultiIndex(codes)
    index.prepare()
    return Job(lambda: index.search(queries, 10, n_jobs=1))


def evaluation(n_queries: int, n: int) -> Job:
    """Evaluate codes of 64 bits of ten classes, with the expectation over ties."""
    from hashgrove import FlatIndex, evaluate, pack

    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n + n_queries)
    centres = rng.random((10, 64)) < 0.5
    codes = pack(centres[y] ^ (rng.random((len(y), 64)) < 0.3))
    index = FlatIndex(codes[:n])
    run = partial(
        evaluate, index, codes[n:], y_queries=y[n:], y_database=y[:n], k=100, ties="expected", knn=None, n_jobs=1
    )
    return Job(run, lambda report: [report.map, report.precision_at_k, report.precision, report.recall])


def one_bit_of_trees(n: int, n_features: int) -> Job:
    """Bin the features and learn the boosted trees of one bit."""
    from hashgrove import BoostedTrees

    X, y = class_rows(n, n_features, 2)
    bit = np.where(y == 1, 1, -1).astype(np.int8)
    learner = BoostedTrees()

    def run() -> Any:
        data = learner.prepare(X, np.random.default_rng(0), n_jobs=1)
        return learner.learn(data, bit, None, np.random.default_rng(0))

    return Job(run, lambda answer: answer[1])


def tree_encoding(n: int, n_features: int, n_bits: int) -> Job:
    """Encode rows with boosted trees that were learned from a few of them."""
    from hashgrove import BoostedTrees, FastHash

    X, y = class_rows(n, n_features, 10)
    hasher = FastHash(n_bits, hash_function=BoostedTrees(), random_state=0, n_jobs=1).fit(X[:1_000], y[:1_000])
    return Job(lambda: hasher.transform(X))


def synthetic_fit(n: int, n_features: int, n_classes: int, hash_function: str) -> Job:
    """Fit 64 bits to Gaussian classes."""
    from hashgrove import FastHash

    X, y = class_rows(n, n_features, n_classes)
    hasher = FastHash(64, hash_function=hash_function, random_state=0, n_jobs=1)
    return Job(lambda: hasher.fit(X, y), lambda fitted: fitted.transform(X))


def real_fit(load: Callable[[], tuple[Any, Any, Any, Any]], n_jobs: int) -> Job:
    """Fit 64 bits with default settings to real features; the score is the MAP among held-out rows."""
    from hashgrove import FastHash

    X, y, X_test, y_test = load()
    hasher = FastHash(64, random_state=0, n_jobs=n_jobs)
    return Job(
        lambda: hasher.fit(X, y), lambda fitted: fitted.transform(X_test), lambda fitted: fitted.score(X_test, y_test)
    )


def uniform_codes(n: int, n_bits: int) -> NDArray[np.uint8]:
    """Make codes without any structure."""
    return np.random.default_rng(0).integers(256, size=(n, n_bits // 8), dtype=np.uint8)


def class_rows(n: int, n_features: int, n_classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Make rows of Gaussian classes whose centres are about five standard deviations apart."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, n_features), np.float32) * np.float32(5 / np.sqrt(2 * n_features))
    y = np.arange(n) % n_classes
    return centres[y] + rng.standard_normal((n, n_features), np.float32), y


def tiny_imagenet(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Read 2,892 training rows of 100 classes, 1,280 deep features, and the 5,000 test rows."""
    with np.load(folder / "tinyimagenet100_eff.npz") as file:
        X, y, is_test = file["eff_u8"] * file["eff_scale"] + file["eff_lo"], file["y"], file["is_test"]
    train = np.random.default_rng(0).permutation(np.flatnonzero(~is_test))[:2_892]
    return X[train], y[train], X[is_test], y[is_test]


def cifar10_gist(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Read the 50,000 training rows, 512 GIST features, and the 10,000 test rows."""
    with np.load(folder / "cifar10_gist512_u8.npz") as file:
        X, y = file["X"] * file["scale"] + file["lo"], file["y"]
    return X[:50_000], y[:50_000], X[50_000:], y[50_000:]


def jobs(*, tiny: bool, data: Path | None) -> dict[str, Callable[[], Job]]:
    """Return all jobs by name; ``data`` is the folder of the real features, if these are to be fitted too."""
    many, some, few, dims = (1_000, 300, 200, 16) if tiny else (1_000_000, 20_000, 2_892, 1_280)
    n_classes = 5 if tiny else 101
    found: dict[str, Callable[[], Job]] = {
        "scan, 64 bits, one query": partial(scan, many, 64, 1),
        "scan, 64 bits, batch of 64": partial(scan, many, 64, 64),
        "scan, 128 bits, batch of 64": partial(scan, many, 128, 64),
        "scan, 1024 bits, batch of 64": partial(scan, many // 5, 1024, 64),
        "radius search, 64 bits, batch of 64": partial(radius_search, many, 64),
        "MultiIndex search, 64 bits, 300 queries": partial(multi_index_search, many, 300),
        "evaluation with ties, 64 bits": partial(evaluation, some // 10, some),
        "trees, learn one bit": partial(one_bit_of_trees, some, min(dims, 256)),
        "trees, encode 16 bits": partial(tree_encoding, some, min(dims, 256), 16),
        "posterior bits, fit 64 bits": partial(synthetic_fit, few, dims, n_classes, "posterior"),
        "auto, fit 64 bits": partial(synthetic_fit, few, dims, n_classes, "auto"),
    }
    if data is not None:
        for name, load in (("Tiny-ImageNet", tiny_imagenet), ("CIFAR-10 GIST", cifar10_gist)):
            for threads in (1, 2):
                found[f"auto, fit {name}, threads: {threads}"] = partial(real_fit, partial(load, data), threads)
    return found


def checksum(answer: Any) -> str:
    """Return a checksum of all numbers in an answer.

    >>> checksum([np.arange(2), 0.5]) == checksum((np.arange(2), 0.5)) != checksum([np.arange(2), 0.6])
    True
    """
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, np.ndarray) and part.dtype != object:
            digest.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        elif isinstance(part, float | int | str | np.generic):
            digest.update(repr(part).encode())
        else:
            for one in part:
                add(one)

    add(answer)
    return digest.hexdigest()[:12]


def turn(job: Job) -> float:
    """Run a job for a turn; return the best seconds."""
    best, end = float("inf"), time.perf_counter() + SHORTEST_TURN
    while True:
        start = time.perf_counter()
        job.run()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best


def work(found: dict[str, Callable[[], Job]]) -> None:
    """Be one side: read the name of a job to prepare, or an empty line for a turn of it; answer by a line of JSON."""
    import hashgrove

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints must not come between the answers
    print(json.dumps({"package": hashgrove.__file__}), file=answers, flush=True)
    job = None
    for line in sys.stdin:
        name = line.strip()
        if name:
            job = None  # frees the memory of the last one
            job = found[name]()
            answer = job.run()  # compiles the kernels
            said: dict[str, Any] = {
                "checksum": checksum(job.parts(answer)),
                "score": None if job.score is None else job.score(answer),
            }
        else:
            assert job is not None, "a job is prepared before its first turn"
            said = {"seconds": turn(job)}
        print(json.dumps(said), file=answers, flush=True)


class Side:
    """A process that runs the jobs with the package of one source tree."""

    def __init__(self, tree: Path, options: Sequence[str]) -> None:
        unwanted = ("NUMBA_CACHE_DIR", "COVERAGE_PROCESS")  # each tree keeps its own kernels; nothing slows them down
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self.tree = tree
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--side", *options],
            env=kept | {"PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Side:
        package = Path(self._read()["package"])
        if not package.is_relative_to(self.tree):
            raise RuntimeError(f"the process for {self.tree} imports hashgrove from {package.parent}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, line: str) -> dict[str, Any]:
        """Send the name of a job, or an empty line for a turn of it; return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {self.tree} ended with status {self.process.wait()}")
        return json.loads(line)


def git(*arguments: str) -> str:
    """Run git in this repository; return what it printed."""
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hashgrove-base-") as folder:
        tree = Path(folder).resolve() / "base"
        git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def compare(name: str, base: Side, now: Side) -> dict[str, Any]:
    """Let both sides run a job in turns; the side that begins changes with each round."""
    said = {side: side.ask(name) for side in (base, now)}
    best = dict.fromkeys((base, now), float("inf"))
    rounds, started = 0, time.monotonic()
    while rounds < ROUNDS and (not rounds or time.monotonic() - started < PATIENCE):
        for side in (base, now) if rounds % 2 == 0 else (now, base):
            best[side] = min(best[side], side.ask("")["seconds"])
        rounds += 1
    same = "same" if said[base]["checksum"] == said[now]["checksum"] else "**differ**"
    scores = [said[side]["score"] for side in (base, now)]
    if scores[0] is not None:
        same += f"; MAP {scores[0]:.4f}, {scores[1]:.4f}"
    return {"name": name, "base": best[base], "now": best[now], "rounds": rounds, "answers": same}


def instruction_set() -> str:
    """Name the vector instructions that numba may use here, of those that kernels ask for."""
    import llvmlite.binding as llvm
    from numba import config

    host = (name for name, has in llvm.get_host_cpu_features().items() if has)
    features = set(config.CPU_FEATURES.replace("+", "").split(",") if config.CPU_NAME else host)
    return ", ".join(name for name in WIDE if name in features) or "none of " + ", ".join(WIDE)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Compare the two sides, and print a line of a table after each job."""
    parser = argparse.ArgumentParser(description="Compare the speed of this source tree with that of a commit.")
    parser.add_argument("--base", default="HEAD~1", metavar="COMMIT", help="commit to compare with (default: HEAD~1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the jobs that have this text in their name")
    parser.add_argument("--fits", type=Path, metavar="DATA_FOLDER", help="also fit the real features in this folder")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    found = jobs(tiny=options.tiny, data=options.fits)
    if options.side:
        work(found)
        return []
    from environment import processor
    from speed_tables import duration

    names = [name for name in found if options.only in name]
    if not names:
        parser.error(f"no job has {options.only!r} in its name; there are: {'; '.join(found)}")
    commit = git("rev-parse", "--verify", f"{options.base}^{{commit}}")
    changes = ", with changes that are not committed" if git("status", "--porcelain") else ""
    given = [*(["--tiny"] if options.tiny else []), *(["--fits", str(options.fits)] if options.fits else [])]
    print(f"base: {git('log', '-1', '--format=%h %s', commit)}")
    print(f"now:  {git('log', '-1', '--format=%h %s')}{changes}")
    print(f"{processor()}, {os.cpu_count()} cores; instructions: {instruction_set()}")
    print(f"load at the start: {os.getloadavg()[0]:.1f}; one thread unless stated; best of up to {ROUNDS} turns\n")
    print("| job | base | now | now / base | rounds | answers |\n|---|---:|---:|---:|---:|---|", flush=True)
    rows = []
    with ExitStack() as stack:
        tree = stack.enter_context(worktree(commit))
        base, now = (stack.enter_context(Side(folder, given)) for folder in (tree, REPOSITORY))
        for name in names:
            row = compare(name, base, now)
            times = f"{duration(row['base'])} | {duration(row['now'])} | {row['now'] / row['base']:.3f}"
            print(f"| {name} | {times} | {row['rounds']} | {row['answers']} |", flush=True)
            rows.append(row)
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")
    return rows


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the worktree is removed
    main()
