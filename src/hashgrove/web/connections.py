"""Limits of connections: of their number, and of the time that a request may take to arrive.

A connection costs a client nothing, so none can be allowed to keep others out. A connection that has not sent a whole
request *waits*. Where there are too many connections, of one address or in all, the one that has waited longest is
closed to make room for a new one; a new one is answered with 503 only where all others have requests that are being
answered. A client that does not take its answer *waits*, too. Besides, the head of a request, its body, and a client
that has fallen behind with reading have a deadline each.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection", "Door"]

BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
BUSY = b'{"error":{"status":503,"field":null,"message":"Too many connections are busy. Try again in a second."}}'
TOLD = 64  # connections at a time that are told so; further ones are closed at once
TOLD_SECONDS = 1.0  # that a client has to read it
MAX_HEAD = 2**20  # bytes of a request before its body; a chunk that is read has up to 256 kB


@dataclass(eq=False)
class Door:
    """The open connections of a server, and their limits.

    Attributes
    ----------
    connections : int
        Of all clients.
    per_address : int or None
        Of one address; None means no limit of its own, as behind a proxy, where all clients have the same address.
    head_seconds, body_seconds : float
        Time from the opening of a connection, or from the answer before, to the end of the head of a request, and from
        there to the end of its body.
    answer_seconds : float
        Time in which a client that has fallen behind with reading must catch up: from more than 64 KiB that it has not
        taken, to less than 16 KiB.
    """

    connections: int = 1024
    per_address: int | None = 256
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    answer_seconds: float = 60.0
    n_told: int = 0  # connections that are told that there is no room
    open: dict[str, int] = field(default_factory=dict)  # number of connections by address
    waiting: dict[Connection, None] = field(default_factory=dict)  # in the order in which they began to wait

    def enter(self, connection: Connection) -> bool:
        """Count a new connection, after making room for it; False if there is no room."""
        address = connection.address
        if self.per_address is not None and self.open.get(address, 0) >= self.per_address:
            fits = self._make_room(address)
        else:
            fits = sum(self.open.values()) < self.connections or self._make_room(None)
        if fits:
            self.open[address] = self.open.get(address, 0) + 1
        return fits

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.waiting.pop(connection, None)
        left = self.open[connection.address] - 1
        self.open[connection.address] = left
        if not left:
            del self.open[connection.address]

    def _make_room(self, address: str | None) -> bool:
        """Close the connection of this address, or of any, that has waited longest."""
        for connection in self.waiting:
            if address in (None, connection.address):
                connection.abort()
                return True
        return False


class Connection(HttpToolsProtocol):
    """HTTP with limits. The parser has none for the size of the head, and the server none for the time of a request."""

    def __init__(self, *, door: Door, **settings: Any) -> None:
        super().__init__(**settings)
        self.door, self.address = door, ""
        self._n_head = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._inside = self._told = self._is_behind = False
        self._has_body_to_come = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request, or close the connection if there are too many."""
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        super().connection_made(transport)
        self._inside = self.door.enter(self)
        if self._inside:
            self._wait(self.door.head_seconds)
        elif self.door.n_told < TOLD:
            self._told = True
            self.door.n_told += 1
            transport.write(BUSY_ANSWER % (len(BUSY), BUSY))
            self._deadline = self.loop.call_later(TOLD_SECONDS, transport.abort)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        self._stop_waiting()
        if self._told:
            self._told = False
            self.door.n_told -= 1
        if self._inside:
            self._inside = False
            self.door.leave(self)

    def _wait(self, seconds: float) -> None:
        """Wait for the next part of a request."""
        self._stop_waiting()
        if self._inside:
            self.door.waiting[self] = None
            self._deadline = self.loop.call_later(seconds, self.abort)

    def _stop_waiting(self) -> None:
        self.door.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Parse data from the client, or close the connection if the head is too long."""
        if not self._inside:  # closing at once would take back the answer that there is no room
            return
        self._n_head += len(data)
        if self._n_head > MAX_HEAD:
            self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Wait for the body, which has a limit of its own on its size."""
        self._n_head, self._has_body_to_come = -(2**62), True
        if not self._is_behind:
            self._wait(self.door.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Do not wait while the request is answered; count the bytes of the next head."""
        self._n_head, self._has_body_to_come = 0, False
        if not self._is_behind:
            self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if self._is_idle() and not self._is_behind:
            self._wait(self.door.head_seconds)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def pause_writing(self) -> None:
        """Wait for the client, which does not take its answer."""
        super().pause_writing()
        self._is_behind = True
        self._wait(self.door.answer_seconds)

    def resume_writing(self) -> None:
        """Go on: the client has caught up."""
        self._is_behind = False
        if self._has_body_to_come:
            self._wait(self.door.body_seconds)
        elif self._is_idle():
            self._wait(self.door.head_seconds)
        else:
            self._stop_waiting()
        super().resume_writing()
