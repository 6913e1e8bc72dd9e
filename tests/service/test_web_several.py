"""Several indexes in one service, several processes, the access log, and paths below one of a proxy."""

from __future__ import annotations

import os
import signal
import time

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from test_cli_serve import command

from hashgrove import FlatIndex, cli
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.several import RootPath, Several
from web_service import at_app, error_of

PATIENCE = 60


def guards(**settings):
    """Two indexes, one of which is called like a path of the service."""
    found = {}
    for name, codes in (("items", [[1], [2]]), ("b.2", [[7], [8], [9]])):
        collection = Collection(FlatIndex(np.array(codes, np.uint8)), name)
        found[name] = create_app(collection, names=["items", "b.2"], **settings)
    return found


@pytest.fixture
def client():
    with at_app(Several(guards())) as address, httpx.Client(base_url=address.rstrip("/"), timeout=60) as client:
        yield client


def test_paths_begin_with_the_name_of_an_index(client):
    assert client.get("/items/health").json()["items"] == 2
    assert client.get("/b.2/health").json()["items"] == 3
    assert client.get("/items/items/1").json()["code"] == "02"
    assert client.get("/items/items").json()["total"] == 2
    hits = client.post("/b.2/search", json={"codes": ["09"], "k": 1}).json()["results"][0]
    assert hits[0] == {"id": "2", "distance": 0}
    assert client.get("/b.2/info").json()["indexes"] == ["items", "b.2"]
    added = client.post("/items/items", json={"items": [{"code": "05"}]})
    assert added.json() == {"ids": ["2"], "items": 3}
    assert client.get("/b.2/health").json()["items"] == 3
    assert client.get("/health").json()["indexes"] == ["items", "b.2"]
    assert 'route="/search"' in client.get("/b.2/metrics").text
    assert 'route="/search"' not in client.get("/items/metrics").text


def test_other_paths_lead_to_the_first_index_or_nowhere(client):
    assert client.get("/").headers["location"] == "items/"
    assert client.get("/b.2").headers["location"] == "b.2/"
    for path in ("/search", "/b.3/health", "/items/b.2/health", "/b.2//health"):
        assert error_of(client.get(path), 404)
    page = client.get("/b.2/")
    assert 'src="page/main.js"' in page.text
    assert client.get("/b.2/page/main.js").status_code == 200


def test_access_is_checked_at_every_path():
    with (
        at_app(Several(guards(key="secret"))) as address,
        httpx.Client(base_url=address.rstrip("/"), timeout=60) as client,
    ):
        assert error_of(client.get("/b.2/info"), 401)
        assert error_of(client.get("/other"), 401)
        assert client.get("/b.2/info", headers={"x-api-key": "secret"}).status_code == 200
        assert error_of(client.get("/", headers={"host": "evil.example"}), 403)
        assert error_of(client.get("/b.2/health", headers={"host": "evil.example"}), 403)
        assert client.get("/").headers["x-frame-options"] == "DENY"


def test_the_access_log_has_no_secrets():
    lines = []
    apps = guards(key="secret-key", access_log=lines.append)
    with at_app(RootPath(Several(apps), "/codes")) as address, httpx.Client(base_url=address.rstrip("/")) as client:
        headers = {"x-api-key": "secret-key"}
        client.get("/codes/b.2/items/1", params={"password": "secret-query"}, headers=headers)
        client.get("/b.2/items/a%0Ab", headers={"authorization": "Bearer secret-key", "cookie": "secret"})
        client.get("/b.2/items/%22x%20%F0%9F%90%88", headers=headers)
        client.post("/codes/items/search", json={"codes": ["secret"]}, headers=headers)
    first, second, third, fourth = lines
    assert first.startswith('127.0.0.1 "GET /codes/b.2/items/1" 200 ')
    assert second.startswith('127.0.0.1 "GET /b.2/items/a%0Ab" 400 ')
    assert third.startswith('127.0.0.1 "GET /b.2/items/%22x%20%F0%9F%90%88" 422 ')
    assert fourth.startswith('127.0.0.1 "POST /codes/items/search" 422 ')
    assert not any("secret" in line or "\n" in line for line in lines)


@pytest.fixture
def folders(tmp_path):
    for name in ("a", "b"):
        FlatIndex(np.arange(12, dtype=np.uint8).reshape(6, 2)).save(tmp_path / f"{name}.hgi")
    return tmp_path / "a.hgi", tmp_path / "b.hgi"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.hgi", "x/a.hgi"], "NAME=INDEX"),
        (["a.hgi", "health=b.hgi"], "NAME=INDEX"),
        (["a.hgi", "b.hgi", "--labels", "y.npy"], "--labels: for one index only"),
        (["a.hgi", "--workers", "2"], "--read-only"),
        (["a.hgi", "--root-path", "codes/"], "--root-path must be a path"),
        ([], "INDEX"),
    ],
)
def test_wrong_calls_are_refused(arguments, said):
    result = CliRunner().invoke(cli.main, ["serve", *arguments])
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_several_workers_serve_one_port_and_one_that_ends_is_replaced(folders):
    arguments = ["serve", *folders, "--read-only", "--workers", 2, "--port", 0, "--root-path", "/codes"]
    behind = ["--host-name", "codes.example", "--proxy", "127.0.0.1"]
    with command(*arguments, "--access-log", *behind) as (process, url):

        def pid():
            with httpx.Client(base_url=url) as client:  # a new connection, which any of them may take
                headers = {"host": "codes.example", "x-forwarded-for": "203.0.113.9"}
                found = client.get("/codes/b/health", headers=headers)
                assert found.json()["items"] == 6
                return found.json()["process"]

        def eventually(condition):
            end = time.monotonic() + PATIENCE
            while not condition():
                assert time.monotonic() < end
                time.sleep(0.05)

        seen = set()
        eventually(lambda: seen.add(pid()) or len(seen) == 2)
        assert error_of(httpx.post(f"{url}a/items", json={"items": [{"code": "ffff"}]}), 403)
        killed = seen.pop()
        os.kill(killed, signal.SIGKILL)
        others = set()
        eventually(lambda: others.add(pid()) or len(others - {killed}) == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        said = process.stderr.read()
        assert "another takes its place" in said
        assert '203.0.113.9 "GET /codes/b/health" 200' in said
        assert said.strip().endswith("Stopped")
        for worker in others - {killed}:
            with pytest.raises(ProcessLookupError):
                os.kill(worker, 0)


def test_a_worker_that_cannot_open_its_index_ends_the_command(tmp_path):
    result = CliRunner().invoke(
        cli.main, ["serve", str(tmp_path / "no.hgi"), "--read-only", "--workers", "2", "--port", "0"]
    )
    assert result.exit_code == 1
    assert "Traceback" not in result.output
