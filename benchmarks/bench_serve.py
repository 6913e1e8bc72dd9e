"""The service under load: `hashgrove serve` against faiss behind FastAPI, with many clients at a time.

Each client sends the next query when it has the answer to the last one. All services run on the same server (uvicorn
with httptools and uvloop). Ours gets its queries as JSON and as bytes; the same server with a constant answer shows
what is left to gain.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hashgrove.web.server  # noqa: F401 -- so that a change of the service makes its figures old
from contest import OURS, Contender, Contest, Entry, Setting, Target, best, main, race
from environment import installed
from hashgrove import FlatIndex
from http_load import Load, load, post, started

N_BYTES, K = 8, 10
PLAIN = "faiss behind FastAPI"
BINARY = "hashgrove, binary body"
BARE = "the same server, a constant answer"
PLAIN_SERVICE = str(Path(__file__).with_name("plain_service.py"))


@dataclass
class Running:
    """A service that runs, and the loads that it answered."""

    port: int
    pid: int
    loads: list[Load] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)

    def answer(self, requests: list[bytes], *, n_clients: int, n_requests: int) -> Load:
        """Send the load once."""
        before = processor_seconds(self.pid)
        found = load(self.port, requests, n_clients=n_clients, n_requests=n_requests)
        if set(found.statuses) != {200}:
            raise RuntimeError(f"all requests must be answered. Got the statuses {found.statuses}.")
        self.processor_seconds.append((processor_seconds(self.pid) - before) / n_requests)
        self.loads.append(found)
        return found

    def best_percentile(self, share: float) -> float:
        """Return the smallest time, over the rounds, within which this share of the requests was answered."""
        return min(found.percentile(share) for found in self.loads)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its threads have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def distances_of(port: int, requests: list[bytes]) -> list[Any]:
    """Return the distances that a service finds, one list per request."""
    found: list[Any] = [None] * len(requests)

    def keep(number: int, answer: bytes) -> None:
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
        found[number] = [hit["distance"] for hit in body["results"][0]]

    load(port, requests, n_clients=1, n_requests=len(requests), check=keep)
    return found


def commands(folder: str) -> dict[tuple[str, int], list[str]]:
    """Return the commands that start the services, by name and number of threads of a search."""
    serve = [sys.executable, "-m", "hashgrove", "serve", f"{folder}/codes.hgi", "--port", "0", "--read-only"]
    plain = [sys.executable, PLAIN_SERVICE, f"{folder}/codes.npy"]
    found = {(OURS, 2): serve, (BINARY, 2): serve}
    if installed("faiss"):
        found |= {(PLAIN, threads): [*plain, "--threads", str(threads)] for threads in (1, 2)}
        found[BARE, 1] = [*plain, "--constant"]
    return found


def write_codes(folder: str, n_items: int) -> dict[str, list[bytes]]:
    """Write random codes for all services; return requests with random queries, for each service."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n_items, N_BYTES), dtype=np.uint8)
    np.save(f"{folder}/codes.npy", codes)
    FlatIndex(codes).save(f"{folder}/codes.hgi")
    queries = rng.integers(0, 256, (500, N_BYTES), dtype=np.uint8)
    as_json = [post("/search", json.dumps({"codes": [query.tobytes().hex()], "k": K}).encode()) for query in queries]
    kind = "application/octet-stream"
    as_bytes = [post(f"/search?kind=codes&k={K}", query.tobytes(), kind=kind) for query in queries]
    return dict.fromkeys((OURS, PLAIN, BARE), as_json) | {BINARY: as_bytes}


def under_load(*, n_items: int, n_clients: int, n_requests: int, rounds: int) -> Contest:
    """Let the services answer the same load in turns. The time is that of one request: 1 / throughput."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        requests = write_codes(folder, n_items)
        running = {key: Running(*stack.enter_context(started(command))) for key, command in commands(folder).items()}
        expected = distances_of(running[OURS, 2].port, requests[OURS][:20])
        agree = {key: distances_of(service.port, requests[key[0]][:20]) == expected for key, service in running.items()}

        def run(name: str, service: Running, _: None) -> Load:
            return service.answer(requests[name], n_clients=n_clients, n_requests=n_requests)

        entries = race(
            [
                Contender(
                    name=name, threads=threads, run=partial(run, name, service), share=n_requests, note="per request"
                )
                for (name, threads), service in running.items()
            ],
            rounds=rounds,
            patience=120.0,
        )
    for entry in entries:
        if entry.name != BARE:
            entry.agreement = "equal" if agree[entry.name, entry.threads] else "differs"
    facts = {f"{name}, {threads} threads": figures(service) for (name, threads), service in running.items()}
    return Contest(entries, targets_of(entries, running), facts)


def figures(service: Running) -> str:
    """Describe the best rounds of a service in words."""
    p50, p99 = (1000 * service.best_percentile(share) for share in (0.5, 0.99))
    per_second = max(len(found.latencies) / found.seconds for found in service.loads)
    processor = 1000 * min(service.processor_seconds)
    return (
        f"{per_second:,.0f} requests per second, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
        f"{processor:.2f} ms of processor time per request"
    )


def targets_of(entries: list[Entry], running: dict[tuple[str, int], Running]) -> list[Target]:
    """Return the targets: throughput, and the time within which 99 % are answered, against the better plain service."""
    ours, theirs, binary = (best(entries, name) for name in (OURS, PLAIN, BINARY))
    plain = [service for (name, _), service in running.items() if name == PLAIN]
    throughput = None if ours is None or theirs is None else theirs / ours
    with_bytes = None if binary is None or theirs is None else theirs / binary
    p99 = min((service.best_percentile(0.99) for service in plain), default=None)
    slower = None if p99 is None else running[OURS, 2].best_percentile(0.99) / p99
    return [
        Target(f"at least 2x the throughput of {PLAIN}", 2.0, throughput),
        Target(f"with a binary body at least 3x the throughput of {PLAIN}", 3.0, with_bytes),
        Target(f"p99 at most that of {PLAIN}", 1.0, slower, at_most=True),
    ]


def first_answer(*, n_items: int, rounds: int) -> Contest:
    """Time a service from its command to its first answer, with compiled kernels in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        requests = write_codes(folder, n_items)

        def seconds(name: str, command: list[str]) -> float:
            start = time.perf_counter()
            with started(command) as (port, _pid):
                load(port, requests[name][:1], n_clients=1, n_requests=1)
                return time.perf_counter() - start

        entries = []
        for (name, threads), command in commands(folder).items():
            if name == BINARY:
                continue  # the same service as ours
            fastest = min(seconds(name, command) for _ in range(rounds))
            entries.append(Entry(name, threads, fastest, rounds, 0.0, "from the command to the first answer", None))
    return Contest(entries, [Target("first answer within 3 s", 3.0, entries[0].seconds, at_most=True)])


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return the contests: many clients, and the start."""
    if setting.tiny:
        small = partial(under_load, n_items=2000, n_clients=4, n_requests=40, rounds=1)
        return {"tiny": small, "tiny start": partial(first_answer, n_items=2000, rounds=1)}
    million = 10**6
    return {
        "1 million x 64 bits, 64 clients": partial(
            under_load, n_items=million, n_clients=64, n_requests=3000, rounds=6
        ),
        "start with 1 million x 64 bits": partial(first_answer, n_items=million, rounds=5),
    }


if __name__ == "__main__":
    main("serve", contests)
