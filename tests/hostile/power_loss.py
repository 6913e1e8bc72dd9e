"""Simulated losses of power: ``python tests/hostile/power_loss.py --states 10000 --seed 0``.

Workloads of random changes, kills among them, run on an index in a real folder, whose calls are recorded, and a
simulated disk loses power after each of them. Each state that may be found then must open and hold all changes that had
returned, and the one that had not wholly or not at all; its tables must be intact; and it must take another change.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import OrderedDict
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from unittest.mock import patch

sys.path += [str(folder) for folder in Path(__file__).resolve().parents[1:3]]  # when it is run as a command

import numpy as np
from simulated_disk import Disk, System

from hashgrove.index import FlatIndex, folder
from hashgrove.index.folder import MANIFEST
from hashgrove.index.store import Store
from hashgrove.storage import atomic
from hashgrove.storage.formats import FileError
from index_writer import codes_of, content, features_of
from indexes import ByTables

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # syncs take no time there
KINDS = (
    "add behind", "add behind", "add between", "update", "remove", "keep features", "keep all features", "compact",
    "prepare", "save",
)  # fmt: skip
CONFIGURATIONS = [(make, texts) for make in (FlatIndex, ByTables) for texts in (False, True)]


class Workload:
    """Random changes of an index in the folder ``place``, and what the folder may hold between them.

    A value of ``items`` is the number of an item, the version of its code and that of its features. The events of the
    system are interspersed with ("may hold", contents); None stands for no index.
    """

    def __init__(self, system, rng, make, *, texts):
        self.system, self.rng, self.make, self.texts = system, rng, make, texts
        self.place = system.root / "index"
        self.items, self.features, self.version, self.next = None, True, 0, 1000
        self.index = None

    def run(self, n_changes):
        """Make a new index, and this many changes."""
        self._say(None)
        self.apply("save")
        for _ in range(n_changes):
            if self.rng.random() < 0.3:
                self.kill(self.rng.choice(KINDS), self.rng.randint(1, 15))
            else:
                self.apply(self.rng.choice(KINDS))

    def _say(self, *items):
        self.system.events.append(("may hold", [self._content(each) for each in items]))

    def _content(self, items):
        if items is None:
            return None
        rows = {}
        for name, (number, code, row) in items.items():
            rows[name] = bytes(codes_of([number], code)[0])
            rows[name] += b"" if row is None else bytes(features_of([number], row).astype(np.int8)[0])
        return OrderedDict(rows)

    def apply(self, kind):
        """Make a change."""
        items, before = self._planned(kind), self.items
        self._say(before, items)
        self._do(kind, items)
        self.items = items
        self._say(items)

    def kill(self, kind, n_calls):
        """Begin a change, and stop after some calls as if killed; another process opens what is left."""
        items, before = self._planned(kind), self.items
        self._say(before, items)
        self.system.left = n_calls
        with suppress(FileError, OSError):
            self._do(kind, items)
        is_through, self.system.left = self.system.left > 0, None
        self.index.close()
        self.index = self.make.load(self.place, writable=True)
        found = content(self.index)
        assert found in ([self._content(items)] if is_through else [self._content(before), self._content(items)])
        self.items = items if found == self._content(items) else before
        self.features = next((row is not None for _, _, row in self.items.values()), self.features)

    def _planned(self, kind):
        """The items after a change, with the new version."""
        self.version += 1
        items = OrderedDict(self.items or {})
        row = self.version if self.features else None
        if kind == "save":
            items = OrderedDict()
            self.features = self.features if self.items is None else self.rng.random() < 0.7
            row = self.version if self.features else None
        if kind in ("add behind", "save"):
            self.next += 200
            numbers = range(self.next, self.next + self.rng.choice((1, 40, 150)))
            items.update((self._name(number), (number, self.version, row)) for number in numbers)
        elif kind == "add between":
            taken = {number for number, _, _ in items.values()}
            numbers = [n for n in (self.rng.randrange(self.next) for _ in range(20)) if n not in taken]
            items.update((self._name(number), (number, self.version, row)) for number in dict.fromkeys(numbers))
        elif kind in ("update", "remove", "keep features"):
            for name in self.rng.sample(sorted(items), min(len(items), self.rng.choice((1, 30)))):
                number, code, _ = items[name]
                if kind == "remove":
                    del items[name]
                elif kind == "update":
                    items[name] = number, self.version, row
                elif self.features:
                    items[name] = number, code, row
        elif kind == "keep all features" and self.features:
            items = OrderedDict((name, (number, code, row)) for name, (number, code, _) in items.items())
        return items

    def _name(self, number):
        return f"item {number:06d}{'é' * (self.version if number % 37 == 0 else 0)}" if self.texts else number

    def _do(self, kind, items):
        new = [name for name, (_, code, row) in items.items() if self.version in (code, row)]
        numbers = [items[name][0] for name in new]
        codes = codes_of(numbers, self.version)
        rows = features_of(numbers, self.version) if self.features else None
        if kind == "save":
            index = self.make()
            index.add(codes, ids=new, features=rows)
            if self.index is not None:
                self.index.close()
            index.save(self.place)
            self.index = self.make.load(self.place, writable=True)
        elif kind in ("add behind", "add between") and new:
            self.index.add(codes, ids=new, features=rows)
        elif kind == "update" and new:
            self.index.update(codes, ids=new, features=rows)
        elif kind == "remove":
            self.index.remove([name for name in self.items if name not in items])
        elif kind == "keep features" and new and self.features:
            self.index.keep_features(rows, ids=new)
        elif kind == "keep all features" and new and self.features:
            self.index.keep_features(rows)
        elif kind == "compact" or (kind == "prepare" and hasattr(self.index, "prepare")):
            getattr(self.index, kind)()


@contextmanager
def recorded(system):
    """Let an index in a folder call this system."""
    with patch.object(folder, "os", system), patch.object(atomic, "os", system):
        yield


def fault_of(root, make, possible):
    """What is wrong with a folder after a loss of power; None if nothing is."""
    place = root / "index"
    if not (place / MANIFEST).is_file():
        return None if None in possible else "no index"
    try:
        found = content(make.load(place))
        if found not in possible:
            sizes = [None if items is None else len(items) for items in possible]
            return f"other items: {len(found)}, not one of {sizes} as they should be"
        store = Store.read(place)
        if store.manifest.n_tables:
            store.reader.tables(store.manifest)
        with make.load(place, writable=True) as index:
            name = "zzz" if len(found) and isinstance(next(iter(found)), str) else 10**9
            rows = None if index.features is None else features_of([1], 1)
            index.add(codes_of([1], 1), ids=[name], features=rows)
        if list(content(make.load(place))) != [*found, name]:
            return "a further change is lost"
    except (ValueError, OSError, AssertionError) as error:
        return f"{type(error).__name__}: {error}".replace(str(root), "")
    return None


def record(base, make, change, *, seed, texts=False):
    """Record the workload that ``change`` makes in the folder ``base``; return its events."""
    system = System(Path(base).resolve() / "recorded")
    system.root.mkdir()
    with recorded(system):
        workload = Workload(system, random.Random(seed), make, texts=texts)
        change(workload)
        workload.index.close()
    return system.events


def states(events, make, *, seed, ignored=(), per_call=3):
    """Yield the number of the call and the fault (None if there is none) of every state that events may leave.

    Losses of power are tried ``per_call`` times after each call; equal states are left out.
    """
    rng, seen, disk, possible = random.Random(seed), set(), Disk(ignored), None
    with tempfile.TemporaryDirectory(prefix="hashgrove-power-", dir=MEMORY) as base:
        place = Path(base) / "left"
        for call, (kind, *event) in enumerate(events):
            if kind == "may hold":
                possible = event[0]
            else:
                disk.take(kind, *event)
            for _ in range(per_call):
                left = disk.lost(rng)
                state = repr((left, possible))
                if state not in seen:
                    seen.add(state)
                    shutil.rmtree(place, ignore_errors=True)
                    _put(place, left)
                    yield call, fault_of(place, make, possible)


def run(n_states, seed, *, ignored=(), n_changes=12, per_call=3, report=None):
    """Check states of one random workload after the other; return their number and what was wrong."""
    n, faults, number = 0, [], 0
    while n < n_states:
        make, texts = CONFIGURATIONS[number % len(CONFIGURATIONS)]
        with tempfile.TemporaryDirectory(prefix="hashgrove-power-", dir=MEMORY) as base:
            events = record(base, make, lambda workload: workload.run(n_changes), seed=f"{seed} {number}", texts=texts)
        found = states(events, make, seed=f"{seed} {number}", ignored=ignored, per_call=per_call)
        about = f"workload {number} of seed {seed} ({make.__name__}, {'text' if texts else 'integer'} ids)"
        for call, fault in islice(found, n_states - n):
            n += 1
            faults += [] if fault is None else [f"{about}, call {call}: {fault}"]
        number += 1
        if report is not None:
            report(f"{n:,} states of {number} {'workload' if number == 1 else 'workloads'}, {len(faults):,} faults")
    return n, faults


def _put(place, files):
    place.mkdir()
    for name, value in files.items():
        if isinstance(value, dict):
            _put(place / name, value)
        else:
            (place / name).write_bytes(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ignore", action="append", choices=("files", "folders"), default=[], help="syncs to ignore")
    args = parser.parse_args()
    n, faults = run(args.states, args.seed, ignored=args.ignore, report=lambda line: print(line, flush=True))
    print(*faults[:20], sep="\n")
    print(f"{n:,} states, {len(faults):,} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
