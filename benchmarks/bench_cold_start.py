"""Cold start: import, first calls and the ten lines of the README, with an empty and a full cache of compiled code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

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


FAST_HASH = "from hashgrove import FastHash"
SKLEARN = "import sys; print(*sorted(name for name in sys.modules if name.startswith('sklearn') and '._' not in name))"


def python(code: str, folder: str | None = None, **environment: str) -> str:
    """Run code in a new interpreter, in a folder; return what it prints."""
    settings, command = {**os.environ, **environment}, [sys.executable, "-c", code]
    run = subprocess.run(command, env=settings, cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout


def run_python(code: str, _: None) -> str:
    """Call `python` the way a contender is called."""
    return python(code)


def imports(rounds: int) -> Contest:
    """Time the whole process of an import, from start to end."""
    of_sklearn = f"import {', '.join(python(f'{FAST_HASH}; {SKLEARN}').split())}"
    notes = {of_sklearn: "the modules of scikit-learn that FastHash imports, with numpy and scipy"}
    statements = {
        OURS: "import hashgrove",
        "FastHash": FAST_HASH,
        "scikit-learn": of_sklearn,
        "bare interpreter": "pass",
    }
    entries = race(
        [
            Contender(name=name, run=partial(run_python, code), note=notes.get(code, f'python -c "{code}"'))
            for name, code in statements.items()
        ],
        rounds=rounds,
    )
    beside = entries[1].seconds - entries[2].seconds
    targets = [
        Target("import hashgrove within 0.5 s", 0.5, entries[0].seconds, at_most=True),
        Target("FastHash within 0.6 s beside the import of scikit-learn", 0.6, beside, at_most=True),
    ]
    return Contest(entries, targets)


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


def ten_lines() -> Contest:
    """Time the ten lines of the README, the whole process."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"## Ten lines\n\n```python\n(.*?)```", readme, re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        entries = race(
            [
                Contender(name=f"{cache} cache", run=lambda _: python(code, folder, NUMBA_CACHE_DIR=folder))
                for cache in ("empty", "filled")
            ],
            rounds=1,
        )
    return Contest(entries)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return the contests of imports and of first calls."""
    found: dict[str, Callable[[], Contest]] = {"imports": partial(imports, 2 if setting.tiny else 5)}
    if not setting.tiny:  # there is no small size of compiling everything
        found["first calls"] = partial(first_calls, 3)
        found["the ten lines of the README"] = ten_lines
    return found


if __name__ == "__main__":
    main("cold_start", contests)
