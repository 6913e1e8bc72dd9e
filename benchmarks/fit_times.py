"""Measure how long `FastHash().fit` takes with default settings, and write the table of docs/fit-times.md.

The features are synthetic: ten Gaussian classes whose centres are about five standard deviations apart, whatever the
number of features. Each size is measured once and kept in docs/fit-times.json, so that the command can be stopped and
continued. A size is never estimated from others. All take about a quarter of an hour on two cores.

    python benchmarks/fit_times.py                      # every size that has no time yet, or one of older code
    python benchmarks/fit_times.py --only 2000 10000    # only these numbers of rows
    python benchmarks/fit_times.py --minutes 10         # begin no fit after ten minutes
    python benchmarks/fit_times.py --again              # measure everything again
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from environment import instruction_set, is_fresh, load, modules, processor, source
from hashgrove import FastHash
from hashgrove.runtime.threads import available_threads

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fit-times.md"
N_CLASSES = 10
SEPARATION = 5.0  # typical distance between two centres, in standard deviations of a feature
ROWS, FEATURES, BITS = (2_000, 10_000, 50_000, 200_000), (128, 512, 2_048), (64,)
OLDER = ", with older code"
MORE_BITS = ((2_000, 128, 128), (2_000, 128, 256))  # to show how the time grows with the length of a code
SIZES = tuple((n, d, bits) for n in ROWS for d in FEATURES for bits in BITS) + MORE_BITS


def make_data(n_rows: int, n_features: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of ten Gaussian classes, and their classes."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, n_features), np.float32) * np.float32(
        SEPARATION / np.sqrt(2 * n_features)
    )
    y = np.arange(n_rows) % N_CLASSES
    X = rng.standard_normal((n_rows, n_features), np.float32)
    for start in range(0, n_rows, 10_000):  # 200,000 x 2,048 take 1.6 GB, and must not take several times that here
        X[start : start + 10_000] += centres[y[start : start + 10_000]]
    return X, y


def measure(n_rows: int, n_features: int, n_bits: int) -> dict[str, Any]:
    """Fit once; the time on the clock, and the time that the processor worked on it."""
    X, y = make_data(n_rows, n_features)
    hasher, before = FastHash(n_bits, random_state=0), load()
    started, worked = time.perf_counter(), time.process_time()
    hasher.fit(X, y)
    return {
        "rows": n_rows,
        "features": n_features,
        "bits": n_bits,
        "chosen": repr(hasher.hash_function_),
        "minutes": (time.perf_counter() - started) / 60,
        "processor_minutes": (time.process_time() - worked) / 60,
        "others": before,
        "threads": available_threads(),
        "machine": f"{processor()} ({instruction_set()}), Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "modules": (loaded := modules()),
        "source": source(loaded),
    }


def others(record: Mapping[str, Any]) -> str:
    """The load of a record as it is shown."""
    return f"{record['others']:.1f}" if "others" in record else "not measured"


def page(records: Iterable[Mapping[str, Any]]) -> str:
    """The page: one table with a row per size that was measured."""
    ordered = sorted(records, key=lambda record: (record["bits"], record["rows"], record["features"]))
    machines = sorted({f"{record['machine']}, {record['threads']} threads" for record in ordered})
    rows = [
        f"| {r['rows']:,} | {r['features']:,} | {r['bits']} | {r['minutes']:.2f} | {r['processor_minutes']:.2f} "
        f"| {others(r)} | {r['date']}{'' if is_fresh(r) else OLDER} | `{r['chosen']}` |"
        for r in ordered
    ]
    return "\n".join(
        [
            "<!-- Written by `python benchmarks/fit_times.py`. Do not edit. -->",
            "",
            "# How long a fit takes",
            "",
            "Time of `FastHash(n_bits).fit(X, y)` with default settings, including the trial that chooses a hash",
            f"function, on synthetic float32 features with {N_CLASSES} classes. Each row was measured once; nothing is",
            "extrapolated.",
            "",
            "| rows | features | bits | minutes on the clock | minutes of processor | others | measured | chosen |",
            "|---:|---:|---:|---:|---:|---:|---|---|",
            *rows,
            "",
            f"Machine: {'; '.join(machines)}. `others` is how many cores other programs used just before the fit;",
            "above about 0.2 the time on the clock is not to be relied on. On an idle machine it lies between the",
            "processor time and the processor time divided by the number of threads.",
            "",
            "Measure your own machine with:",
            "",
            "```sh",
            "python benchmarks/fit_times.py --again",
            "```",
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None, *, sizes: Iterable[tuple[int, int, int]] = SIZES) -> None:
    """Measure the sizes that are missing, and write the data and the page after each."""
    parser = argparse.ArgumentParser(description="Measure how long a fit takes, and write docs/fit-times.md.")
    parser.add_argument("--only", type=int, nargs="+", metavar="ROWS", help="only these numbers of rows")
    parser.add_argument("--again", action="store_true", help="measure again what has been measured before")
    parser.add_argument("--minutes", type=float, help="begin no fit after so many minutes")
    parser.add_argument(
        "--page", type=Path, default=PAGE, help="the page to write; the data go to a .json file beside it"
    )
    options = parser.parse_args(arguments)
    data = options.page.with_suffix(".json")
    records = json.loads(data.read_text()) if data.exists() else []
    sizes, started = list(sizes), time.monotonic()
    known = {size: r for r in records if (size := (r["rows"], r["features"], r["bits"])) in sizes}
    wanted = [size for size in sizes if options.only is None or size[0] in options.only]
    measure(2_000, 16, 8)  # compiles the kernels
    for size in wanted:
        if size in known and is_fresh(known[size]) and not options.again:
            continue
        if options.minutes is not None and time.monotonic() - started > 60 * options.minutes:
            break
        known[size] = measure(*size)
        print("{} rows, {} features, {} bits:".format(*size), f"{known[size]['minutes']:.2f} minutes", flush=True)
        data.write_text(json.dumps(list(known.values()), indent=1) + "\n")
        options.page.write_text(page(known.values()))


if __name__ == "__main__":
    main()
