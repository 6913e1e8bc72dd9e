"""Independent bits on one Dask worker and on two: time of a fit, and bytes on the wire.

    python benchmarks/many_machines.py --rows 1000000 --features 1024 --folder /tmp

Each worker is a process with one thread, on this machine, so two of them need two cores without other work. Trees of
depth 4 learn class labels from a feature store. The clusters take turns, and each fits a few bits first, so that
workers have imported the library and opened the store. The models of all fits must be the same.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from hashgrove import BoostedTrees, FastHash, build_store
from hashgrove.distributed import fit, fitting
from hashgrove.distributed.executor import DaskExecutor
from hashgrove.runtime.threads import as_piece

CHUNK = 2**14


class CountingExecutor(DaskExecutor):
    """Counts the bytes of the pieces that go out, and of the results that come back."""

    out, back = [], []

    def map(self, function: Callable[..., Any], pieces: Iterable[Any], **more: Any) -> Iterator[Any]:
        """As in `DaskExecutor`."""

        def counted() -> Iterator[Any]:
            for piece in pieces:
                self.out.append(len(pickle.dumps(piece)))
                yield piece

        for result in super().map(function, counted(), **more):
            self.back.append(len(pickle.dumps(result)))
            yield result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--trees", type=int, default=290)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where the store is made; one byte per value.")
    arguments = parser.parse_args()
    n, d = arguments.rows, arguments.features
    y = np.random.default_rng(0).integers(100, size=n)
    centres = np.random.default_rng(1).normal(size=(100, d)).astype(np.float32)

    def chunks() -> Iterator[np.ndarray]:
        for start in range(0, n, CHUNK):
            labels = y[start : start + CHUNK]
            yield centres[labels] + np.random.default_rng([2, start]).normal(size=(len(labels), d)).astype(np.float32)

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, ExitStack() as stack:
        store = build_store(chunks, f"{name}/X.bins")
        fitting.DaskExecutor = CountingExecutor
        clients = {}
        for count in arguments.workers:
            options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
            cluster = stack.enter_context(LocalCluster(n_workers=count, **options))
            clients[count] = stack.enter_context(Client(cluster, set_as_default=False))

        def measure(count: int, n_bits: int) -> tuple[float, str]:
            function = BoostedTrees(n_trees=arguments.trees, subset="tree")
            hasher = FastHash(n_bits, hash_function=function, random_state=0, n_jobs=1)
            started = time.perf_counter()
            digest = fit(hasher, store, y, client=clients[count]).digest
            return time.perf_counter() - started, digest

        for count in clients:
            measure(count, 2 * count)
        CountingExecutor.out.clear(), CountingExecutor.back.clear()
        seconds: dict[int, list[float]] = {count: [] for count in clients}
        digests = set()
        for _ in range(arguments.rounds):
            for count, times in seconds.items():
                taken, digest = measure(count, arguments.bits)
                times.append(taken)
                digests.add(digest)
        assert len(digests) == 1, digests
        print(
            f"{n:,} rows x {d:,} features, {arguments.bits} bits of {arguments.trees} trees; best of {arguments.rounds}"
        )
        first = min(seconds[arguments.workers[0]])
        for count, times in seconds.items():
            print(f"{count} workers  {min(times):7.2f} s  {first / min(times):5.2f}x")
        learner = BoostedTrees(n_trees=arguments.trees, subset="tree")
        rng, z = np.random.default_rng(0), np.where(y % 2, 1, -1).astype(np.int8)
        data = learner.prepare(store, rng, n_jobs=1)
        with as_piece():
            started = time.process_time()
            learner.learn(data, z, None, rng)
        print(f"one bit in this process: {time.process_time() - started:.1f} s of processor time")
        for what, sizes in (("out", CountingExecutor.out), ("back", CountingExecutor.back)):
            print(f"{what:4} {np.mean(sizes):,.0f} bytes per bit, {np.mean(sizes) / n:.3f} per row")


if __name__ == "__main__":
    main()
