"""Several processes that serve the same port: they share one socket, and one that ends unexpectedly is replaced."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from multiprocessing import connection, parent_process
from typing import Any

from hashgrove.storage.formats import FileError
from hashgrove.web.server import STOP_SECONDS, listen, url_of

__all__ = ["run_workers"]

log = logging.getLogger("hashgrove")

Work = Callable[..., None]


def run_workers(
    n_workers: int, work: Work, settings: dict[str, Any], *, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Serve by several processes until this one gets SIGINT (Ctrl+C) or SIGTERM.

    Parameters
    ----------
    n_workers : int
    work : function
        Serves in a process; it gets the ``settings``, and ``listening`` and ``ready`` as `hashgrove.web.server.run`.
    settings : dict
        They can be pickled; so can ``work``.
    host, port
        Address to listen at.
    ready : function
        Called with the URL of the page when all processes are ready.
    """
    listening = listen(host, port)
    listening.listen(2048)  # connections wait from now on, whichever process is the first
    context = multiprocessing.get_context("spawn")  # a fork would take over threads in the middle of their work
    told, tell = context.Pipe(duplex=False)

    def start() -> Any:
        process = context.Process(target=_serve, args=(work, settings, listening, tell), daemon=True)
        process.start()
        return process

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    workers = [start() for _ in range(n_workers)]
    n_ready = 0
    try:
        while True:
            for event in connection.wait([told, *(worker.sentinel for worker in workers)]):
                if event is told:
                    told.recv()
                    n_ready += 1
                    if n_ready == n_workers:
                        ready(url_of(listening, host))
            ended = [worker for worker in workers if worker.exitcode is not None]
            if ended and n_ready < n_workers:
                raise FileError("A worker ended before it was ready; its message is above.")
            for worker in ended:
                log.warning("A worker ended with status %s; another takes its place", worker.exitcode)
                workers[workers.index(worker)] = start()
    except KeyboardInterrupt:
        pass  # this is how it is stopped
    finally:
        signal.signal(signal.SIGTERM, before)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(2 * STOP_SECONDS)
            worker.kill()
        listening.close()


def _serve(work: Work, settings: dict[str, Any], listening: socket.socket, tell: Any) -> None:
    """Serve in a process of its own, until it is told to end or the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes of a terminal; one of them decides
    parent: Any = parent_process()

    def end_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    work(**settings, listening=listening, ready=lambda url: tell.send(None))
