"""The longest wait of /health beside requests that are made to block a service; on a quiet machine at most 250 ms.

    python benchmarks/hostile_requests.py               # 1 million codes of 64 bits
    python benchmarks/hostile_requests.py --seconds 1 --items 20000   # in small

Each kind of request is sent by four clients at a time, for some seconds. It prints one line of JSON per kind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from typing import NamedTuple

import numpy as np

from hashgrove import FlatIndex
from http_load import load, post, request, started
from rough_clients import beside

N_BYTES, N_CLIENTS, TARGET = 8, 4, 250.0
MOST = 2**24  # bytes of a body


class Hostile(NamedTuple):
    """A request, and the status that its answer must have: otherwise something else than the request is measured."""

    status: int
    content: bytes


def search(**body: object) -> bytes:
    """Return a search in JSON."""
    return post("/search", json.dumps(body).encode())


def requests() -> dict[str, Hostile]:
    """Return the requests by what they are."""
    rng = random.Random(0)
    codes = [rng.randbytes(N_BYTES).hex() for _ in range(1024)]
    floats = b'{"features": [[' + b",".join([b"0.1234567x"] * (15 * 2**20 // 11)) + b"]]}"
    strings = b'{"features": [["' + b'","'.join([b"a"] * 120_000) + b'"]]}'
    numbers = b'{"codes": [' + b",".join([b"1.5"] * 1_000_000) + b"]}"
    deep = b'{"codes": ' + b"[" * (MOST // 2) + b"]" * (MOST // 2 - 100) + b"}"
    binary = os.urandom(MOST - MOST % N_BYTES)
    shown = {"show_code": True}
    return {
        "15 MB of wrong floats": Hostile(413, post("/search", floats)),
        "120,000 texts for numbers": Hostile(422, post("/search", strings)),
        "1,000,000 numbers for codes": Hostile(422, post("/search", numbers)),
        "1,024 codes x k = 1,000 with bits, which are too many": Hostile(422, search(codes=codes, k=1000, **shown)),
        "1,024 codes x k = 97 with bits, the most": Hostile(200, search(codes=codes, k=97, **shown)),
        "100 codes x k = 1,000 with bits, the most": Hostile(200, search(codes=codes[:100], k=1000, **shown)),
        "16 MB of brackets": Hostile(400, post("/search", deep)),
        "16 MB of codes": Hostile(422, post("/search?kind=codes&k=1", binary, kind="application/octet-stream")),
        "a page of 500 items": Hostile(200, request("GET", "/items?limit=500")),
        "nothing": Hostile(200, request("GET", "/health")),
    }


def measure(items: int, seconds: float) -> dict[str, dict[str, object]]:
    """Return the waits of /health beside each kind of request."""
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        codes = np.random.default_rng(0).integers(0, 256, (items, N_BYTES), dtype=np.uint8)
        FlatIndex(codes).save(f"{folder}/codes.hgi")
        command = [sys.executable, "-m", "hashgrove", "serve", f"{folder}/codes.hgi", "--port", "0"]
        with started(command) as (port, _):
            load(port, [post("/search", json.dumps({"codes": ["00" * N_BYTES]}).encode())], n_clients=1, n_requests=3)
            for name, asked in requests().items():
                statuses: Counter[int] = Counter()
                with beside(port) as waits:
                    begin = time.monotonic()
                    while time.monotonic() - begin < seconds:
                        done = load(port, [asked.content], n_clients=N_CLIENTS, n_requests=N_CLIENTS)
                        statuses.update(done.statuses)
                if set(statuses) - {asked.status, 503}:
                    raise RuntimeError(f"{name}: must be answered with {asked.status}. Got {dict(statuses)}.")
                found[name] = {"statuses": statuses, **waits}
                print(json.dumps({"beside": name, **found[name]}), flush=True)
    return found


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each kind")
    options = parser.parse_args()
    longest = max(found["longest, ms"] for found in measure(options.items, options.seconds).values())
    print(
        json.dumps(
            {"longest wait of /health, ms": longest, "target": TARGET, "load of the machine": os.getloadavg()[0]}
        )
    )
    sys.exit(longest > TARGET)


if __name__ == "__main__":
    main()
