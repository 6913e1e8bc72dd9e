"""Downloads from a real server on this machine, which misbehaves in every way that servers do."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections import namedtuple
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from experiments.datasets import DATASETS, catalogue, download, fetch
from experiments.datasets.download import DownloadError, has_checksum
from experiments.progress import report_download
from experiments.tests.command import call

CONTENT = bytes(range(256)) * 4000  # about a megabyte: several chunks
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file at any path; the attributes say how, and ``seen`` has the headers of the requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag = CONTENT, '"one"'
        self.ranges = True
        self.drops: list[int] = []  # bytes after which the next answers break off
        self.statuses: list[int] = []  # of the next answers, instead of the file
        self.length: int | None = None  # to declare, instead of the true one
        self.declares = True
        self.location = None
        self.seen = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""

    def do_GET(self):
        server = self.server
        server.seen.append(dict(self.headers))
        start = self.start()
        if server.statuses:
            self.answer(server.statuses.pop(0))
        elif self.path == "/redirect":
            self.answer(302, Location=server.location)
        elif start is None:
            self.answer(416, **{"Content-Range": f"bytes */{len(server.content)}"})
        else:
            self.send(start)

    def send(self, start):
        server = self.server
        body = server.content[start:]
        headers = {"ETag": server.etag} if server.etag else {}
        if server.declares:
            headers["Content-Length"] = str(len(body) if server.length is None else server.length)
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(server.content) - 1}/{len(server.content)}"
        self.answer(206 if start else 200, **headers)
        with suppress(ConnectionError):  # who has seen enough hangs up
            self.wfile.write(body[: server.drops.pop(0)] if server.drops else body)

    def start(self):
        """First byte that is asked for; None if the file has none there."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        is_old = self.headers.get("If-Range", self.server.etag) != self.server.etag
        if not match or not self.server.ranges or is_old:
            return 0
        return int(match[1]) if int(match[1]) < len(self.server.content) else None

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", 0.001)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.bin"


def get(server, path, *, url=None, checksum=MD5, **more):
    download.download_file([url or server.url], path, checksum=checksum, size=len(CONTENT), **more)


def files(path):
    return sorted(file.name for file in path.parent.iterdir())


def fails(match, server, path, **arguments):
    with pytest.raises(DownloadError, match=match) as caught:
        get(server, path, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_whole(server, path, checksum):
    calls = []
    get(server, path, checksum=checksum, progress=lambda done, total: calls.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert files(path) == ["file.bin"]
    assert calls == sorted(calls)
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    get(server, path)
    assert len(server.seen) == 1  # what is there and right is not asked for again


def test_several_downloads_of_one_file_at_once(server, path):
    """One of them gets the file, the others wait for it; connections that break off give them time to collide."""
    server.drops = [300_000, 300_000]
    failures = []

    def attempt():
        try:
            get(server, path)
        except DownloadError as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert path.read_bytes() == CONTENT
    assert files(path) == ["file.bin"]
    assert len(server.seen) == 3


def test_a_wrong_file_in_its_place_is_replaced(server, path):
    path.write_bytes(b"old")
    get(server, path)
    assert path.read_bytes() == CONTENT


def test_goes_on_after_broken_connections(server, path):
    server.drops = [300_000, 1, 400_000]
    get(server, path)
    assert path.read_bytes() == CONTENT
    assert files(path) == ["file.bin"]
    assert [request.get("Range") for request in server.seen] == [
        None,
        "bytes=300000-",
        "bytes=300001-",
        "bytes=700001-",
    ]
    assert server.seen[1]["If-Range"] == '"one"'


def test_goes_on_where_another_run_stopped(server, path, monkeypatch):
    class Stop(Exception):
        pass

    def interrupt(done, total):
        if done > 500_000:
            raise Stop

    with pytest.raises(Stop):
        get(server, path, progress=interrupt)
    assert files(path) == ["file.bin.part", "file.bin.part.version"]
    have = (path.parent / "file.bin.part").stat().st_size
    get(server, path)
    assert path.read_bytes() == CONTENT
    assert server.seen[-1]["Range"] == f"bytes={have}-"
    assert files(path) == ["file.bin"]


def test_starts_anew_where_the_file_has_changed(server, path):
    (path.parent / "file.bin.part").write_bytes(b"x" * 1000)
    (path.parent / "file.bin.part.version").write_text('"zero"')
    get(server, path)
    assert path.read_bytes() == CONTENT
    assert server.seen[0]["If-Range"] == '"zero"'
    assert len(server.seen) == 1


def test_starts_anew_where_a_part_of_unknown_version_was_wrong(server, path):
    (path.parent / "file.bin.part").write_bytes(b"x" * 1000)
    get(server, path)
    assert path.read_bytes() == CONTENT
    assert [request.get("Range") for request in server.seen] == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 10])
def test_starts_anew_where_a_part_is_wrong_and_whole_or_too_long(server, path, size):
    (path.parent / "file.bin.part").write_bytes(b"x" * size)
    get(server, path)
    assert path.read_bytes() == CONTENT
    assert [request.get("Range") for request in server.seen] == [None]


def test_server_without_ranges(server, path):
    server.ranges, server.etag = False, None
    server.drops = [300_000]
    get(server, path)
    assert path.read_bytes() == CONTENT


def test_server_without_ranges_that_never_gets_far(server, path):
    server.ranges, server.drops = False, [300_000, 100_000] * 20
    fails("after 5 attempts: the connection ended after 100000 of 1024000 bytes", server, path)
    assert not path.exists()
    assert len(server.seen) == 6


def test_server_whose_file_is_too_short(server, path):
    server.content = CONTENT[:1000]
    (path.parent / "file.bin.part").write_bytes(b"x" * 1000)
    fails("must have 1024000 bytes. The server offers 1000", server, path)  # after a 416 and a new start
    assert files(path) == []


@pytest.mark.parametrize("length", [len(CONTENT) + 5, len(CONTENT) - 5])
def test_server_that_offers_another_length(server, path, length):
    server.length = length
    fails(f"must have {len(CONTENT)} bytes. The server offers {length}", server, path)
    assert files(path) == []


def test_server_that_declares_all_and_sends_less(server, path):
    server.content, server.length, server.ranges = CONTENT[:-5], len(CONTENT), False
    fails("after 5 attempts: the connection ended", server, path)
    assert not path.exists()


def test_server_that_declares_nothing_and_sends_more(server, path):
    server.content, server.declares = CONTENT + b"more", False
    get(server, path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_wrong_file_is_removed(server, path, checksum):
    server.content = CONTENT[:-1] + b"!"
    fails(f"must have the checksum {checksum}", server, path, checksum=checksum)
    assert files(path) == []


def test_a_wrong_download_keeps_what_is_there(server, path):
    path.write_bytes(b"old")
    server.content = CONTENT[:-1] + b"!"
    fails("must have the checksum", server, path)
    assert path.read_bytes() == b"old"


def test_passing_faults(server, path):
    server.statuses = [503, 429, 500, 206]
    get(server, path)
    assert path.read_bytes() == CONTENT


def test_lasting_faults(server, path):
    server.statuses = [503] * 9
    fails("after 5 attempts: 503", server, path)
    assert len(server.seen) == 5
    server.statuses = [404]
    fails("cannot be downloaded: 404", server, path)
    assert len(server.seen) == 6


def test_next_address(server, path):
    server.statuses = [403]
    download.download_file([f"{server.url}1", f"{server.url}2"], path, checksum=MD5, size=len(CONTENT))
    assert path.read_bytes() == CONTENT


def test_nobody_there(server, path):
    fails("after 5 attempts: .*[Rr]efused", server, path, url="http://127.0.0.1:9/file")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/file", "data:,hello", "file.bin"])
def test_other_schemes(server, path, url):
    fails("must be an address that begins with http", server, path, url=url)
    server.location = url
    redirect = server.url.replace("/file", "/redirect")
    if url != "file.bin":  # that one is a file of the server
        fails("must lead to http or https|not allowed", server, path, url=redirect)
    else:
        get(server, path, url=redirect)


def test_full_disk(server, path, monkeypatch):
    usage = namedtuple("usage", "free")(1_500_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    fails("1024000 bytes are needed on this disk, and 1500000 are free", server, path)
    assert not path.exists()


def test_a_part_that_cannot_be_written_is_no_reason_to_try_again(server, path):
    (path.parent / "file.bin.part").mkdir()
    fails("file.bin.part: cannot be written", server, path)
    assert len(server.seen) == 1


def test_checksum(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert has_checksum(tmp_path / "a", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert not has_checksum(tmp_path / "a", "md5:900150983cd24fb0d6963f7d28e17f73")


class TestFetch:
    @pytest.fixture
    def entry(self, server, monkeypatch):
        remote = catalogue.Remote("data.bin", (server.url,), SHA256, len(CONTENT))
        entry = catalogue.Entry(
            **{**vars(DATASETS["cifar10"]), "name": "small", "remotes": (remote,)},
        )
        monkeypatch.setitem(DATASETS, "small", entry)
        return entry

    def test_puts_files_into_a_folder_of_the_name(self, entry, tmp_path):
        assert fetch("small", root=tmp_path / "new") == [tmp_path / "new" / "small" / "data.bin"]
        assert (tmp_path / "new" / "small" / "data.bin").read_bytes() == CONTENT

    def test_by_the_command(self, entry, tmp_path, capsys):
        status, out, err = call(capsys, "datasets", "fetch", "small", "--root", str(tmp_path))
        assert status == 0
        assert out == f"{tmp_path / 'small' / 'data.bin'}\n"
        assert err == "data.bin: 1.0 of 1.0 MB\n"

    def test_folder_that_cannot_be_made(self, entry, tmp_path):
        (tmp_path / "small").write_text("a file")
        with pytest.raises(catalogue.FileError, match="cannot be made"):
            fetch("small", root=tmp_path)

    def test_what_cannot_be_fetched(self, tmp_path):
        with pytest.raises(DownloadError, match=r"Unpack espgame.20091111.tar.bz2 into .*espgame"):
            fetch("espgame", root=tmp_path)
        with pytest.raises(DownloadError, match="comes with scikit-learn"):
            fetch("digits", root=tmp_path)


class TestProgress:
    def test_lines_with_the_time_left(self, monkeypatch, capsys):
        clock = iter([0.0, 1.0, 2.0, 6.0, 8.0])
        monkeypatch.setattr("experiments.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
        with report_download("a.gz") as show:
            for done in (0, 10_000_000, 30_000_000, 40_000_000):
                show(done, 40_000_000)
        assert capsys.readouterr().err.splitlines() == ["a.gz: 30.0 of 40.0 MB  2 s left", "a.gz: 40.0 of 40.0 MB"]

    def test_bar_on_a_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        with report_download("a.gz") as show:
            show(20_000_000, 40_000_000)
        assert "20.0/40.0 MB" in capsys.readouterr().err
