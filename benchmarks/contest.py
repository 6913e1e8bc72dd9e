"""What all contests share: contenders take turns, the best turn counts, and the page of results is made from files.

    python benchmarks/contest.py                          # measure what this code has not measured yet
    python benchmarks/contest.py --report                 # only write docs/results/speed.md, from the files
    python benchmarks/bench_search.py                     # measure one bench again
    python benchmarks/bench_search.py --only "64 bits"    # only its contests with this text in their names
    python benchmarks/bench_search.py --tiny              # tiny sizes, for the tests; stores nothing

The whole suite takes about half an hour on two cores: a contender gets no further turn once its best time is stable
(`race`). The contests whose figures are the oldest come first; ``--minutes 20`` begins none after so many minutes.

Contests of kernels run a second time with the kernels held to AVX2 (`with_held`), for readers whose processor has no
AVX-512: in a process of its own, in which numba compiles for a Haswell.

A bench is a script `bench_NAME.py` with a function ``contests(setting)``. It returns a dictionary from the name of a
problem to a function that runs it and returns a `Contest`. Before anything is timed, the tiny version of the same bench
runs, so that every kernel is compiled and every library is loaded. Each contest is written to
docs/results/speed/NAME.json as soon as it ends, so an interrupted suite goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from environment import PACKAGES, installed, is_fresh, is_held, load, machine, modules, source
from hashgrove.storage.atomic import atomic_write
from speed_tables import OURS, Target, contest_table, target_cells

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # for the package of experiments, which draws a picture
DOCS = HERE.parent / "docs" / "results"
HELD = ", kernels held to AVX2"
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt",
}
SHORTEST_TURN = 0.05  # seconds
STABLE_TURNS, STABLE = 2, 0.01  # turns in which the best time fell by no more than this share: it is stable
PATIENCE = 8.0  # seconds of turns of a contender
BENCHES = (
    "training",
    "hyperplanes",
    "inference",
    "fit",
    "encoding",
    "search",
    "multi_index",
    "engines",
    "evaluation",
    "growth",
    "cold_start",
    "serve",
)


@dataclass(frozen=True)
class Setting:
    """How a bench is run: with tiny or real sizes, and with which file of CIFAR-10 GIST, if any."""

    tiny: bool
    data: Path | None


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to solve the problem: ``run`` is timed on what ``prepare`` returns, and ``prepare`` is timed separately.

    ``share`` is the part of the problem that a run solves; its time is divided by it. ``needs`` names a module; if it
    is not installed, the contender is left out.
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
    """The result of a contender: its best time in seconds, and how its answer compares with ours."""

    name: str
    threads: int
    seconds: float
    rounds: int
    prepare_seconds: float
    note: str
    answer: Any = field(repr=False)
    agreement: str = ""


@dataclass
class Contest:
    """One problem: its entries (ours first), targets, and other facts that were measured."""

    entries: list[Entry]
    targets: list[Target] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    machine: str | None = None  # that of another process, if it ran there


def race(contenders: Iterable[Contender], *, rounds: int = 3, patience: float = PATIENCE) -> list[Entry]:
    """Run the contenders in turns, each once at least.

    A contender gets no further turn once it has used up ``patience`` seconds, or if its best time is stable.

    A short run is repeated within its turn, so that it finds its data in the cache. Contenders whose module is not
    installed are left out; `main` prints which.
    """
    entries: list[tuple[Contender, Any, Entry]] = []
    for contender in contenders:
        if contender.needs is None or installed(contender.needs):
            prepared, seconds = timed(contender.prepare)
            entry = Entry(contender.name, contender.threads, float("inf"), 0, seconds, contender.note, None)
            entries.append((contender, prepared, entry))
    spent, unchanged = [0.0] * len(entries), [0] * len(entries)
    for turn in range(rounds):
        for i, (contender, prepared, entry) in enumerate(entries):
            if turn and (spent[i] > patience or unchanged[i] >= STABLE_TURNS):
                continue
            end, before = spent[i] + SHORTEST_TURN, entry.seconds
            while True:
                entry.answer, seconds = timed(partial(contender.run, prepared))
                spent[i] += seconds
                entry.seconds = min(entry.seconds, seconds / contender.share)
                if spent[i] >= end:
                    break
            entry.rounds += 1
            unchanged[i] = unchanged[i] + 1 if entry.seconds > before * (1 - STABLE) else 0
    return [entry for _, _, entry in entries]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call ``function``; return its value and the seconds that it took."""
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


def best(entries: Iterable[Entry], name: str) -> float | None:
    """Return the best time of a contender over all numbers of threads; None if it did not run."""
    return min((entry.seconds for entry in entries if entry.name == name), default=None)


def faster_than(entries: Sequence[Entry], peer: str, factor: float, *, ours: str = OURS, how: str = "") -> Target:
    """Return the target that ours is ``factor`` times as fast as ``peer``, each at its best number of threads."""
    our_time, their_time = best(entries, ours), best(entries, peer)
    reached = None if our_time is None or their_time is None else their_time / our_time
    return Target(f"at least {factor:g}x {peer}{how}", factor, reached)


def on_one_thread(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that ran on one thread."""
    return [entry for entry in entries if entry.threads == 1]


def counted(threads: int) -> str:
    """Return the number of threads in words."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def with_held(
    found: Mapping[str, Callable[[], Contest]], names: Iterable[str], script: str, setting: Setting
) -> dict[str, Callable[[], Contest]]:
    """Return these contests, and those named once more with their kernels held to AVX2.

    ``script`` is the file of the bench. In a process that is held already, nothing is added.
    """
    added = {} if is_held() else {f"{name}{HELD}": partial(_held, script, name, setting) for name in names}
    return {**found, **added}


def _held(script: str, name: str, setting: Setting) -> Contest:
    options = [*(["--tiny"] if setting.tiny else []), *(["--data", str(setting.data)] if setting.data else [])]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, script, "--one", name, "--results", folder, *options]
        subprocess.run(command, env=os.environ | AVX2, stdout=subprocess.DEVNULL, check=True)
        [path] = Path(folder).glob("*.json")
        [record] = json.loads(path.read_text()).values()
    entries = [Entry(**fields, answer=None) for fields in record["entries"]]
    return Contest(entries, [Target(**fields) for fields in record["targets"]], record["facts"], record["machine"])


def main(
    bench: str, contests: Callable[[Setting], Mapping[str, Callable[[], Contest]]], argv: Sequence[str] | None = None
) -> dict[str, Any]:
    """Run the contests of a bench as the command line says; store and return their records."""
    parser = argparse.ArgumentParser(description=(sys.modules[contests.__module__].__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; nothing is stored")
    parser.add_argument("--data", type=Path, help="cifar10_gist512_u8.npz")
    parser.add_argument("--only", default="", metavar="TEXT", help="only contests with TEXT in their names")
    parser.add_argument("--one", default=None, metavar="NAME", help="only the contest of this name")
    parser.add_argument("--resume", action="store_true", help="skip contests that were measured with the present code")
    parser.add_argument("--minutes", type=float, default=None, help="begin no contest after so many minutes")
    parser.add_argument(
        "--results", type=Path, default=None, help="folder of the result files; by default docs/results/speed"
    )
    arguments = parser.parse_args(argv)
    folder = arguments.results or (None if arguments.tiny else DOCS / "speed")
    path = folder / f"{bench}.json" if folder else None
    records: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
    found = contests(Setting(arguments.tiny, arguments.data))
    if arguments.resume:  # what is no contest any more
        records = {name: record for name, record in records.items() if name in found}
    chosen = {
        name: found[name]
        for name in sorted(found, key=lambda name: records.get(name, {}).get("date", ""))
        if arguments.only in name
        and arguments.one in (None, name)
        and not (arguments.resume and is_fresh(records.get(name, {})))
    }
    missing = [package for module, package in PACKAGES.items() if not installed(module)]
    if missing:
        print(
            f"Not installed and left out: {', '.join(missing)}. pip install 'hashgrove[bench]' installs most of them."
        )
    if chosen and not arguments.tiny:  # compiles everything, so that no contest times it
        for name, contest in contests(Setting(True, None)).items():
            if HELD not in name:
                contest()
    started = time.monotonic()
    for name, contest in chosen.items():
        if arguments.minutes is not None and time.monotonic() - started > 60 * arguments.minutes:
            break
        before = load()
        records[name], seconds = timed(partial(_run, contest))
        records[name] |= {"load": before, "minutes": seconds / 60}
        print(f"\n## {bench}: {name}\n\n" + "\n".join(contest_table(records[name])), flush=True)
        if path:
            _write(path, json.dumps(records, indent=1))
    return records


def _run(contest: Callable[[], Contest]) -> dict[str, Any]:
    return _record(contest())


def _record(contest: Contest) -> dict[str, Any]:
    entries = [{key: value for key, value in vars(entry).items() if key != "answer"} for entry in contest.entries]
    return {
        "entries": entries,
        "targets": [asdict(target) for target in contest.targets],
        "facts": contest.facts,
        "machine": contest.machine or machine(),
        "modules": (loaded := modules()),
        "source": source(loaded),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def report(folder: Path = DOCS / "speed") -> None:
    """Write speed.md, beside ``folder``, from the result files in it; and the picture of the bench `growth`."""
    files = {bench: folder / f"{bench}.json" for bench in BENCHES}
    results = {bench: json.loads(path.read_text()) for bench, path in files.items() if path.exists()}
    machines = sorted({record["machine"] for records in results.values() for record in records.values()})
    lines = [
        "# Speed",
        "",
        "Made by `make bench`. The contenders of a table run in turns in one process, and the best of several rounds",
        "counts, without compilation. `x ours` is the time of a contender divided by ours, with as many threads.",
        "A table that was measured with older code says so. The load is how many cores other programs used just",
        "before; times that were measured above about 0.2 are not to be relied on. [All results](../results.md).",
        "",
        *(f"Machine: {text}." for text in machines),
        "",
        "## Targets",
        "",
        "| bench | problem | target | reached | met |",
        "|---|---|---|---|---|",
    ]
    for bench, records in results.items():
        for name, record in records.items():
            lines += [f"| {bench} | {name} | {target_cells(Target(**target))} |" for target in record["targets"]]
    lines += ["", (HERE / "bounds.md").read_text().strip()]
    for bench, records in results.items():
        lines += ["", f"## {bench.replace('_', ' ').capitalize()}"]
        if bench == "growth":
            from bench_growth import plot

            plot(records, folder.parent / "growth.svg")
            lines += ["", "![Time of a fit by points, bits, features and depth](growth.svg)"]
        for name, record in records.items():
            measured = f"Measured {record['date']} on {record['machine'].partition(', ')[0]}."
            measured += f" Load before: {record['load']:.2f}." if "load" in record else " The load was not recorded."
            measured += "" if is_fresh(record) else " **The code has changed since.**"
            lines += ["", f"### {name}", "", measured, "", *contest_table(record)]
    _write(folder.parent / "speed.md", "\n".join(lines))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(f"{text}\n".encode())


def suite() -> None:
    """Run every bench in its own process, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="only write the page")
    parser.add_argument("--data", help="cifar10_gist512_u8.npz, for the contests on real data")
    parser.add_argument("--minutes", type=float, help="begin no contest after so many minutes")
    arguments = parser.parse_args()
    started = time.monotonic()
    for bench in () if arguments.report else sorted(BENCHES, key=_oldest):
        options = ["--data", arguments.data] if arguments.data else []
        if arguments.minutes is not None:
            left = arguments.minutes - (time.monotonic() - started) / 60
            if left < 0:
                break
            options += ["--minutes", f"{left:.2f}"]
        subprocess.run([sys.executable, str(HERE / f"bench_{bench}.py"), "--resume", *options], check=True)
        report()
    report()


def _oldest(bench: str) -> str:
    """The date of the oldest figures of a bench that were made with other code; the last bench has none."""
    path = DOCS / "speed" / f"{bench}.json"
    records = json.loads(path.read_text()).values() if path.exists() else [{}]
    return min((record.get("date", "") for record in records if not is_fresh(record)), default="9")


if __name__ == "__main__":
    suite()
