"""A process that changes an index and says what has returned, for tests that kill it.

``python tests/index_writer.py PLACE SEED`` adds, removes, updates and compacts until it is killed; the place is a
folder, or the URL of an engine. Before each change it prints the change, and after it has returned, ``done``. The code
of an item is its id and a version. `killed` runs such a process, and says what the index may hold after its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict

import numpy as np

from hashgrove import index as indexes


def codes_of(ids, version):
    """One code per id, from which both can be read."""
    rows = np.stack([np.asarray(ids, np.uint32), np.full(len(ids), version, np.uint32)], axis=1)
    return rows.view(np.uint8).reshape(-1, 8)


def features_of(ids, version):
    """One row of features per id, from which both can be read, and which one byte each can hold."""
    return np.stack([np.full(len(ids), 127), np.asarray(ids) % 100, np.full(len(ids), version % 100)], axis=1)


def values_of(ids, version, features):
    """Codes, and features if there are some, as bytes."""
    codes = [bytes(code) for code in codes_of(ids, version)]
    rows = [bytes(row.astype(np.int8)) if features else b"" for row in features_of(ids, version)]
    return [code + row for code, row in zip(codes, rows, strict=True)]


def content(index):
    """The items of an index in their order, as codes with features if it keeps some."""
    ids, codes = index.items()
    kept = getattr(index, "features", None)
    rows = [b""] * len(ids) if kept is None else map(bytes, kept.of(ids).astype(np.int8))
    values = [bytes(code) + row for code, row in zip(codes, rows, strict=True)]
    return OrderedDict(zip(ids.tolist(), values, strict=True))


def changed(items, change, features):
    """The items after a change that the process prints."""
    kind, ids, version = change
    if kind in ("add", "update"):
        return items | OrderedDict(zip(ids, values_of(ids, version, features), strict=True))
    left = ((i, value) for i, value in items.items() if i not in ids)
    return OrderedDict(left) if kind == "remove" else items


def killed(place, items, *, seed, n_done, seconds, features=False):
    """Kill a process some time after ``n_done`` of its changes to ``items`` have returned; return what may be left."""
    process = subprocess.Popen([sys.executable, __file__, place, str(seed)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    lines = []
    while lines.count("done") < n_done:  # however slow the machine is, there is something to lose
        line = process.stdout.readline()
        assert line, "the process has ended by itself"
        lines.append(line.rstrip("\n"))
    threading.Timer(seconds, process.kill).start()
    lines += process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    possible = [OrderedDict(items)]
    for line in lines:
        if line == "done":
            possible = possible[-1:]
        elif line.endswith("]"):
            possible = [possible[-1], changed(possible[-1], json.loads(line), features)]
    return possible


def main():
    place, seed = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(seed)
    index = indexes.connect(place) if "://" in place else indexes.load_index(place, writable=True)
    kinds = ["add", "add", "remove", "update"] + ["compact"] * hasattr(index, "compact")
    print("ready", flush=True)
    for version in range(1, 10**6):
        known = index.ids
        kind = rng.choice(kinds)
        chosen = rng.choice(known, min(len(known), 40), replace=False) if kind in ("remove", "update") else known[:0]
        if kind == "add":
            low = int(known.max()) + 1 if len(known) and rng.random() < 0.7 else int(rng.integers(10**6, 10**9))
            chosen = np.setdiff1d(np.arange(low, low + 50), known)
        more = {"features": features_of(chosen, version)} if getattr(index, "features", None) is not None else {}
        print(json.dumps([str(kind), chosen.tolist(), version]), flush=True)
        if kind == "add":
            index.add(codes_of(chosen, version), ids=chosen, **more)
        elif kind == "remove":
            index.remove(chosen)
        elif kind == "update":
            index.update(codes_of(chosen, version), ids=chosen, **more)
        else:
            index.compact()
        print("done", flush=True)


if __name__ == "__main__":
    main()
