"""Connections that hold on to the service: half requests, slow ones, and too many of them, by real sockets."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress

import httpx
import numpy as np
import pytest

from hashgrove import FlatIndex
from hashgrove.web.collection import Collection
from hashgrove.web.connections import Door
from hashgrove.web.details import Details
from hashgrove.web.server import room_for
from paths import BENCHMARKS
from web_service import error_of, served

sys.path.insert(0, str(BENCHMARKS))

import http_load

HALF_HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
HALF_BODY = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"


def codes_collection():
    return Collection(FlatIndex(np.arange(200, dtype=np.uint8).reshape(50, 4)), name="codes")


def connected(stack, port, sent=b""):
    found = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    found.sendall(sent)
    return found


def is_closed(connection):
    """Whether the other side closes a connection, for which it has a minute, without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY], ids=["nothing", "half a head", "half a body"])
@pytest.mark.parametrize("arguments", [[], ["--connections-per-address", "0"]], ids=["alone", "behind a proxy"])
def test_1100_half_requests_keep_nobody_out(tmp_path, sent, arguments):
    if room_for(1500) < 1500:
        pytest.skip("this process may not open 1,500 files")
    codes_collection().index.save(str(tmp_path / "codes.hgi"))
    command = [sys.executable, "-m", "hashgrove", "serve", str(tmp_path / "codes.hgi"), "--port", "0", *arguments]
    with http_load.started(command) as (port, _), ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        assert client.get("/health").status_code == 200
        for _ in range(1100):
            connected(stack, port, sent)
        for path in ("/health", "/info"):
            assert httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60).status_code == 200
        found = httpx.post(f"http://127.0.0.1:{port}/search", json={"id": 3, "k": 2}, timeout=60)
        assert found.json()["results"][0][0]["id"] == "3"


def test_clients_that_leave_in_the_middle_of_a_request_are_no_errors(caplog):
    with served(codes_collection()) as client, ExitStack() as stack:
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)
        stack.callback(logging.getLogger("uvicorn.error").removeHandler, caplog.handler)
        for _ in range(3):
            connected(stack, client.base_url.port, HALF_BODY).close()
        for _ in range(1000):
            if 'route="/search",status="499"} 3' in client.get("/metrics").text:
                break
        else:
            pytest.fail("the three requests are not counted as left")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("sent", "short"), [(HALF_HEAD, "head_seconds"), (HALF_BODY, "body_seconds"), (b"", "head_seconds")]
)
def test_half_a_request_is_closed_in_time(sent, short):
    door = Door(**{"head_seconds": 600, "body_seconds": 600, short: 0.2})
    with served(codes_collection(), door=door) as client, ExitStack() as stack:
        assert is_closed(connected(stack, client.base_url.port, sent))
        assert client.get("/health").status_code == 200


def test_a_head_that_comes_byte_by_byte_has_the_same_deadline():
    with served(codes_collection(), door=Door(head_seconds=1)) as client, ExitStack() as stack:
        slow = connected(stack, client.base_url.port, HALF_HEAD)
        slow.settimeout(0.05)
        for _ in range(1200):  # a minute
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


def test_the_oldest_that_waits_makes_room():
    door = Door(connections=3, per_address=None, head_seconds=600)
    with served(codes_collection(), door=door) as client, ExitStack() as stack:
        port = client.base_url.port
        first, second, third = (connected(stack, port, HALF_HEAD) for _ in range(3))
        assert client.get("/health").status_code == 200
        assert is_closed(first)
        for open_still in (second, third):
            open_still.sendall(b"\r\n")
            assert open_still.recv(1000).startswith(b"HTTP/1.1 200")
        assert (sum(door.open.values()), len(door.waiting)) == (3, 3)


def test_addresses_have_limits_of_their_own():
    door = Door(connections=10, per_address=1, head_seconds=600)
    with served(codes_collection(), door=door) as client, ExitStack() as stack:
        port = client.base_url.port
        other = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)))
        first = connected(stack, port, HALF_HEAD)
        assert client.get("/health").status_code == 200
        assert is_closed(first)
        other.sendall(HALF_HEAD + b"\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 200")
        assert door.open == {"127.0.0.1": 1, "127.0.0.2": 1}


LARGE = b"GET /items?limit=500 HTTP/1.1\r\nhost: localhost\r\n\r\n"


def large_collection():
    """500 items whose page of the gallery is larger than what sockets and servers hold back."""
    details = Details(np.arange(500), columns={"text": ["x" * 10_000] * 500})
    return Collection(FlatIndex(np.zeros((500, 4), np.uint8)), name="large", details=details)


def wait_until(is_so):
    for _ in range(6000):  # a minute
        if is_so():
            return
        time.sleep(0.01)
    pytest.fail("it is still not so")


def is_behind(door):
    """Whether there is a connection whose client does not take its answer."""
    return any(connection._is_behind for connection in list(door.waiting))


def test_a_client_that_does_not_take_its_answer_has_a_deadline():
    door = Door(answer_seconds=0.3)
    with served(large_collection(), door=door) as client, ExitStack() as stack:
        connected(stack, client.base_url.port, 3 * LARGE)
        wait_until(lambda: is_behind(door))
        wait_until(lambda: not door.open)
        assert client.get("/health").status_code == 200


def test_a_client_that_reads_slowly_gets_all_of_its_answer():
    """It falls behind again and again, and catches up each time; then it asks again."""
    door = Door(answer_seconds=30, head_seconds=30)
    with served(large_collection(), door=door) as client, ExitStack() as stack:
        whole = client.get("/items", params={"limit": 500})
        slow = connected(stack, client.base_url.port)
        for _ in range(2):
            slow.sendall(LARGE)
            received = b""
            while not received.endswith(whole.content):
                received += slow.recv(2**17)
                time.sleep(0.002)
            assert received.startswith(b"HTTP/1.1 200")


def test_a_body_has_its_deadline_after_a_client_has_caught_up():
    """The head of a second request is read while the answer to the first one waits for the client."""
    door = Door(answer_seconds=60, head_seconds=60, body_seconds=2)
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    with served(large_collection(), door=door) as client, ExitStack() as stack:
        slow = connected(stack, client.base_url.port, LARGE + head)
        wait_until(lambda: is_behind(door))
        assert door.open
        with suppress(ConnectionResetError):
            while slow.recv(2**20):  # until the service closes it
                pass
        wait_until(lambda: not door.open)


def test_a_client_that_does_not_take_its_answer_makes_room():
    door = Door(connections=2, per_address=None, answer_seconds=600)
    with served(large_collection(), door=door) as client, ExitStack() as stack:
        slow = connected(stack, client.base_url.port, 3 * LARGE)
        wait_until(lambda: is_behind(door))
        connected(stack, client.base_url.port, HALF_HEAD)
        assert client.get("/health").status_code == 200
        assert not answers_in_full(slow)


def answers_in_full(connection):
    """Whether a service that closes a connection has sent three large answers before."""
    received = 0
    try:
        while part := connection.recv(2**20):
            received += len(part)
    except ConnectionResetError:
        pass
    return received > 3 * 5_000_000


def test_where_all_connections_are_busy_new_ones_are_told_so(monkeypatch):
    """A search that lasts until it may go on keeps the only connection busy."""
    collection, begun, may_go_on = codes_collection(), threading.Event(), threading.Event()
    search = collection.index.search

    def slow_search(*arguments, **options):
        begun.set()
        assert may_go_on.wait(60)
        return search(*arguments, **options)

    door = Door(connections=1, per_address=None)
    with served(collection, door=door) as client, ExitStack() as stack:
        stack.callback(may_go_on.set)
        monkeypatch.setattr(collection.index, "search", slow_search)
        body = b'{"codes": ["00010203"], "k": 1}'
        asked = http_load.post("/search", body)
        busy = connected(stack, client.base_url.port, asked)
        assert begun.wait(60)
        for _ in range(3):
            refused = httpx.get(f"http://127.0.0.1:{client.base_url.port}/health", timeout=60)
            assert error_of(refused, 503)["message"].startswith("Too many connections are busy")
            assert refused.headers["retry-after"] == "1"
        may_go_on.set()
        assert busy.recv(1000).startswith(b"HTTP/1.1 200")
        monkeypatch.undo()
        assert client.get("/health").status_code == 200  # in the place of the one that waits now
    assert (door.n_told, door.open) == (0, {})
