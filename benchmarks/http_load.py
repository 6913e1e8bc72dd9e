"""Services as processes, and a cheap load of HTTP requests: many connections, each with one request at a time.

A client that does more per request than the service would measure itself. This one only finds the end of each answer.
"""

from __future__ import annotations

import re
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"


def request(method: str, path: str, *, head: str = "", body: bytes = b"") -> bytes:
    """Return a whole request; ``head`` are further lines of its head."""
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body


def post(path: str, body: bytes, *, kind: str = "application/json") -> bytes:
    """Return a whole request that sends a body."""
    return request("POST", path, head=f"content-type: {kind}\r\n", body=body)


@contextmanager
def started(command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Run a service that says on stderr where it is; give its port and its process id."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", said)):
                said = process.stderr.readline()
                if not said:
                    raise RuntimeError(f"the service did not start: {' '.join(command)}")
            yield int(found[1]), process.pid
        finally:
            process.terminate()
            process.wait()


@dataclass
class Load:
    """What came back: the seconds that each request took, in the order of the answers, and those of everything."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def percentile(self, share: float) -> float:
        """Return the time within which this share of the requests was answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection:
    """A connection with one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.started = 0.0

    def send(self, request: bytes) -> None:
        """Send a whole request."""
        self.received, self.started = b"", time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> int | None:
        """Take in what there is; return the status if the answer is complete."""
        part = self.socket.recv(2**18)
        if not part:
            raise ConnectionError("the service closed the connection")
        self.received += part
        end = self.received.find(END_OF_HEAD)
        if end < 0:
            return None
        head = self.received[:end].lower()
        start = head.find(LENGTH) + len(LENGTH)
        length = int(head[start : head.find(b"\r\n", start) if b"\r\n" in head[start:] else None])
        return int(head[9:12]) if len(self.received) >= end + 4 + length else None


def load(
    port: int,
    requests: Sequence[bytes],
    *,
    n_clients: int,
    n_requests: int,
    check: Callable[[int, bytes], None] = lambda number, answer: None,
) -> Load:
    """Send ``n_requests``, which take turns, over ``n_clients`` connections.

    Parameters
    ----------
    port : int
        Of a service on this machine.
    requests : sequence of bytes
        Whole requests, as of `post`.
    n_clients, n_requests : int
    check : function
        Called with the number of the request in ``requests`` and with the whole answer.
    """
    result, sent = Load(), 0
    selector = selectors.DefaultSelector()
    numbers: dict[Connection, int] = {}
    started = time.perf_counter()
    for _ in range(min(n_clients, n_requests)):
        connection = Connection(port)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        numbers[connection] = sent % len(requests)
        connection.send(requests[numbers[connection]])
        sent += 1
    while len(result.latencies) < n_requests:
        for key, _ in selector.select():
            connection = key.data
            status = connection.receive()
            if status is None:
                continue
            result.latencies.append(time.perf_counter() - connection.started)
            result.statuses[status] = result.statuses.get(status, 0) + 1
            check(numbers[connection], connection.received)
            if sent < n_requests:
                numbers[connection] = sent % len(requests)
                connection.send(requests[numbers[connection]])
                sent += 1
    result.seconds = time.perf_counter() - started
    for connection in numbers:
        connection.socket.close()
    return result
