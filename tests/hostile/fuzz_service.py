"""Requests for tests/hostile/fuzz.py, and what the service reads beside an index: ``--fields`` and ``images.json``.

A request is one file: method and target, then the headers, an empty line, and the body, as on the wire. It goes
through the whole application (guard, routes, bodies, answers), but through no socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from functools import cache
from typing import ClassVar
from urllib.parse import unquote_to_bytes

import numpy as np
from fuzz_seeds import RNG, Seed

from paths import FORMAT1

MOST_ITEMS = 200  # then the service starts anew
CODE = "0102"
BOUNDARY = "x0x"
SEARCHES = (
    {"codes": [CODE, "ffff"], "k": 2, "show_code": True, "show_histogram": True},
    {"id": "b", "k": 3, "radius": 9, "weights": False},
    {"codes": [CODE], "allowed": ["a", "b"], "rerank": False, "plain": True},
    {
        "features": [[0.5, -1e3, 0]],
        "k": 1,
        "rerank": True,
    },
)
ITEMS = (
    {"items": [{"id": "new", "features": [0, -1, 0.5]}, {"id": "é", "features": [1, 2, 3]}], "replace": True},
    {"items": [{"id": "told", "features": [0, 1, 2], "label": "cat", "fields": {"name": "Told", "year": "4"}}]},
)


def request(target, body=b"", *, kind="application/json", accept="*/*"):
    return f"{target}\r\ncontent-type: {kind}\r\naccept: {accept}\r\n\r\n".encode() + body


def json_seeds():
    for asked in SEARCHES:
        yield Seed(request("POST /search", json.dumps(asked).encode()))
    yield Seed(request("POST /encode", json.dumps({"features": [[1, 2.5, -3]]}).encode()))
    for asked in ITEMS:
        yield Seed(request("POST /items", json.dumps(asked).encode()))
    for target in (
        "GET /items?offset=1&limit=2&label=cat",
        "GET /items/%C3%A9",
        "DELETE /items/a",
        "GET /info",
        "GET /metrics",
    ):
        yield Seed(request(target))


def form_seeds():
    image = b"P6 2 2 255 " + bytes(range(12))
    for target, fields in (
        ("POST /search", {"k": "3", "radius": "7"}),
        ("POST /search", {"allowed": "a", "rerank": "true", "show_code": "1"}),
        ("POST /items", {"id": "new", "label": "cat", "fields": '{"name": "New", "year": "2001"}', "replace": "true"}),
    ):
        parts = [
            f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'.encode() for name, text in fields.items()
        ]
        parts.append(
            b'Content-Disposition: form-data; name="image"; filename="a.ppm"\r\nContent-Type: image/ppm\r\n\r\n' + image
        )
        body = (
            b"".join(b"--%s\r\n%s\r\n" % (BOUNDARY.encode(), part) for part in parts)
            + b"--%s--\r\n" % BOUNDARY.encode()
        )
        yield Seed(request(target, body, kind=f"multipart/form-data; boundary={BOUNDARY}"))


def binary_seeds():
    rows, codes = np.ones((2, 3), "<f4").tobytes(), bytes(4)
    for target, body in (
        ("POST /search?kind=features&k=2&rerank=true", rows),
        ("POST /search?kind=codes&k=3&radius=9&allowed=0&allowed=2", codes),
        ("POST /encode", rows),
        ("POST /items?kind=features&replace=true&label=cat&label=", rows),
    ):
        kind = "application/octet-stream"
        yield Seed(request(target, body, kind=kind, accept=kind if "encode" in target else "*/*"))


@cache
def loop():
    return asyncio.new_event_loop()


@cache
def models():
    """A model for three features, and one for images."""
    import hashgrove

    return hashgrove.LSH(16, random_state=0).fit(np.eye(3)).encoder_, hashgrove.load(FORMAT1 / "image.model")


class Served:
    """Applications with a small index, for each type of body; a new one as soon as it has many items, or few.

    The one for forms has images, and binary items have integers as ids.
    """

    known: ClassVar = {}

    @classmethod
    def current(cls, kind):
        index, app = cls.known.get(kind, ((), None))
        if not 2 < len(index) < MOST_ITEMS:
            from hashgrove import FlatIndex
            from hashgrove.web.app import create_app
            from hashgrove.web.collection import Collection
            from hashgrove.web.details import Details

            model = models()[kind == "form"]
            ids = np.arange(4) if kind == "binary" else np.array(["a", "b", "é", "long name"])
            X = RNG.random((4, (model.encoder if kind == "form" else model).n_features))
            index = FlatIndex(RNG.integers(0, 256, (4, model.n_bits // 8), np.uint8), ids=ids)
            index.keep_features(X, ids=ids)
            details = Details(ids, labels=np.array(["cat", "", "dog", "cat"]), columns={"year": ["1", "2", "3", ""]})
            app = create_app(Collection(index, name="fuzz", model=model, details=details), hosts=None)
            cls.known[kind] = index, app
        return app


async def answer_of(app, scope, body):
    """The status, headers and body of the answer to a request."""
    messages, sent = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return sent.pop() if sent else {"type": "http.disconnect"}

    async def send(message):
        messages.append(message)

    await app(scope, receive, send)
    start, *parts = messages
    assert start["type"] == "http.response.start"
    return start["status"], dict(start["headers"]), b"".join(part.get("body", b"") for part in parts)


def ask(path):
    """Send a request; it must be answered, and an error must say in JSON what is wrong."""
    from hashgrove.storage.formats import FileError

    head, _, body = path.read_bytes().partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    method, _, target = line.partition(b" ")
    place, _, query = target.partition(b"?")
    kind = "form" if b"multipart" in head else "binary" if b"octet-stream" in head else "json"
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in (header.partition(b":") for header in headers)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": re.sub("[^A-Z]", "", method.decode("latin-1")) or "GET",
        "path": unquote_to_bytes(place).decode("utf-8", "replace"),
        "raw_path": place,
        "root_path": "",
        "query_string": bytes(byte for byte in query if 32 < byte < 127),  # others do not get through the parser
        "headers": [(b"host", b"localhost"), *(pair for pair in pairs if pair[0] in (b"content-type", b"accept"))],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }
    status, answered, said = loop().run_until_complete(answer_of(Served.current(kind), scope, body))
    assert 200 <= status < 500, f"status {status}: {said[:200]}"
    if status < 400:
        return
    (problem,) = json.loads(said).values()
    assert set(problem) == {"status", "field", "message"}, problem
    assert problem["status"] == status
    assert "\n" not in problem["message"]
    assert answered[b"x-content-type-options"] == b"nosniff"
    raise FileError(f"{path}: {status} {problem['message']}")


def fields_seeds():
    yield Seed(b"id,label,name,year\na,cat,An a,2001\nb,dog,,\n")
    yield Seed('\ufeff"name","id"\r\n"x, y","é"\r\n'.encode())
    yield Seed(b"id,year\n1,2001\n\n3,\n")


def read_fields(path):
    from hashgrove.web.details import Details, read_fields

    for ids in (np.array(["a", "é", "c"]), np.array([1, 3])):
        columns = read_fields(os.fspath(path), ids)
        labels = np.array(columns.pop("label", [""] * len(ids)))
        found = Details(ids, labels=labels, columns=columns).of(ids)
        assert json.dumps(found)


def journal_seeds():
    entry = {"label": "cat", "fields": {"name": "A", "year": "1"}, "picture": 64 * "a"}
    lines = [{"before": "", "items": {"a": entry, "é": {}}}, {"before": 64 * "b", "items": {"a": None, "c": entry}}]
    yield Seed("".join(json.dumps(line) + "\n" for line in lines).encode())
    yield Seed(json.dumps(lines[0]).encode() + b"\n" + b'{"before": ""')


def read_journal(path):
    """Read the journal of an index, and clean it up as a service that writes does."""
    from hashgrove.web.additions import Additions

    folder = path.with_name(f"{path.name}.hgi")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    shutil.copy(path, folder / "added.jsonl")
    entries = Additions(os.fspath(folder)).entries
    for id_ in entries:
        place = Additions(os.fspath(folder)).picture(id_)
        assert place is None or os.path.dirname(place) == os.path.join(folder, "pictures")
    assert Additions(os.fspath(folder), has=lambda ids: [id_ in "ac" for id_ in ids]).entries.keys() <= {
        "a",
        "c",
        "ac",
        "",
    }


def images_seeds():
    yield Seed(json.dumps({"folders": {"photos": "/nowhere/photos", "": "/nowhere"}}, indent=1).encode())
    yield Seed(b'{"folders": {"photos": "relative"}, "more": [1, null]}')


def read_images(path):
    """Read images.json, whose folder is named after the file, and look for images."""
    from hashgrove.storage.formats import FileError
    from hashgrove.web.images import remembered_images, thumbnail

    folder = path.with_name(f"{path.name}.hgi")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / "images.json")
    find = remembered_images(os.fspath(folder))
    if find is None:
        raise FileError(f"{path}: has no folders")
    for id_ in ("photos/a.png", "b.jpg", "../c.png", "photos/no"):
        place = find(id_)
        assert place is None or thumbnail(place) is None
