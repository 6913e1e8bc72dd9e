"""A process that changes an index in a folder and says what has returned, for tests that kill it.

``python tests/index_writer.py FOLDER SEED`` adds, removes, updates and compacts until it is killed. Before each change
it prints the change, and after it has returned, ``done``. The code of an item is its id and a version.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from hashgrove import index as indexes


def codes_of(ids, version):
    """One code per id, from which both can be read."""
    rows = np.stack([np.asarray(ids, np.uint32), np.full(len(ids), version, np.uint32)], axis=1)
    return rows.view(np.uint8).reshape(-1, 8)


def main():
    folder, seed = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(seed)
    index = indexes.load(folder, writable=True)
    print("ready", flush=True)
    for version in range(1, 10**6):
        known = index.ids
        kind = rng.choice(["add", "add", "remove", "update", "compact"])
        chosen = rng.choice(known, min(len(known), 40), replace=False) if kind in ("remove", "update") else known[:0]
        if kind == "add":
            low = int(known[-1]) + 1 if len(known) and rng.random() < 0.7 else int(rng.integers(10**6, 10**9))
            chosen = np.setdiff1d(np.arange(low, low + 50), known)
        print(json.dumps([str(kind), chosen.tolist(), version]), flush=True)
        if kind == "add":
            index.add(codes_of(chosen, version), ids=chosen)
        elif kind == "remove":
            index.remove(chosen)
        elif kind == "update":
            index.update(codes_of(chosen, version), ids=chosen)
        else:
            index.compact()
        print("done", flush=True)


if __name__ == "__main__":
    main()
