"""Attacks the readers of untrusted files: ``python tests/hostile/fuzz.py --files 100000 --reader npy``.

Small valid files are changed at random (bits, cuts, repetitions, pieces of other files, absurd integers) and read in a
child process. A reader must read such a file or raise `FileError` with one line that begins with the path. Any other
exception is a failure, and so is a crash, a file that takes more than TIME_LIMIT seconds of processor time or
WAIT_LIMIT in all, or more memory than 64 MB + 4 times its size; an image may take 32 bytes more for each pixel that it
declares (docs/formats.md). RLIMIT_AS limits the memory, so this runs on Linux only. Files that fail are kept.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing.forkserver
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from unittest.mock import patch

sys.path += [str(folder) for folder in Path(__file__).resolve().parents[1:3]]  # when it is run as a command

import fuzz_corpus
from fuzz_readers import READERS

from processes import unmeasured

TIME_LIMIT = 20  # seconds of processor time per file, which other processes do not use up
SET_UP_LIMIT = 400  # seconds for what a child process does before the first mutated file
WAIT_LIMIT = 200  # seconds per file in all: on a busy machine a process may wait long for a processor
SPARE = 2**26  # bytes of memory that a reader may take, plus 4 times the file
ABSURD = (
    0,
    1,
    2**7,
    2**8 - 1,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
PRELOAD = ("hashgrove.features", "hashgrove.index", "hashgrove.storage.matrices", "pyarrow.parquet", "PIL.Image")
ENVIRONMENT = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # no thread beside the one that is copied: it might hold a lock
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
MEMORY = re.compile(r"alloc|memory|decoder error -9", re.IGNORECASE)  # -9 is how Pillow says it


def mutate(rng, content, other):
    """Change ``content`` at one to four places; ``other`` is another file to take pieces from."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        start = rng.randrange(len(content) + 1)
        length = min(rng.choice((1, 2, 4, 8, 16, 64)), len(content) - start)
        kind = rng.choice(("bit", "byte", "cut", "delete", "repeat", "splice", "absurd", "absurd", "digits"))
        if kind in ("bit", "byte") and start < len(content):
            content[start] = content[start] ^ (1 << rng.randrange(8)) if kind == "bit" else rng.randrange(256)
        elif kind == "cut" and rng.random() < 0.3:
            del content[start:]
        elif kind == "delete":
            del content[start : start + length]
        elif kind == "repeat":
            content[start:start] = content[start : start + length] * rng.choice((1, 2, 100))
        elif kind == "splice":
            place = rng.randrange(len(other))
            content[start : start + length] = other[place : place + length]
        elif kind == "absurd":
            width, order = rng.choice("BHIQ"), rng.choice("<>")
            size = struct.calcsize(width)
            content[start : start + size] = struct.pack(order + width, rng.choice(ABSURD) % 2 ** (8 * size))
        elif kind == "digits":
            numbers = [match.span() for match in re.finditer(rb"[0-9]+", bytes(content))]
            first, last = rng.choice(numbers or [(start, start)])
            content[first:last] = rng.choice(("", "-")).encode() + str(rng.choice(ABSURD)).encode()
    return bytes(content)


def mutant(seeds, name, seed, number):
    """The mutated file ``number``; the same arguments give the same file."""
    rng = random.Random(f"{name} {seed} {number}")
    chosen, other = rng.choice(seeds), rng.choice(seeds)
    return chosen.wrap(mutate(rng, chosen.payload, other.payload))


def complaint(error, path):
    """What is wrong with an exception of a reader; None if nothing is."""
    from hashgrove.storage.formats import FileError

    if not isinstance(error, FileError):
        return f"{type(error).__name__}: {str(error)[:300]}"
    if not re.fullmatch(re.escape(os.fspath(path)) + r"[^\n]+", str(error)):
        return f"not one line that begins with the path: {error}"
    if hit_the_limit(error):
        return f"more memory than allowed: {error}"
    return None


def hit_the_limit(error):
    """Whether a reader wanted more memory than it may have; a decoder in a child process has a limit of its own."""
    from hashgrove.features.sandbox import ChildError

    return not isinstance(error.__cause__, ChildError) and (
        isinstance(error.__cause__, MemoryError) or MEMORY.search(str(error.__cause__)) is not None
    )


def errors_of(reader, path):
    """The exceptions of all functions that read a file."""
    errors = []
    for read in reader.reads:
        try:
            read(path)
        except Exception as error:
            errors.append(error)
    return errors


def read_within_limits(reader, path, content):
    """The exceptions of all functions that read a file with this content, under the limit of memory that it has."""
    import resource

    path.write_bytes(content)
    allowed = SPARE + 4 * len(content) + reader.more_memory(path)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + allowed, unlimited[1]))
    try:
        return errors_of(reader, path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)


def limit_time(processor, wait):
    """Let the system end this process after so many seconds of processor time, or in all; 0 takes a limit back."""
    signal.setitimer(signal.ITIMER_PROF, processor)
    signal.alarm(wait)


@cache
def fork_server():
    """What starts child processes: copies of a process that has imported once what most readers need.

    Coverage would slow it down and count as memory.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with patch.dict(os.environ, unmeasured() | ENVIRONMENT, clear=True):
        multiprocessing.forkserver.ensure_running()
    return context


def child(name, reader, seed, start, stop, folder, corpus):
    """Read the mutated files, or those of the corpus, from ``start`` to ``stop``.

    If the process ends, the file "at" says how far it came.
    """
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.dump_traceback_later(SET_UP_LIMIT, exit=True)
    seeds, committed = list(reader.seeds()), list(fuzz_corpus.files(name).values())
    path = folder / f"mutant{reader.suffix}"
    for payload, wrap in seeds:  # this also imports and compiles what is needed, so memory is not limited yet
        path.write_bytes(wrap(payload))
        errors = errors_of(reader, path)
        if len(errors) == len(reader.reads) and reader.strict:
            raise errors[0]
    faulthandler.cancel_dump_traceback_later()
    counts = Counter()
    at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
    for number in range(start, stop):
        os.pwrite(at, f"{number:<20}".encode(), 0)
        content = committed[number] if corpus else mutant(seeds, name, seed, number)
        limit_time(TIME_LIMIT, WAIT_LIMIT)
        errors = read_within_limits(reader, path, content)
        limit_time(0, 0)
        for wrong in filter(None, (complaint(error, path) for error in errors)):
            (folder / f"failure-{number}").write_bytes(content)
            note(folder, {"number": number, "wrong": wrong})
        counts["refused" if len(errors) == len(reader.reads) else "read"] += 1
    note(folder, counts)


def note(folder, what):
    """Add a line to the file that the child process leaves for `fuzz`."""
    with open(folder / "notes", "a") as file:
        print(json.dumps(what), file=file)


def fuzz(name, reader, *, files, seed, folder, corpus=False):
    """Read ``files`` mutated files with one reader, or those of its corpus; returns counts, and what went wrong."""
    crashes, start = [], 0
    while start < files:
        process = fork_server().Process(
            target=child, args=(name, reader, seed, start, files, folder, corpus), daemon=True
        )
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        at, said = folder / "at", (folder / "output").read_text(errors="replace")
        if not at.exists():
            raise RuntimeError(f"the reader {name} cannot be set up: {said[-2000:]}")
        number = int(at.read_text())
        too_long = -process.exitcode in (signal.SIGALRM, signal.SIGPROF)
        what = "took too long" if too_long else f"ended with {process.exitcode}"
        crashes.append({"number": number, "wrong": f"the process {what}: {said[-300:]}"})
        shutil.copy(folder / f"mutant{reader.suffix}", folder / f"failure-{number}")
        start = number + 1
    notes = folder / "notes"
    lines = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    failures = crashes + [line for line in lines if "number" in line]
    return sum((Counter(line) for line in lines if "number" not in line), Counter()), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000, help="mutated files per reader")
    parser.add_argument("--reader", choices=READERS, action="append", help="by default all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for name in options.reader or READERS:
        folder, begin = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-")), time.monotonic()
        counts, failures = fuzz(name, READERS[name], files=options.files, seed=options.seed, folder=folder)
        described = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        seconds = time.monotonic() - begin
        print(f"{name}: {options.files} files in {seconds:.0f} s: {described}; {len(failures)} failures", flush=True)
        for failure in failures[:20]:
            print(f"  {folder}/failure-{failure['number']}: {failure['wrong']}", flush=True)
        failed |= bool(failures)
        if not failures:
            shutil.rmtree(folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
