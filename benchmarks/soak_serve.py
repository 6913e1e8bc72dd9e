"""A service under mixed load for a long time: no error for good requests, 4xx for bad ones, and flat memory.

    python benchmarks/soak_serve.py                # ten minutes
    python benchmarks/soak_serve.py --seconds 20   # as in the tests

Sixteen clients search, list, add and remove items; one request in a hundred is bad. It prints what it found as JSON,
and ends with exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hashgrove import FlatIndex
from http_load import load, post, request, started

N_ITEMS, N_BYTES, N_CLIENTS = 100_000, 8, 16
BAD = 0.01  # share of the requests
WARM_UP = 0.25  # share of the time in which memory may grow
GROWTH = 32 * 2**20  # bytes that memory may grow after that


class Ask(NamedTuple):
    """A request, and the statuses that are right for it."""

    request: bytes
    right: tuple[int, ...]


def good(rng: random.Random) -> Ask:
    """Return a request that must be answered."""
    code, id_ = rng.randbytes(N_BYTES).hex(), rng.randrange(N_ITEMS)
    new = N_ITEMS + rng.randrange(2000)
    share = rng.random()
    if share < 0.6:
        return Ask(post("/search", json.dumps({"codes": [code], "k": rng.choice((1, 10, 50))}).encode()), (200,))
    if share < 0.7:
        return Ask(post("/search", json.dumps({"id": id_, "show_code": True, "show_histogram": True}).encode()), (200,))
    if share < 0.75:
        allowed = [rng.randrange(N_ITEMS) for _ in range(100)]
        return Ask(post("/search", json.dumps({"codes": [code], "allowed": allowed, "radius": 30}).encode()), (200,))
    if share < 0.8:
        return Ask(request("GET", f"/items?offset={id_}"), (200,))
    if share < 0.85:
        return Ask(request("GET", f"/items/{id_}"), (200,))
    if share < 0.87:
        return Ask(request("GET", "/metrics"), (200,))
    if share < 0.94:
        body = {"items": [{"id": new, "code": code}], "replace": True}
        return Ask(post("/items", json.dumps(body).encode()), (201,))
    return Ask(request("DELETE", f"/items/{new}"), (200, 404))


def bad(rng: random.Random) -> Ask:
    """Return a request that must be refused."""
    return rng.choice(
        (
            Ask(post("/search", b'{"codes": ["00"], "k": 10}'), (422,)),
            Ask(post("/search", b'{"codes": '), (400,)),
            Ask(post("/search", b"x", kind="text/plain"), (415,)),
            Ask(post("/search?kind=codes", b"12345", kind="application/octet-stream"), (422,)),
            Ask(post("/items", b'{"items": [{"id": "x", "code": "0000000000000000"}]}'), (422,)),
            Ask(request("GET", "/items/99999999999"), (404,)),
            Ask(request("GET", "/nothing"), (404,)),
            Ask(request("PUT", "/items"), (405,)),
        )
    )


def memory(pid: int) -> int:
    """Return the bytes of memory that a process has, without the files that it has mapped."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])


def soak(seconds: float, *, seed: int = 0) -> dict[str, Any]:
    """Load a service for some time; return what was seen."""
    rng = random.Random(seed)
    asks = [bad(rng) if rng.random() < BAD else good(rng) for _ in range(5000)]
    wrong: dict[str, int] = {}
    n_requests, after_warm_up, largest = 0, 0, 0

    def check(number: int, answer: bytes) -> None:
        status = int(answer[9:12])
        if status not in asks[number].right:
            key = f"{asks[number].request[:40]!r}: {status}"
            wrong[key] = wrong.get(key, 0) + 1

    with tempfile.TemporaryDirectory() as folder:
        codes = np.random.default_rng(seed).integers(0, 256, (N_ITEMS, N_BYTES), dtype=np.uint8)
        FlatIndex(codes).save(f"{folder}/codes.hgi")
        command = [sys.executable, "-m", "hashgrove", "serve", f"{folder}/codes.hgi", "--port", "0"]
        with started(command) as (port, pid):
            begin = time.monotonic()
            while (spent := time.monotonic() - begin) < seconds:
                start = rng.randrange(len(asks))
                turn = [ask.request for ask in asks[start:] + asks[:start]]
                load(
                    port,
                    turn,
                    n_clients=N_CLIENTS,
                    n_requests=400,
                    check=lambda number, answer, start=start: check((number + start) % len(asks), answer),
                )
                n_requests += 400
                if spent < WARM_UP * seconds:
                    after_warm_up = memory(pid)
                largest = max(largest, memory(pid))
    return {
        "seconds": round(seconds),
        "requests": n_requests,
        "wrong": wrong,
        "memory after warm-up, MB": round(after_warm_up / 2**20, 1),
        "largest memory, MB": round(largest / 2**20, 1),
        "flat": largest - after_warm_up <= GROWTH,
    }


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    found = soak(parser.parse_args().seconds)
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]) or not found["flat"])


if __name__ == "__main__":
    main()
