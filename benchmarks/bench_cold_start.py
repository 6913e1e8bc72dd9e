"""Cold start: how long the import and the first calls take, with an empty and with a full cache of compiled code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial

from contest import OURS, Contender, Contest, Entry, Setting, Target, main, race

FIRST_CALLS = """
import json, time
import numpy as np
seconds = {}
def timed(name, function):
    start = time.perf_counter(); value = function(); seconds[name] = time.perf_counter() - start
    return value
def load():
    import hashgrove
    return hashgrove, hashgrove.FastHash, hashgrove.FlatIndex, hashgrove.evaluate
hg = timed("import", load)[0]
rng = np.random.default_rng(0)
X, y = rng.random((200, 20), np.float32), np.arange(200) % 4
hasher = hg.FastHash(8, hash_function=hg.BoostedTrees(n_trees=3), random_state=0)
timed("fit", lambda: hasher.fit(X, y))
codes = timed("transform", lambda: hasher.transform(X))
index = hg.FlatIndex(codes)
timed("search", lambda: index.search(codes, 5))
timed("evaluate", lambda: hg.evaluate(index, codes, y_queries=y, y_database=y))
print(json.dumps(seconds))
"""


def python(code: str, **environment: str) -> str:
    """Run code in a new interpreter; return what it prints."""
    settings = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True).stdout


def run_python(code: str, _: None) -> str:
    """Call `python` the way a contender is called."""
    return python(code)


def imports(rounds: int) -> Contest:
    """Time the whole process of an import, from start to end."""
    statements = {OURS: "import hashgrove", "FastHash": "from hashgrove import FastHash", "bare interpreter": "pass"}
    entries = race(
        [
            Contender(name=name, run=partial(run_python, code), note=f'python -c "{code}"')
            for name, code in statements.items()
        ],
        rounds=rounds,
    )
    return Contest(entries, [Target("import hashgrove within 0.5 s", 0.5, entries[0].seconds, at_most=True)])


def first_calls(rounds: int) -> Contest:
    """Time each call on a tiny problem, so that compiling, or reading the cache, takes most of the time."""
    with tempfile.TemporaryDirectory() as folder:
        empty = json.loads(python(FIRST_CALLS, NUMBA_CACHE_DIR=folder))
        filled = [json.loads(python(FIRST_CALLS, NUMBA_CACHE_DIR=folder)) for _ in range(rounds)]
    entries = []
    for call in empty:
        entries.append(Entry(f"{call}, empty cache", 1, empty[call], 1, 0.0, "", None))
        entries.append(Entry(f"{call}, filled cache", 1, min(run[call] for run in filled), rounds, 0.0, "", None))
    cold, warm = sum(empty.values()), min(sum(run.values()) for run in filled)
    return Contest(entries, facts={"all calls": f"{cold:.1f} s with an empty cache, {warm:.1f} s with a filled one"})


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return the contests of imports and of first calls."""
    found: dict[str, Callable[[], Contest]] = {"imports": partial(imports, 2 if setting.tiny else 5)}
    if not setting.tiny:  # there is no small size of compiling everything
        found["first calls"] = partial(first_calls, 3)
    return found


if __name__ == "__main__":
    main("cold_start", contests)
