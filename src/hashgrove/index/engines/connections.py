"""`Connections`: connections to a database that threads borrow, one thread at a time each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["Connections"]


class Connections:
    """Connections that are opened when there is no free one, and kept for the next borrower.

    Parameters
    ----------
    connect : function
        Opens a connection, an object with the method ``close``.
    place : str
        The name of the database in error messages.
    """

    def __init__(self, connect: Callable[[], Any], place: str) -> None:
        self._connect, self._place = connect, place
        self._free: list[Any] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[Any]:
        """A connection. After an error it is closed instead of kept, since nobody knows what state it is in."""
        with self._lock:
            if self._closed:
                raise ValueError(f"{self._place}: the index must not be closed when it is used. Connect again.")
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            with suppress(Exception):  # the error that is being raised says more
                connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._free.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are free now, and the others when their borrowers return them."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()
