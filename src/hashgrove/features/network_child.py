"""`NetworkChild`: a child process that runs an untrusted network, so that no network can end or block this process.

A division of integers, or an operator with a wrong attribute, can end the process that computes it. Others take all of
its memory, or years. `hashgrove.features.network_process` is the child. It is started when it is first needed, keeps
the network open between batches, and ends with this process. Batches go through pipes, which takes about a millisecond
per megabyte; several threads may have a batch in it at a time.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["ChildEndedError", "NetworkChild", "memory_limit"]

PROGRAM = Path(__file__).with_name("network_process.py")
LENGTHS = struct.Struct("<IQ")
MAX_HEAD = 2**24  # bytes of the header of an answer


class ChildEndedError(ValueError):
    """The child process has ended before it answered."""


class _Pending:
    """Requests that wait for an answer, and the pipe that the answers come from."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._waiting: dict[int, tuple[Future[tuple[dict[str, Any], bytearray]], int]] = {}
        self._ended = False
        self._lock = threading.Lock()

    def expect(self, number: int, most: int) -> Future[tuple[dict[str, Any], bytearray]]:
        """The answer to a request, which may have ``most`` bytes of data."""
        future: Future[tuple[dict[str, Any], bytearray]] = Future()
        with self._lock:
            if self._ended:
                future.set_exception(ChildEndedError())
            self._waiting[number] = future, most
        return future

    def read(self) -> None:
        """Read answers until there are no more; then nothing will be answered."""
        try:
            while lengths := self._answers.read(LENGTHS.size):
                n_head, n_data = LENGTHS.unpack(lengths)
                head = json.loads(self._answers.read(n_head if n_head <= MAX_HEAD else 0))
                with self._lock:
                    future, most = self._waiting.pop(head["number"])
                data = bytearray(n_data if n_data <= most else 0)
                if self._answers.readinto(data) != n_data:  # type: ignore[attr-defined]
                    future.set_exception(ChildEndedError())
                    break
                future.set_result((head, data))
        except (ValueError, KeyError, TypeError, struct.error, OSError):
            pass  # a child that writes nonsense has ended, too
        with self._lock:
            self._ended = True
            for future, _ in self._waiting.values():
                future.set_exception(ChildEndedError())
            self._waiting.clear()
        self._answers.close()


class NetworkChild:
    """A running child process.

    Attributes
    ----------
    pid : int
        The process that started it; a fork of that must start its own.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(PROGRAM), str(memory_limit())]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env=environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._pending = _Pending(self._process.stdout)  # type: ignore[arg-type]
        self._numbers, self._sending = itertools.count(), threading.Lock()
        self.pid = os.getpid()
        threading.Thread(target=self._pending.read, name="hashgrove-network", daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._process, self.pid)

    @property
    def is_running(self) -> bool:
        """Whether this process may send requests to it."""
        return self.pid == os.getpid() and self._process.poll() is None

    def ask(
        self, header: dict[str, Any], data: Any, *, seconds: float | None, most: int
    ) -> tuple[dict[str, Any], bytearray]:
        """Send a request and wait for the answer: a header and data of at most ``most`` bytes.

        Raises
        ------
        TimeoutError
            It took more than ``seconds``. The process is ended then.
        ChildEndedError
            The process ended; the message says of what.
        """
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX) if seconds is not None else 0, give_up)
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            return self._exchange(header, memoryview(data), most)
        except (ChildEndedError, OSError) as error:
            self.end()
            if late.is_set():
                raise TimeoutError from error
            raise ChildEndedError(f"the process that runs the network was ended {self._why()}") from error
        except BaseException:  # such as Ctrl-C: nobody knows how much has been sent
            self.end()
            raise
        finally:
            timer.cancel()

    def _exchange(self, header: dict[str, Any], data: memoryview, most: int) -> tuple[dict[str, Any], bytearray]:
        number = next(self._numbers)
        answer = self._pending.expect(number, most)
        head = json.dumps({**header, "number": number, "most": most}).encode()
        with self._sending:
            self._send(memoryview(LENGTHS.pack(len(head), data.nbytes) + head))
            if data.nbytes:
                self._send(data.cast("B"))
        return answer.result()

    def _send(self, data: memoryview) -> None:
        while len(data):
            data = data[os.write(self._requests, data) :]

    def _why(self) -> str:
        code = self._process.returncode
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def end(self) -> None:
        """End the process."""
        self._finalizer()
        self._process.wait()  # another thread may have called it


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    if pid == os.getpid():
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def memory_limit() -> int:
    """Bytes of memory that a network may take: half of what this machine has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):  # Windows, where the child has no limit either
        return 2**33
