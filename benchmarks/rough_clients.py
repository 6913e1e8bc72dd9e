"""Clients that behave badly, and one that measures the longest wait of /health beside them.

`beside` starts them in a process of their own, for `soak_serve.py` and `hostile_requests.py`. They are: slow readers,
which ask for a large answer and take it in drops; half requests, which never end; and uploads that are aborted.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from http_load import Connection, request

INTERVAL = 0.02  # seconds from an answer of /health to the next request
LARGE = request("GET", "/items?limit=500")


def measure_health(port: int, stopped: threading.Event) -> dict[str, Any]:
    """Ask for /health again and again; return the waits in milliseconds."""
    waits, ask, connection = [], request("GET", "/health"), Connection(port)
    while True:
        connection.send(ask)
        while (status := connection.receive()) is None:
            pass
        waits.append(1000 * (time.perf_counter() - connection.started))
        if status != 200:
            raise RuntimeError(f"/health answered {status}")
        if stopped.wait(INTERVAL):
            break
    waits.sort()
    at = {f"{share:.0%}": round(waits[int(share * (len(waits) - 1))], 1) for share in (0.5, 0.99, 1.0)}
    return {"asked": len(waits), "waits of /health, ms": at, "longest, ms": round(waits[-1], 1)}


def read_slowly(port: int, stopped: threading.Event) -> None:
    """Ask for a large answer many times, and take a few bytes of it now and then."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(20 * LARGE)
        for _ in range(100):
            if stopped.wait(0.05):
                return
            connection.recv(100)


def send_half(port: int, stopped: threading.Event) -> None:
    """Send half of a head, or of a body, and wait."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        whole = request("POST", "/search", head="content-type: application/json\r\n", body=b'{"codes": []}')
        connection.sendall(whole[: random.choice((9, 40, len(whole) - 5))])
        stopped.wait(3)


def abort_upload(port: int, stopped: threading.Event) -> None:
    """Announce a megabyte, send a part of it, and leave."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        whole = request(
            "POST", "/search?kind=codes", head="content-type: application/octet-stream\r\n", body=bytes(2**20)
        )
        connection.sendall(whole[: random.randrange(200, 2**19)])
    stopped.wait(0.2)


def repeat(act: Callable[[int, threading.Event], None], port: int, stopped: threading.Event) -> None:
    """Do something until all is stopped; the service may close the connection."""
    while not stopped.is_set():
        with suppress(OSError):
            act(port, stopped)


@contextmanager
def beside(port: int, *, rough: int = 0) -> Iterator[dict[str, Any]]:
    """Measure /health, with ``rough`` clients of each kind that behaves badly; gives what was found at the end."""
    command = [sys.executable, __file__, str(port), "--rough", str(rough)]
    found: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield found
        finally:
            said, _ = process.communicate("")
            found.update(json.loads(said) if said.strip() else {"longest, ms": float("inf")})


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--rough", type=int, default=0, help="clients of each kind")
    options = parser.parse_args()
    stopped, found = threading.Event(), {}
    threads = [threading.Thread(target=lambda: found.update(measure_health(options.port, stopped)))]
    threads += [
        threading.Thread(target=repeat, args=(act, options.port, stopped))
        for act in (read_slowly, send_half, abort_upload)
        for _ in range(options.rough)
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
