"""The files of `deploy/`: nginx before a service, the unit of systemd, and what the container file runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
from test_cli_serve import command

from hashgrove import FlatIndex
from hashgrove.cli.serve import serve
from paths import REPOSITORY
from servers import free_port

DEPLOY = REPOSITORY / "deploy"
PATIENCE = 30


def program(name):
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    return found or pytest.skip(f"there is no {name}")


def options_in(name):
    """The options of `hashgrove serve` that a file names."""
    return set(re.findall(r"(?<![\w-])--[a-z-]+", (DEPLOY / name).read_text()))


def arguments_in(name, start):
    """The arguments of the command that a comment of a file shows."""
    lines = (DEPLOY / name).read_text().replace("# ", " ").replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if line.strip().startswith(start)]
    return shlex.split(line)[1:]


@pytest.fixture
def index(tmp_path):
    FlatIndex(np.arange(12, dtype=np.uint8).reshape(6, 2)).save(tmp_path / "photos.hgi")
    return tmp_path / "photos.hgi"


def test_nginx_shows_the_service_below_a_path(index, tmp_path):
    nginx, port, inner = program("nginx"), free_port(), free_port()
    arguments = arguments_in("nginx.conf", "hashgrove serve")
    arguments[arguments.index("--port") + 1] = inner
    arguments[arguments.index("photos.hgi")] = index
    site = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{inner}")
    temporary = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/body; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port}; server_name codes.example;\n{site}}} }}\n"
    )
    address = f"http://127.0.0.1:{port}"
    with (
        command(*arguments) as (service, _),
        subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf"], stderr=subprocess.DEVNULL) as proxy,
        httpx.Client(base_url=address, headers={"host": "codes.example"}) as client,
    ):
        try:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                try:
                    found = client.get("/search/health", headers={"x-forwarded-for": "6.6.6.6"})
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            assert found.json()["items"] == 6
            assert client.get("/search").headers["location"].endswith("/search/")
            page = client.get("/search/").text
            scripts = re.findall(r'src="([^"]+\.js)"', page)
            assert scripts
            assert all(client.get(f"/search/{script}").status_code == 200 for script in scripts)
            asked = {"json": {"codes": ["0001"], "k": 1}}
            origin = {"origin": "https://codes.example"}
            assert client.post("/search/search", headers=origin, **asked).json()["results"][0][0]["id"] == "0"
            assert client.post("/search/search", headers={"origin": "https://evil.example"}, **asked).status_code == 403
            assert client.get("/search/health", headers={"host": "evil.example"}).status_code == 403
        finally:
            proxy.terminate()
            service.terminate()
            log = service.stderr.read()
    assert '127.0.0.1 "GET /search/health" 200' in log
    assert "6.6.6.6" not in log  # what a client says of itself


def test_the_unit_is_one(tmp_path):
    analyze = program("systemd-analyze")
    unit = (DEPLOY / "hashgrove.service").read_text()
    start = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)[1]
    (tmp_path / "hashgrove.service").write_text(unit.replace(start, shutil.which("true")))
    done = subprocess.run(
        [analyze, "verify", tmp_path / "hashgrove.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["Containerfile", "hashgrove.service", "nginx.conf"])
def test_options_in_the_files_are_those_of_the_command(name):
    known = {option for parameter in serve.params for option in parameter.opts}
    foreign = {"--no-cache-dir", "--system", "--uid", "--create-home", "--directory", "--owner", "--start-period"}
    foreign |= {"--home-dir", "--now", "--format"}
    assert options_in(name) - foreign <= known


def test_the_command_of_the_container_serves_and_is_healthy(index):
    text = (DEPLOY / "Containerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[1])
    health = json.loads(re.search(r"^HEALTHCHECK .*?CMD (.+)$", text, re.MULTILINE)[1])
    entry[entry.index("8000")] = "0"
    assert entry.pop(0) == "hashgrove"
    with command(*entry, index, "--api-key", "secret") as (process, url):
        port = httpx.URL(url).port
        check = [part.replace("8000", str(port)) for part in health]
        subprocess.run([sys.executable, *check[1:]], check=True)
        assert httpx.get(f"http://127.0.0.1:{port}/info").status_code == 401
        process.terminate()
        assert process.wait(PATIENCE) == 0
