"""Attacks the readers of untrusted files with mutations that coverage guides: ``make fuzz``, which needs atheris.

    python tests/hostile/guided.py --runs 1000000 --reader model   # one reader; without --reader all of them
    python tests/hostile/guided.py --minutes 10                    # each reader for so long at most
    python tests/hostile/guided.py --show                          # shows that coverage guides it

atheris runs libFuzzer, which keeps every input that reaches new code of hashgrove and mutates it further. An input is a
number, which says what makes a file of the rest (a seed of the reader, see `fuzz_seeds`), and that rest. What
`tests/hostile/fuzz.py` calls a failure is one here too. Inputs that fail are written to the folder of the reader, one
for each place in the code; inputs that reach new code stay there as well, so the next run goes on from them. Of
modules with kernels, which numba compiles, coverage sees nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from itertools import islice
from pathlib import Path

sys.path += [str(folder) for folder in Path(__file__).resolve().parents[1:3]]  # when it is run as a command

import fuzz
import fuzz_corpus
from fuzz_readers import READERS
from fuzz_seeds import Reader, Seed

REPOSITORY = Path(__file__).resolve().parents[2]
LARGEST = 2**14  # bytes of an input
SECONDS = 100  # for one input, on a busy machine
SETTINGS = f"-max_len={LARGEST}", f"-timeout={SECONDS}", "-rss_limit_mb=4096", "-print_final_stats=1", "-len_control=0"
LIBRARIES = "zipfile", "numpy.lib._format_impl", "python_multipart.multipart", "starlette.formparsers"  # traced, too
MEMORY = Path("/dev/shm")  # for the file that is read, and temporary ones


def with_kernels():
    """The modules of hashgrove that numba compiles code of: tracing would add calls that it cannot compile."""
    source = REPOSITORY / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in (source / "hashgrove").rglob("*.py")
        if re.search(r"^\s*@(kernel|intrinsic|njit)", path.read_text(), re.MULTILINE)
    ]


def planted(path):
    """A reader with a fault behind five conditions, each of which must be met before the next is seen."""
    content = path.read_bytes().ljust(5, b".")
    if content[0] % 64 != 7:
        return
    if content[1] % 64 != 21:
        return
    if content[2] % 64 != 3:
        return
    if content[3] % 64 != 44:
        return
    if content[4] % 64 == 31:
        raise KeyError("found")


PLANTED = Reader(lambda: [Seed(b".....")], ".x", (planted,))


def functions_of(*names):
    """The functions of modules that have been imported, and the methods of their classes."""
    for module in (sys.modules[name] for name in names if name in sys.modules):
        holders = [module, *(thing for thing in vars(module).values() if inspect.isclass(thing))]
        functions = {thing for holder in holders for thing in vars(holder).values() if inspect.isfunction(thing)}
        yield from (function for function in functions if function.__code__.co_filename == module.__file__)


def place_of_files():
    """A folder for the file that is read and for temporary ones, in memory if possible."""
    tempfile.tempdir = tempfile.mkdtemp(prefix="guided-", dir=MEMORY if MEMORY.is_dir() else None)
    return Path(tempfile.tempdir)


class Target:
    """What libFuzzer calls with each input."""

    def __init__(self, name, reader, folder):
        self.reader, self.folder = reader, folder
        self.seeds = [*reader.seeds(), *(Seed(content) for content in fuzz_corpus.files(name).values())]
        self.path = place_of_files() / f"input{reader.suffix}"
        self.known = {json.loads(line)["place"] for line in self._notes().splitlines()}
        for payload, wrap in self.seeds:  # import and compile before memory is limited
            self.path.write_bytes(wrap(payload))
            fuzz.errors_of(reader, self.path)

    def _notes(self):
        notes = self.folder / "notes"
        return notes.read_text() if notes.exists() else ""

    def inputs(self):
        """The seeds as inputs."""
        return [bytes([number]) + seed.payload for number, seed in enumerate(self.seeds)]

    def file_of(self, data):
        """The file that an input stands for."""
        number = data[0] if data else 0  # libFuzzer begins with nothing
        return self.seeds[number % len(self.seeds)].wrap(data[1:])

    def __call__(self, data):
        content = self.file_of(data)
        for error in fuzz.read_within_limits(self.reader, self.path, content):
            wrong = fuzz.complaint(error, self.path)
            if wrong is not None:
                self.note(content, error, wrong)

    def note(self, content, error, wrong):
        """Keep the first file that fails at a place of the code."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "hashgrove" in frame.filename]
        last = frames[-1] if frames else None
        place = f"{type(error).__name__} {last and (Path(last.filename).name, last.lineno)}"
        if place in self.known:
            return
        self.known.add(place)
        (self.folder / f"failure-{len(self.known)}").write_bytes(content)
        with open(self.folder / "notes", "a") as notes:
            print(json.dumps({"place": place, "wrong": wrong, "number": len(self.known)}), file=notes)

    def mutate(self, data, largest, seed):
        """Half of the mutations are libFuzzer's own, which knows constants of comparisons; half are those of `fuzz`."""
        import atheris

        rng = random.Random(seed)
        if len(data) < 2 or rng.random() < 0.5:
            return atheris.Mutate(data, largest)
        return data[:1] + fuzz.mutate(rng, data[1:], rng.choice(self.seeds).payload or b"\0")[: largest - 1]


def run_child(name, folder, flags):
    """Fuzz one reader in this process until libFuzzer ends it."""
    import atheris

    assert "hashgrove" not in sys.modules, "only what is imported from here on is traced"
    with atheris.instrument_imports(include=["hashgrove", "experiments"], exclude=with_kernels()):
        target = Target(name, PLANTED if name == "planted" else READERS[name], folder)
    for function in (planted, *functions_of(*LIBRARIES)):
        with suppress(NotImplementedError):
            atheris.instrument_func(function)
    inputs = folder / "inputs"
    for number, content in enumerate(target.inputs()):
        (inputs / f"seed-{number:03}").write_bytes(content)
    options = [*SETTINGS, f"-artifact_prefix={folder}/crash-", *flags]
    atheris.Setup([sys.argv[0], *options, str(inputs)], target, custom_mutator=target.mutate)
    atheris.Fuzz()


class Outcome:
    """What a run of libFuzzer printed: inputs read, and the branches and inputs that it knew in the end."""

    def __init__(self, said):
        self.runs = sum(map(int, re.findall(r"stat::number_of_executed_units: +(\d+)", said)))
        covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)
        self.first, self.last = (covered[0], covered[-1]) if covered else (("0",) * 3, ("0",) * 3)


def attack(name, *, runs, seconds, seed, folder):
    """Fuzz one reader in child processes: after one that ends too early, the next goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inputs").mkdir(exist_ok=True)
    begin, done, first, crashes = time.monotonic(), 0, None, []
    while done < runs and (left := seconds - (time.monotonic() - begin)) > 1:
        flags = f"-runs={runs - done}", f"-seed={seed + len(crashes) + 1}", f"-max_total_time={int(left)}"
        command = [sys.executable, __file__, "--child", name, "--folder", str(folder), *flags]
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=os.environ | fuzz.ENVIRONMENT
        )
        outcome = Outcome(process.stderr)
        first = first or outcome.first
        done += outcome.runs
        if process.returncode:
            crashes.append(f"the process ended with {process.returncode}: {process.stderr[-1500:]}")
            if not outcome.runs:  # it will not get any further
                break
        elif not outcome.runs:
            break
    notes = folder / "notes"
    failures = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    return {
        "reader": name,
        "runs": done,
        "seed": seed,
        "seconds": round(time.monotonic() - begin),
        "branches": [int(first[0]), int(outcome.last[0])] if first else [0, 0],
        "inputs kept": int(outcome.last[2]) if first else 0,
        "failures": failures,
        "crashes": crashes,
    }


def keep(name, folder, number, largest=2**12):
    """Add the latest inputs that reached new code to the committed ones, as files, if they are small."""
    target = Target(name, READERS[name], folder)
    inputs = sorted((folder / "inputs").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    contents = (target.file_of(path.read_bytes()) for path in inputs if not path.name.startswith("seed-"))
    small = list(islice((content for content in contents if len(content) <= largest), number))
    found = {f"reaches new code {hashlib.sha256(content).hexdigest()[:8]}": content for content in small}
    fuzz_corpus.write(name, fuzz_corpus.files(name) | found)


def show(runs=200_000):
    """Show that coverage guides it: a fault that blind mutations do not find, and branches beside theirs."""
    with tempfile.TemporaryDirectory(prefix="guided-") as temporary:
        found = attack("planted", runs=runs, seconds=600, seed=0, folder=Path(temporary))
    rng, seed = random.Random(0), b"....."
    blind = sum([byte % 64 for byte in fuzz.mutate(rng, seed, seed)[:5]] == [7, 21, 3, 44, 31] for _ in range(runs))
    print(f"planted fault: {len(found['failures'])} in {found['runs']} guided inputs, {blind} in {runs} blind ones")
    return bool(found["failures"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs per reader")
    parser.add_argument("--minutes", type=float, default=60, help="at most so long per reader")
    parser.add_argument("--reader", choices=READERS, action="append", help="by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="show that coverage guides it, and do nothing else")
    parser.add_argument(
        "--keep", type=int, metavar="N", help="commit N inputs that reached new code, and do nothing else"
    )
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".fuzz", help="where inputs and failures are kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options, flags = parser.parse_known_args()
    if options.child:
        run_child(options.child, options.folder, flags)
    if flags:
        parser.error(f"unknown: {flags}")
    if options.show:
        sys.exit(not show())
    failed = False
    for name in options.reader or READERS:
        folder = options.folder / name
        if options.keep:
            keep(name, folder, options.keep)
            continue
        found = attack(name, runs=options.runs, seconds=60 * options.minutes, seed=options.seed, folder=folder)
        print(json.dumps(found | {"processor": platform.machine()}), flush=True)
        failed |= bool(found["failures"] or found["crashes"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
