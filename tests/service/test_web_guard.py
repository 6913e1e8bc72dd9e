"""The guard of the service by itself: what is refused before the application is called, and what it adds to answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from hashgrove.web.counters import Counters
from hashgrove.web.guard import HEADERS, Guard
from hashgrove.web.limits import Limits

LIMIT = 100


def answer_of(app, *, headers=(), parts=(b"",), method="POST", path="/search"):
    """The status, headers and body that a guard in front of ``app`` sends, and how many parts of the body it took."""
    sent, taken = [], []

    async def receive():
        part = parts[len(taken)]
        taken.append(part)
        return {"type": "http.request", "body": part, "more_body": len(taken) < len(parts)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"localhost"), *headers]}
    guard = Guard(app, counters=Counters(), limits=Limits(body_bytes=LIMIT))
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:]), len(taken)


async def read_all(scope, receive, send, *, headers=()):
    """Answer with the number of bytes of the body."""
    n_bytes, more = 0, True
    while more:
        message = await receive()
        n_bytes, more = n_bytes + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": str(n_bytes).encode()})


@pytest.mark.parametrize("length", [str(LIMIT + 1), "1" + 30 * "0", "-1", "1e9", "", "5, 5"])
def test_a_length_that_is_too_large_or_no_number_is_refused_before_the_body_is_read(length):
    status, _, body, n_taken = answer_of(read_all, headers=[(b"content-length", length.encode())])
    assert (status, n_taken) == (413, 0)
    assert json.loads(body)["error"]["field"] == "body"


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_may_have_as_many_bytes_as_the_limit_says(declared):
    headers = [(b"content-length", str(LIMIT).encode())] if declared else []
    assert answer_of(read_all, headers=headers, parts=[bytes(LIMIT - 1), b"x"])[:3:2] == (200, b"100")


def test_a_body_that_does_not_declare_its_length_is_cut_off():
    status, _, _, n_taken = answer_of(read_all, parts=[bytes(60), bytes(41), bytes(10)])
    assert (status, n_taken) == (413, 2)


def test_every_answer_has_the_headers_and_keeps_a_cache_control_of_its_own():
    async def cached(scope, receive, send):
        await read_all(scope, receive, send, headers=[(b"cache-control", b"max-age=9")])

    for app, expected in ((read_all, b"no-store"), (cached, b"max-age=9")):
        _, headers, _, _ = answer_of(app)
        assert headers[b"cache-control"] == expected
        assert {name.encode(): value.encode() for name, value in HEADERS.items()}.items() <= headers.items()
