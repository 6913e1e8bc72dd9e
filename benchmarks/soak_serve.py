"""A service under mixed load for a long time: right answers to good requests, 4xx for bad ones, and flat memory.

    python benchmarks/soak_serve.py                # ten minutes
    python benchmarks/soak_serve.py --seconds 20   # as in the tests

64 clients search, list, add and remove items; one request in a hundred is bad. Beside them are clients that read
slowly, send half a request or abort an upload, and one that measures the waits of /health. Results of searches are
compared with the codes of the items that nobody changes. It prints what it found as JSON, and ends with exit code 1 if
anything was wrong.
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
from numpy.typing import NDArray

from hashgrove import FlatIndex, hamming
from http_load import load, post, request, started
from rough_clients import beside

N_ITEMS, N_BYTES, N_CLIENTS, N_ROUGH = 100_000, 8, 64, 8
BAD = 0.01  # share of the requests
WARM_UP = 0.25  # share of the time in which memory may grow
GROWTH = 32 * 2**20  # bytes that memory may grow after that


class Ask(NamedTuple):
    """A request, and the statuses that are right for it."""

    request: bytes
    right: tuple[int, ...]
    code: str | None = None  # that is searched for, with the number of results
    k: int = 0


def good(rng: random.Random) -> Ask:
    """Return a request that must be answered."""
    code, id_ = rng.randbytes(N_BYTES).hex(), rng.randrange(N_ITEMS)
    new = N_ITEMS + rng.randrange(2000)
    share = rng.random()
    if share < 0.6:
        k = rng.choice((1, 10, 50))
        return Ask(post("/search", json.dumps({"codes": [code], "k": k}).encode()), (200,), code, k)
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


class Truth:
    """The codes of the items that nobody changes, and the distance of the k-th of them to each code of a request."""

    def __init__(self, codes: NDArray[np.uint8], asks: list[Ask]) -> None:
        self._codes = codes
        searches = sorted({(ask.code, ask.k) for ask in asks if ask.code is not None})
        index = FlatIndex(codes)
        self._farthest = {
            (code, k): int(index.search(np.frombuffer(bytes.fromhex(code), np.uint8)[None], k).distances[0, -1])
            for code, k in searches
        }

    def is_wrong(self, ask: Ask, answer: bytes) -> bool:
        """Whether the results of a search cannot be right, whatever further items there are."""
        if ask.code is None:
            return False
        (hits,) = json.loads(answer[answer.index(b"\r\n\r\n") :])["results"]
        distances, code = [hit["distance"] for hit in hits], np.frombuffer(bytes.fromhex(ask.code), np.uint8)
        known = [(int(hit["id"]), hit["distance"]) for hit in hits if int(hit["id"]) < N_ITEMS]
        found = hamming(code[None], self._codes[[id_ for id_, _ in known]])[0].tolist() if known else []
        return (
            len(hits) != ask.k
            or distances != sorted(distances)
            or distances[-1] > self._farthest[ask.code, ask.k]
            or found != [distance for _, distance in known]
        )


def memory(pid: int) -> int:
    """Return the bytes of memory that a process has, without the files that it has mapped."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])


def warm_up(port: int, asks: list[Ask]) -> None:
    """Search until no request takes too long: the first ones may wait for kernels to be compiled."""
    searches = [ask.request for ask in asks if ask.code is not None]
    while 503 in load(port, searches, n_clients=N_CLIENTS, n_requests=N_CLIENTS).statuses:
        time.sleep(1)


def soak(seconds: float, *, seed: int = 0) -> dict[str, Any]:
    """Load a service for some time; return what was seen."""
    rng = random.Random(seed)
    asks = [bad(rng) if rng.random() < BAD else good(rng) for _ in range(5000)]
    wrong: dict[str, int] = {}
    n_requests, after_warm_up, largest = 0, 0, 0

    def check(number: int, answer: bytes) -> None:
        status, ask = int(answer[9:12]), asks[number]
        if status not in ask.right or (status == 200 and truth.is_wrong(ask, answer)):
            key = f"{ask.request[:40]!r}: {status}"
            wrong[key] = wrong.get(key, 0) + 1

    with tempfile.TemporaryDirectory() as folder:
        codes = np.random.default_rng(seed).integers(0, 256, (N_ITEMS, N_BYTES), dtype=np.uint8)
        truth = Truth(codes, asks)
        FlatIndex(codes).save(f"{folder}/codes.hgi")
        command = [sys.executable, "-m", "hashgrove", "serve", f"{folder}/codes.hgi", "--port", "0"]
        with started(command) as (port, pid):
            warm_up(port, asks)
            with beside(port, rough=N_ROUGH) as health:
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
        "longest wait of /health, ms": health["longest, ms"],
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
