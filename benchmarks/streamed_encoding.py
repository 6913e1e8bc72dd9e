"""Time and memory of encoding a file piece by piece, beside rows in memory: 512 features, 64 bits.

    python benchmarks/streamed_encoding.py --rows 500000 --folder /tmp

Writes a model and X.npy, X.parquet (one column of vectors) into a temporary folder. Processor time of one thread, best
of five, and the largest resident memory of a process that loads the model and encodes the file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hashgrove import BoostedTrees, FastHash, PosteriorBits, encode_file, load

N_FEATURES, N_BITS, ROUNDS = 512, 64, 5
PEAK = """
import sys
from pathlib import Path
from hashgrove import encode_file
encode_file(sys.argv[1], sys.argv[2], sys.argv[3], n_jobs=2)
print(*[line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")])
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, help="Where the temporary folder is made.")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=2000)
    X = (rng.normal(size=(10, N_FEATURES))[y] + rng.normal(size=(2000, N_FEATURES))).astype(np.float32)
    rows = np.tile(X, (-(-arguments.rows // 2000), 1))[: arguments.rows]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        np.save(folder / "X.npy", rows)
        table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(rows.reshape(-1), N_FEATURES)})
        parquet.write_table(table, folder / "X.parquet")
        for function in (PosteriorBits(), BoostedTrees()):
            model = folder / "model"
            FastHash(N_BITS, hash_function=function, random_state=0).fit(X, y).save(model)
            encoder = load(model)
            encoder.encode(rows[:2000])
            print(function)
            seconds = {source: [] for source in ("memory", "X.npy", "X.parquet")}
            for _ in range(ROUNDS):  # in turns, so that all have the same neighbours
                for source, times in seconds.items():
                    started = time.process_time()
                    if source == "memory":
                        encoder.encode(rows, n_jobs=1)
                    else:
                        encode_file(encoder, folder / source, folder / "codes.npy", n_jobs=1)
                    times.append(time.process_time() - started)
            for source, times in seconds.items():
                speed = min(seconds["memory"]) / min(times)
                print(
                    f"  {source:10} {min(times):6.2f} s of processor time  {speed:4.0%} of the speed of memory", end=""
                )
                if source != "memory":
                    command = [sys.executable, "-c", PEAK, model, folder / source, folder / "codes.npy"]
                    print(
                        "  ", subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip(), end=""
                    )
                print()


if __name__ == "__main__":
    main()
