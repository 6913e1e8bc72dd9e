"""Requests that the service refuses: wrong fields, exceeded limits, missing keys, and pages of other origins."""

from __future__ import annotations

import io
import re
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from PIL import Image

from hashgrove import FlatIndex
from hashgrove.web import answers, app, bodies
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details
from hashgrove.web.guard import HEADERS
from hashgrove.web.limits import Limits
from web_service import build_digits, error_of, open_digits, served

JSON = {"content-type": "application/json"}
BINARY = {"content-type": "application/octet-stream"}


def codes_collection(**settings):
    codes = np.random.default_rng(0).integers(0, 256, (50, 4), dtype=np.uint8)
    return Collection(FlatIndex(codes), name="codes", **settings)


@pytest.fixture(scope="module")
def client():
    with served(codes_collection()) as found:
        yield found


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    build_digits(folder)
    with served(open_digits(folder, read_only=True)) as found:
        yield found


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({"codes": ["00000000"], "k": 0}, "k", "must be at least 1. Got 0 instead."),
        ({"codes": ["00000000"], "k": 1001}, "k", "must be at most 1000. Got 1001 instead."),
        ({"codes": ["00000000"], "k": "7"}, "k", "must be an integer. Got '7' instead."),
        ({"codes": ["00000000"], "k": True}, "k", "Got True instead."),
        ({"codes": ["00000000"], "radius": -1}, "radius", "must be at least 0. Got -1 instead."),
        ({"codes": ["0000"]}, "codes", "codes of 8 hexadecimal digits. Got '0000' instead."),
        ({"codes": ["0000000g"]}, "codes.0", "Got '0000000g' instead."),
        ({"codes": []}, "codes", "at least 1 entries"),
        ({"codes": ["00000000"] * 1025}, "codes", "at most 1024 entries"),
        ({"features": [[1.0]]}, "features", "the service has no model"),
        ({"codes": ["00000000"], "id": 1}, "id", "Exactly one of"),
        ({}, "features", "Exactly one of"),
        ({"codes": ["00000000"], "colour": 1}, "colour", "There is no field 'colour'."),
        ({"codes": ["00000000"], "rerank": True}, "rerank", "the index stores no features"),
        ({"codes": ["00000000"], "weights": True}, "weights", "the service has no model"),
        ({"codes": ["00000000"], "label": "x"}, "label", "items have no labels"),
        ({"codes": ["00000000"], "allowed": ["x"]}, "allowed", "integers of 64 bits"),
        ({"codes": ["00000000"], "allowed": [2**63]}, "allowed.0", "Got 9223372036854775808 instead"),
        ({"codes": ["00000000"] * 17, "show_histogram": True}, "show_histogram", "more than 16 queries"),
        ({"id": "9" * 30}, "id", "integers of 64 bits"),
    ],
)
def test_a_wrong_field_is_named(client, asked, field, said):
    error = error_of(client.post("/search", json=asked), 422)
    assert error["field"].startswith(field)
    assert said in error["message"]


def test_features_must_fit_the_model(images):
    short = error_of(images.post("/search", json={"features": [[1.0, 2.0]]}), 422)
    assert (short["field"], "Got 2 in row 0" in short["message"]) == ("features", True)
    for wrong in ("NaN", "Infinity", "1e999", '"x"'):
        body = f'{{"features": [[{", ".join([wrong] * 128)}]]}}'
        assert error_of(images.post("/search", content=body, headers=JSON), 422)["field"].startswith("features")
    nan = np.full(128, np.nan, "<f4").tobytes()
    assert "NaN" in error_of(images.post("/search", content=nan, headers=BINARY), 422)["message"]
    for both in ({"rerank": True, "weights": True}, {"rerank": True, "radius": 3}, {"weights": True, "radius": 3}):
        assert error_of(images.post("/search", json={"id": "0/000.png", **both}), 422)["field"]
    by_code = error_of(images.post("/search", json={"codes": ["00000000"], "rerank": True}), 422)
    assert "queries are codes" in by_code["message"]


def test_bodies_that_cannot_be_read(client):
    assert "must be JSON" in error_of(client.post("/search", content=b"{", headers=JSON), 400)["message"]
    assert "application/json" in error_of(client.post("/search", content=b"{}"), 415)["message"]
    assert error_of(client.post("/items", content="x", headers={"content-type": "text/plain"}), 415)
    long = error_of(client.post("/items", content="x", headers={"content-type": "text/" + 2000 * "x"}), 415)
    assert len(long["message"]) < 200
    for name in ("a\nb", 5000 * "a"):  # a name that the client has made up is shown on one line, and cut off
        for sent in (
            {"json": {name: 1}},
            {"params": {name: "1", "kind": "codes"}, "content": b"12", "headers": BINARY},
        ):
            unknown = error_of(client.post("/search", **sent), 422)
            assert unknown["message"] == f"There is no field '{unknown['field']}'."
            assert unknown["field"] == " ".join(name.split())[:80]
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert error_of(client.post("/search", content=b"--y", headers=broken), 400)
    odd = error_of(client.post("/search", params={"kind": "codes"}, content=b"123", headers=BINARY), 422)
    assert "rows of 4 bytes. Got 3 bytes" in odd["message"]
    assert error_of(client.post("/search", params={"kind": "x"}, content=b"1", headers=BINARY), 422)["field"] == "kind"
    wrong = {"kind": "codes", "k": "many"}
    assert error_of(client.post("/search", params=wrong, content=b"1234", headers=BINARY), 422)["field"] == "k"


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([], "items"),
        ([{"id": 1}], "items.0"),
        ([{"id": 1, "code": "00000000", "features": [1.0]}], "items.0"),
        ([{"id": 900, "code": "00"}], "items.code"),
        ([{"id": "x", "code": "00000000"}], "id"),
        ([{"id": 900, "code": "00000000"}, {"code": "00000000"}], "id"),
        ([{"id": 900, "code": "00000000"}] * 2, "items"),
        ([{"id": 900, "features": [1.0]}], "items.features"),
    ],
)
def test_wrong_items_change_nothing(client, items, field):
    assert error_of(client.post("/items", json={"items": items}), 422)["field"] == field
    assert client.get("/health").json()["items"] == 50


def test_parameters_of_the_gallery_are_checked(client):
    assert error_of(client.get("/items", params={"limit": 0}), 422)["field"] == "limit"
    assert error_of(client.get("/items", params={"offset": "x"}), 422)["field"] == "offset"


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 100])
def test_a_file_that_is_no_image(images, content):
    error = error_of(images.post("/search", files={"image": ("a.png", content)}), 422)
    assert error["field"] == "image"
    assert "/tmp" not in error["message"]


def test_an_image_that_declares_too_much_is_not_decoded(images):
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    error = error_of(images.post("/search", files={"image": ("a.png", bomb.getvalue())}), 422)
    assert "pixels" in error["message"]


def test_images_need_a_model_for_them_and_a_file(client, images):
    assert error_of(client.post("/search", files={"image": ("a.png", b"x")}), 422)["field"] == "image"
    assert error_of(images.post("/search", files={"other": ("a.png", b"x")}), 422)["field"] == "image"


def test_a_body_that_is_too_large_is_not_read(client):
    with served(codes_collection(), limits=Limits(body_bytes=1000)) as small:
        body = b'{"codes": ["' + b"0" * 2000 + b'"]}'
        assert error_of(small.post("/search", content=body, headers=JSON), 413)["field"] == "body"
        assert error_of(small.post("/search", content=iter([body[:900], body[900:]]), headers=JSON), 413)
    with served(codes_collection(), limits=Limits(image_bytes=10)) as small:
        assert error_of(small.post("/search", files={"image": ("a.png", b"x" * 11)}), 413)["field"] == "image"


class _Slow(FlatIndex):
    """An index that takes as long as a test wants."""

    gate = threading.Event()

    def _search(self, *arguments):
        self.gate.wait(20)
        return super()._search(*arguments)


def test_too_many_waiting_queries_and_too_much_time_give_503():
    slow = Collection(_Slow(np.zeros((5, 1), np.uint8)), name="slow")
    query = {"codes": ["00"]}
    _Slow.gate.clear()
    with served(slow, limits=Limits(waiting=2, seconds=1.0)) as client:
        with httpx.Client(base_url=client.base_url) as first:
            waiting = [threading.Thread(target=lambda: first.post("/search", json=query)) for _ in range(3)]
            for thread in waiting:  # one is searched for, two wait
                thread.start()
                time.sleep(0.1)
            full = client.post("/search", json=query)
            assert "Too many queries" in error_of(full, 503)["message"]
            assert full.headers["retry-after"] == "1"
            for thread in waiting:
                thread.join()
        late = client.post("/search", json=query)
        assert "took more than 1 seconds" in error_of(late, 503)["message"]
        _Slow.gate.set()
        assert 200 in (client.post("/search", json=query).status_code for _ in range(60))  # kernels may compile first


def test_an_error_inside_the_service_shows_nothing_of_it(monkeypatch):
    collection = codes_collection()
    monkeypatch.setattr(collection.index, "_search", lambda *arguments: 1 / 0)
    with served(collection) as client:
        answer = client.post("/search", json={"codes": ["00000000"]})
        assert "division" not in answer.text
        assert "log has" in error_of(answer, 500)["message"]
        assert HEADERS.items() <= dict(answer.headers).items()
        assert answer.headers["connection"] == "close"  # it is closed, so the client must not use it again
        assert client.get("/health").status_code == 200


def test_every_answer_has_the_headers_of_security(client):
    for answer in (client.get("/"), client.get("/health"), client.get("/nothing"), client.post("/search", content=b"")):
        assert HEADERS.items() <= dict(answer.headers).items()
    assert "unsafe" not in HEADERS["content-security-policy"]
    assert client.get("/info").headers["cache-control"] == "no-store"


def test_other_hosts_and_origins_are_refused(client):
    port = client.base_url.port
    assert error_of(client.get("/info", headers={"host": "rebound.example"}), 403)
    assert error_of(client.get("/info", headers={"host": f"127.0.0.1.example:{port}"}), 403)
    assert client.get("/info", headers={"host": f"localhost:{port}"}).status_code == 200
    query = {"codes": ["00000000"]}
    own = f"http://127.0.0.1:{port}"
    assert client.post("/search", json=query, headers={"origin": own}).status_code == 200
    for foreign in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://127.0.0.1:{port}.example"):
        assert error_of(client.post("/search", json=query, headers={"origin": foreign}), 403)
        assert error_of(client.delete("/items/1", headers={"origin": foreign}), 403)
    assert error_of(client.post("/search", json=query, headers={"sec-fetch-site": "cross-site"}), 403)
    assert "access-control-allow-origin" not in client.get("/info", headers={"origin": "http://evil.example"}).headers


def test_a_key_is_asked_for_everything_but_the_page():
    with served(codes_collection(), key="sésame") as client:
        for path in ("/", "/health", "/docs", "/openapi.json", "/page/nothing.js"):
            assert client.get(path).status_code != 401
        for path in ("/info", "/items", "/items/1", "/images/1", "/metrics", "/report", "/nothing"):
            assert error_of(client.get(path), 401)
            assert client.get(path, headers={"x-api-key": "sesame"}).status_code == 401
        assert client.get("/info").headers["www-authenticate"] == "Bearer"
        assert client.get("/info", headers={"x-api-key": "sésame".encode()}).status_code == 200
    with served(codes_collection(), key="open sesame") as client:
        assert client.get("/info", headers={"x-api-key": "open sesame"}).status_code == 200
        assert client.get("/info", headers={"authorization": "Bearer open sesame"}).json()["needs_key"]
        assert error_of(client.get("/info", headers={"authorization": "Basic open sesame"}), 401)


def test_no_path_of_a_client_is_opened(tmp_path):
    secret = tmp_path / "secret.png"
    Image.new("RGB", (4, 4)).save(secret)
    (tmp_path / "shown").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "shown" / "a.png")
    from hashgrove.web.images import images_in_folder, remember_images, remembered_images

    remember_images(str(tmp_path), [f"{tmp_path}/shown/a.png"])
    for find in (images_in_folder(str(tmp_path / "shown")), remembered_images(str(tmp_path))):
        ids = [str(secret), "../secret.png", f"{tmp_path}/shown/../secret.png", f"{tmp_path}/shown/a.png"]
        index = FlatIndex(np.zeros((len(ids), 1), np.uint8), ids=ids)
        with served(Collection(index, name="paths", find_image=find)) as client:
            for id_ in ids[:3]:
                assert error_of(client.get(f"/images/{httpx.QueryParams({'': id_})}".replace("=", "", 1)), 404)
    assert remembered_images(str(tmp_path))(ids[3]) == str(tmp_path / "shown" / "a.png")


def test_a_read_only_service_changes_nothing():
    with served(codes_collection(read_only=True)) as client:
        assert "read-only" in error_of(client.post("/items", json={"items": [{"code": "00000000"}]}), 403)["message"]
        assert error_of(client.delete("/items/1"), 403)


def test_a_report_needs_labels_that_occur_twice():
    with served(codes_collection()) as client:
        assert client.get("/report").json() == {"status": "none", "reason": "Items have no labels."}
    details = Details(np.arange(50), labels=np.arange(50).astype(str))
    with served(codes_collection(details=details)) as client:
        while (answer := client.get("/report").json())["status"] == "running":
            time.sleep(0.05)
        assert answer["status"] == "failed"
        assert "relevant" in answer["reason"]


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ({"codes": ["00000000"] * 1000, "k": 101}, "k' field must be at most 100 with 1000 queries"),
        ({"codes": ["00000000"] * 1000, "radius": 3, "k": 101}, "an answer has at most 100000 results"),
    ],
)
def test_the_results_of_all_queries_are_limited(client, asked, most):
    error = error_of(client.post("/search", json=asked), 422)
    assert (error["field"], most in error["message"]) == ("k", True)
    within = client.post("/search", json={**asked, "k": 100})
    assert [len(hits) for hits in within.json()["results"]] == [50 if "radius" not in asked else 0] * 1000


def test_a_radius_returns_as_many_as_an_answer_may_have():
    with served(codes_collection(), limits=Limits(results=60)) as small:
        found = small.post("/search", json={"codes": ["00000000"] * 3, "radius": 32}).json()
    assert [len(hits) for hits in found["results"]] == [20] * 3
    assert [query["truncated"] for query in found["queries"]] == [True] * 3
    with served(codes_collection(), limits=Limits(shown_bits=32 * 8)) as small:
        assert len(small.post("/search", json={"id": 1, "k": 9}).json()["results"][0]) == 9
        assert (
            "at most 8 with 1"
            in error_of(small.post("/search", json={"id": 1, "k": 9, "show_code": True}), 422)["message"]
        )


def many(start, entry, end):
    return start + b",".join([entry] * 200_000) + end


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (many(b'{"features": [[', b"[]", b"]]}"), "'features.0.0' field must be a number"),
        (many(b'{"features": [', b"1", b"]}"), "'features' field must be a list of at most 1024|'features.0' field"),
        (many(b'{"codes": ["00000000"], "allowed": [', b"{}", b"]}"), "'allowed"),
        (b"{" + b",".join(b'"a%d": 1' % n for n in range(100_000)) + b"}", "There is no field 'a0'"),
    ],
    ids=["numbers", "rows", "ids", "fields"],
)
def test_only_the_first_of_many_errors_is_looked_for(client, body, said, monkeypatch):
    counts = []
    errors = bodies.from_validation
    monkeypatch.setattr(bodies, "from_validation", lambda error: counts.append(error.error_count()) or errors(error))
    assert re.search(said, error_of(client.post("/search", content=body, headers=JSON), 422)["message"])
    assert counts[0] <= 4


def test_what_json_holds_is_limited_before_it_is_read(client):
    for body, what in ((b"[" + b"1," * 2**20 + b"1]", "1048576 values"), (b"[" + b'""' * 2**17 + b"]", "131072 texts")):
        error = error_of(client.post("/search", content=body, headers=JSON), 413)
        assert what in error["message"]


def test_large_bodies_and_answers_are_made_in_one_thread_beside_the_loop(monkeypatch):
    seen = []
    make, read = answers.json_results, bodies.Body._from_json

    def remember(what, function):
        return lambda *args, **kw: seen.append((what, threading.current_thread().name)) or function(*args, **kw)

    monkeypatch.setattr(app, "json_results", remember("answer", make))
    monkeypatch.setattr(bodies.Body, "_from_json", remember("body", read))
    with served(codes_collection()) as client:
        for n_queries, is_large in ((1, False), (5000 // 50, True), (1000, True)):
            seen.clear()
            query = {"codes": ["00000000"] * n_queries, "k": 50, "allowed": [*range(10_000 if is_large else 10)]}
            assert client.post("/search", json=query).status_code == 200
            assert [what for what, _ in seen] == ["body", "answer"]
            assert {name.startswith("hashgrove-large") for _, name in seen} == {is_large}


def test_odd_addresses_and_numbers_are_refused(client):
    client.post("/items", json={"items": [{"id": 77, "code": "00000000"}]})
    assert error_of(client.delete("/items/77%0A"), 400)
    assert client.get("/items/77").status_code == 200
    assert error_of(client.post("/search", json={"id": 1}, headers={"origin": "http://["}), 403)
    for number in ("--5", "+-5", "0x5", "", "9" * 400):
        refused = client.post("/search", params={"kind": "codes", "k": number}, content=b"1234", headers=BINARY)
        assert error_of(refused, 422)["field"] == "k"


def test_ids_have_no_control_characters():
    with served(Collection(FlatIndex(np.zeros((1, 4), np.uint8), ids=["a"]), name="texts")) as client:
        for id_ in ("x\n", "a\tb", "\x7f", "\x85"):
            assert error_of(client.post("/items", json={"items": [{"id": id_, "code": "00000000"}]}), 422)
        assert client.get("/health").json()["items"] == 1


def test_the_length_is_refused_before_the_body_is_read(client):
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=60) as half:
        half.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (2**24 + 1))
        assert half.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_an_answer_keeps_its_own_cache_control(images):
    answer = images.get("/images/0%2F000.png")
    assert answer.headers.get_list("cache-control") == ["private, max-age=3600"]


def test_half_a_request_harms_nobody(client):
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as half:
        half.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{")
        assert client.get("/health").status_code == 200
    assert client.get("/health").status_code == 200
