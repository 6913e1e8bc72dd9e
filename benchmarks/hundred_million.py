"""An index of 100 million codes: time and memory of `hashgrove index build`, and MultiIndex compared with FlatIndex.

`python benchmarks/hundred_million.py FOLDER` writes uniform codes of 64 bits to a folder with 15 GB of room, indexes
them by the command line, in a process of its own, and checks that both indexes find the same: neighbours of items with
some bits flipped, of uniform queries, and within a radius. It ends with an error if a result differs. Private memory is
what the process has allocated; mapped files, which the system can take back, come on top of it in the resident size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from environment import machine
from hashgrove import FlatIndex, MultiIndex, load_index

CHUNK = 10**7
KIB = 1024


def write_codes(path: Path, n: int) -> None:
    """Write uniform codes of 64 bits, of which one in a thousand is there twice."""
    rng = np.random.default_rng(0)
    codes = np.lib.format.open_memmap(path, "w+", np.uint8, (n, 8))
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        codes[start:stop] = rng.integers(2**64, size=stop - start, dtype=np.uint64).view(np.uint8).reshape(-1, 8)
    codes[1::1000] = codes[::1000][: len(codes[1::1000])]
    codes.flush()


def build(codes: Path, index: Path) -> dict[str, Any]:
    """Run the command, and measure it."""
    start, private, resident = time.perf_counter(), 0, 0
    process = subprocess.Popen([sys.executable, "-m", "hashgrove", "index", "build", codes, "-o", index])
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:  # it has just ended
            break
        sizes = {line.split(":")[0]: int(line.split()[1]) * KIB for line in status.splitlines() if "kB" in line}
        private, resident = max(private, sizes.get("RssAnon", 0)), max(resident, sizes.get("VmHWM", 0))
        time.sleep(0.05)
    if process.wait():
        raise SystemExit("the command has failed")
    files = sum(file.stat().st_size for file in index.iterdir())
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "private GB": round(private / 1e9, 2),
        "resident GB": round(resident / 1e9, 2),
        "disk GB": round(files / 1e9, 2),
    }


def queries(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Items with 0 to 7 bits flipped, and uniform queries."""
    rng = np.random.default_rng(1)
    found = codes[rng.integers(len(codes), size=96)].copy()
    for number, query in enumerate(found):
        for bit in rng.choice(64, number % 8, replace=False):
            query[bit // 8] ^= 1 << (bit % 8)
    return np.concatenate([found, rng.integers(256, size=(32, 8), dtype=np.uint8)])


def compare(index: Path) -> dict[str, Any]:
    """Search with both indexes, and refuse to go on if a result differs."""
    mapped = load_index(index)
    flat, multi = FlatIndex(mapped.codes), MultiIndex(mapped.codes) if type(mapped) is FlatIndex else mapped
    start = time.perf_counter()
    multi.prepare()
    found: dict[str, Any] = {"index": type(mapped).__name__, "seconds to map tables": time.perf_counter() - start}
    asked = queries(np.asarray(flat.codes))
    multi._budget = 1e6  # no query is left to the scan
    for k in (1, 10, 100):
        for one, two in zip(multi.search(asked, k), flat.search(asked, k), strict=True):
            np.testing.assert_array_equal(one, two)
    for one, two in zip(multi.search_radius(asked, 6), flat.search_radius(asked, 6), strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    return found | {"equal results": len(asked)}


def main(arguments: list[str] | None = None) -> None:
    """Build, measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where codes and index are written; they stay there")
    parser.add_argument("--rows", type=int, default=10**8)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    codes, index = options.folder / f"codes-{options.rows}.npy", options.folder / f"{options.rows}.hgi"
    if not codes.exists():
        write_codes(codes, options.rows)
    print(json.dumps({"machine": machine(), "rows": options.rows, **build(codes, index), **compare(index)}, indent=1))


if __name__ == "__main__":
    main()
