"""What every bench shares: contenders take turns, the best of several counts, and a page is made of the files.

    python benchmarks/contest.py                          # what is not measured yet with this code, then the page
    python benchmarks/contest.py --report                 # only docs/results/speed.md and .json, from the files
    python benchmarks/bench_search.py                     # one bench, measured anew
    python benchmarks/bench_search.py --only "64 bits"    # those of its contests whose name has this in it
    python benchmarks/bench_search.py --tiny              # in seconds, for the tests; writes nothing by itself

A bench is a script `bench_NAME.py` with ``contests(setting)``: a dictionary from the name of a problem to a function
that runs it and gives a `Contest`. Before anything is timed, the tiny setting of the same bench runs, unrecorded, so
that every kernel is compiled and every library is loaded. Each contest is written to docs/results/speed/NAME.json as
soon as it is over, so an interrupted suite goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hashgrove
from hashgrove.runtime.threads import available_threads
from hashgrove.storage.atomic import atomic_write

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "results"
OURS = "hashgrove"
TURN = 0.05  # seconds that a turn lasts at least
BENCHES = ("training", "inference", "fit", "encoding", "search", "evaluation", "growth", "cold_start")
PACKAGES = {  # of the peers: module -> distribution
    "lightgbm": "lightgbm",
    "xgboost": "xgboost-cpu",
    "onnxruntime": "onnxruntime",
    "treelite": "treelite",
    "faiss": "faiss-cpu",
    "usearch": "usearch",
    "ortools": "ortools",
    "maxflow": "PyMaxflow",
}


@dataclass(frozen=True)
class Setting:
    """How a bench is run: in its tiny sizes or in its real ones, and the file of CIFAR-10 GIST, where given."""

    tiny: bool
    data: Path | None


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to do the job: ``run`` is timed on what ``prepare`` gives, which is timed by itself.

    ``share`` is the part of the problem that a run does; its time is divided by it. ``needs`` is a module without
    which the contender is left out.
    """

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    threads: int = 1
    share: float = 1.0
    needs: str | None = None
    note: str = ""


@dataclass
class Entry:
    """What a contender reached: its best time in seconds, and how its answer compares with ours."""

    name: str
    threads: int
    seconds: float
    rounds: int
    prepare_seconds: float
    note: str
    answer: Any = field(repr=False)
    agreement: str = ""


@dataclass
class Target:
    """What the issue asks for: ``reached`` must be at least (or at most) ``needed``; None where not measured."""

    what: str
    needed: float
    reached: float | None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where it was not measured."""
        if self.reached is None:
            return None
        return self.reached <= self.needed if self.at_most else self.reached >= self.needed

    @property
    def verdict(self) -> str:
        """In words, with how much is missing."""
        if self.reached is None:
            return "not measured"
        missing = self.reached / self.needed if self.at_most else self.needed / max(self.reached, 1e-12)
        return "yes" if self.met else f"**no**, by a factor of {missing:.2f}"


@dataclass
class Contest:
    """One problem, its entries (ours first), the targets, and whatever else was measured."""

    entries: list[Entry]
    targets: list[Target] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def race(contenders: Iterable[Contender], *, rounds: int = 3, patience: float = 30.0) -> list[Entry]:
    """Run the contenders in turns; one that has used up ``patience`` seconds is not run again.

    A short run is repeated within its turn, so that it finds its data in the cache as in a loop of its own.
    Contenders whose module is not installed are left out, and `main` says so.
    """
    entries: list[tuple[Contender, Any, Entry]] = []
    for contender in contenders:
        if contender.needs is None or installed(contender.needs):
            prepared, seconds = timed(contender.prepare)
            entry = Entry(contender.name, contender.threads, float("inf"), 0, seconds, contender.note, None)
            entries.append((contender, prepared, entry))
    spent = [0.0] * len(entries)
    for turn in range(rounds):
        for i, (contender, prepared, entry) in enumerate(entries):
            if turn and spent[i] > patience:
                continue
            end = spent[i] + TURN
            while True:
                entry.answer, seconds = timed(partial(contender.run, prepared))
                spent[i] += seconds
                entry.seconds = min(entry.seconds, seconds / contender.share)
                if spent[i] >= end:
                    break
            entry.rounds += 1
    return [entry for _, _, entry in entries]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What ``function`` gives, and how many seconds it took."""
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


def best(entries: Iterable[Entry], name: str) -> float | None:
    """The best time of a contender over its thread counts, None where it did not run."""
    return min((entry.seconds for entry in entries if entry.name == name), default=None)


def faster_than(entries: Sequence[Entry], peer: str, factor: float, *, ours: str = OURS, how: str = "") -> Target:
    """The target that ours is at least ``factor`` times as fast as ``peer``, each at its better thread count."""
    own, theirs = best(entries, ours), best(entries, peer)
    reached = None if own is None or theirs is None else theirs / own
    return Target(f"at least {factor:g}x {peer}{how}", factor, reached)


def on_one_thread(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that ran on one thread."""
    return [entry for entry in entries if entry.threads == 1]


def counted(threads: int) -> str:
    """The number of threads in words."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def installed(module: str) -> bool:
    """Whether a peer is there."""
    return find_spec(module) is not None


def processor() -> str:
    """The name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def machine() -> str:
    """Processor, cores and the versions that matter."""
    versions = [f"{name} {metadata.version(name)}" for name in ("numpy", "numba", "scipy", "scikit-learn")]
    versions += [f"{package} {metadata.version(package)}" for module, package in PACKAGES.items() if installed(module)]
    return f"{processor()}, {available_threads()} cores, Python {platform.python_version()}; {', '.join(versions)}"


def modules() -> list[str]:
    """The modules of the library that this process has loaded, without those that gather names or show progress."""
    root = Path(hashgrove.__file__).parent
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("hashgrove.")]
    names = [Path(file).relative_to(root).as_posix() for file in files if file]
    return sorted(name for name in names if not name.endswith(("__init__.py", "_version.py", "progress.py")))


def source(names: Iterable[str]) -> str:
    """A digest of these modules as they are now: a contest is measured again when one that it loads has changed."""
    root = Path(hashgrove.__file__).parent
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + ((root / name).read_bytes() if (root / name).exists() else b""))
    return digest.hexdigest()[:12]


def is_fresh(record: Mapping[str, Any]) -> bool:
    """Whether the code that a record was measured with is still the code."""
    return "modules" in record and source(record["modules"]) == record["source"]


def main(
    bench: str, contests: Callable[[Setting], Mapping[str, Callable[[], Contest]]], argv: Sequence[str] | None = None
) -> dict[str, Any]:
    """Run the contests of a bench as the command line says; returns their records, which it also writes."""
    parser = argparse.ArgumentParser(description=(sys.modules[contests.__module__].__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, not recorded")
    parser.add_argument("--data", type=Path, help="cifar10_gist512_u8.npz")
    parser.add_argument("--only", default="", metavar="TEXT", help="contests whose name has TEXT in it")
    parser.add_argument("--resume", action="store_true", help="not those that are measured with this code already")
    parser.add_argument("--results", type=Path, default=None, help="folder of the result files [docs/results/speed]")
    arguments = parser.parse_args(argv)
    folder = arguments.results or (None if arguments.tiny else DOCS / "speed")
    path = folder / f"{bench}.json" if folder else None
    records: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
    chosen = {
        name: contest
        for name, contest in contests(Setting(arguments.tiny, arguments.data)).items()
        if arguments.only in name and not (arguments.resume and is_fresh(records.get(name, {})))
    }
    missing = [package for module, package in PACKAGES.items() if not installed(module)]
    if missing:
        print(f"Left out, not installed: {', '.join(missing)}. Most come with pip install 'hashgrove[bench]'.")
    if chosen and not arguments.tiny:  # compilation is not speed
        for contest in contests(Setting(True, None)).values():
            contest()
    for name, contest in chosen.items():
        records[name] = _record(contest())
        print(f"\n## {bench}: {name}\n\n" + "\n".join(_table(records[name])), flush=True)
        if path:
            _write(path, json.dumps(records, indent=1))
    return records


def _record(contest: Contest) -> dict[str, Any]:
    entries = [{key: value for key, value in vars(entry).items() if key != "answer"} for entry in contest.entries]
    return {
        "entries": entries,
        "targets": [asdict(target) | {"met": target.met, "verdict": target.verdict} for target in contest.targets],
        "facts": contest.facts,
        "machine": machine(),
        "modules": (loaded := modules()),
        "source": source(loaded),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _table(record: Mapping[str, Any]) -> list[str]:
    """Entries, targets and facts of one contest in Markdown."""
    entries = record["entries"]
    lines = []
    if entries:
        lines += ["| contender | threads | time | x ours | prepare | rounds | agreement | note |", "|" + "---|" * 8]
    for e in entries:
        ours = [o["seconds"] for o in entries if o["name"] == OURS]
        same = [o["seconds"] for o in entries if o["name"] == OURS and o["threads"] == e["threads"]]
        ratio = "" if e["name"] == OURS or not ours else f"{e['seconds'] / (same or [min(ours)])[0]:.2f}"
        prepare = f"{duration(e['prepare_seconds'])}" if e["prepare_seconds"] > 1e-3 else ""
        lines.append(
            f"| {e['name']} | {e['threads']} | {duration(e['seconds'])} | {ratio} | {prepare} | {e['rounds']} "
            f"| {e['agreement']} | {e['note']} |"
        )
    if record["targets"]:
        lines += ["", "| target | reached | met |", "|---|---|---|"]
    lines += [f"| {_target_cells(target)} |" for target in record["targets"]]
    if record["facts"]:
        lines += ["", *(f"- {key}: {value}" for key, value in record["facts"].items())]
    return lines


def _target_cells(target: Mapping[str, Any]) -> str:
    reached = "" if target["reached"] is None else f"{target['reached']:.4g}"
    return f"{target['what']} | {reached} | {target['verdict']}"


def duration(seconds: float) -> str:
    """Seconds as a reader likes them.

    >>> duration(0.00123), duration(12.34)
    ('1.23 ms', '12.3 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"
    raise AssertionError("unreachable")


def report(folder: Path = DOCS / "speed") -> None:
    """Write speed.json and speed.md beside ``folder`` from the result files in it."""
    files = {bench: folder / f"{bench}.json" for bench in BENCHES}
    results = {bench: json.loads(path.read_text()) for bench, path in files.items() if path.exists()}
    machines = sorted({record["machine"] for records in results.values() for record in records.values()})
    lines = [
        "# Speed",
        "",
        "Made by `make bench`: the contenders of one table run in turns in one process, the best of several rounds",
        "counts, compilation excluded. `x ours` is a contender's time over ours at the same number of threads.",
        "",
        *(f"Machine: {text}." for text in machines),
        "A table that is older than a module that it measured says so.",
        "",
        "## Targets",
        "",
        "| kernel | problem | target | reached | met |",
        "|---|---|---|---|---|",
    ]
    for bench, records in results.items():
        for name, record in records.items():
            lines += [f"| {bench} | {name} | {_target_cells(target)} |" for target in record["targets"]]
    lines += ["", (HERE / "bounds.md").read_text().strip()]
    for bench, records in results.items():
        lines += ["", f"## {bench.replace('_', ' ').capitalize()}"]
        for name, record in records.items():
            measured = f"Measured {record['date']}."
            measured += "" if is_fresh(record) else " **The code has changed since.**"
            lines += ["", f"### {name}", "", measured, "", *_table(record)]
    _write(folder.parent / "speed.md", "\n".join(lines))
    _write(folder.parent / "speed.json", json.dumps(results, indent=1))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(f"{text}\n".encode())


def suite() -> None:
    """Every bench in a process of its own, then the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="only write the page")
    parser.add_argument("--data", help="cifar10_gist512_u8.npz, for the contests on real data")
    arguments = parser.parse_args()
    for bench in () if arguments.report else BENCHES:
        data = ["--data", arguments.data] if arguments.data else []
        subprocess.run([sys.executable, str(HERE / f"bench_{bench}.py"), "--resume", *data], check=True)
        report()
    report()


if __name__ == "__main__":
    suite()
