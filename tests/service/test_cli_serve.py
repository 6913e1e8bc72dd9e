"""The commands ``serve`` and ``demo --serve``: what they open, what they refuse, and how they stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from hashgrove import FlatIndex, cli
from hashgrove.cli.serve import open_collection
from hashgrove.index import connect
from hashgrove.storage.formats import FileError
from hashgrove.web.images import remember_images, remembered_images


@contextmanager
def command(*arguments):
    """Run a command that serves; gives its process and its address."""
    line = [sys.executable, "-m", "hashgrove", *map(str, arguments)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = ""
            while not (found := re.search(r"http://\S+", said)):
                said = process.stderr.readline()
                assert said, "the service did not start"
            yield process, found[0]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def codes(tmp_path):
    FlatIndex(np.arange(12, dtype=np.uint8).reshape(6, 2)).save(tmp_path / "codes.hgi")
    return tmp_path / "codes.hgi"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_and_stops_gracefully(codes, how):
    with command("serve", codes, "--port", 0) as (process, url):
        assert httpx.get(f"{url}health").json()["items"] == 6
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port)) as endless:
            endless.sendall(b"GET / HTTP/1.1\r\nx: ")
            with pytest.raises(OSError):  # noqa: PT012 -- it is cut off at some moment of many
                for _ in range(300):
                    endless.sendall(b"x" * 2**14)
                assert endless.recv(1) == b""
                raise ConnectionResetError
        assert httpx.post(f"{url}items", json={"items": [{"code": "ffff"}]}).status_code == 201
        process.send_signal(how)
        assert process.wait(30) == 0
        assert "Stopped" in process.stderr.read()
    assert len(open_collection(str(codes), read_only=True).index) == 7


def refused(*arguments):
    result = CliRunner().invoke(cli.main, ["serve", *map(str, arguments)])
    return result.exit_code, result.output


def test_strangers_need_a_key(codes):
    status, said = refused(codes, "--host", "0.0.0.0")
    assert (status, "--api-key" in said) == (2, True)
    assert refused(codes, "--api-key", "")[0] == 2
    assert refused(codes, "--labels", "y.npy", "--labels-from-folders")[0] == 2


def test_errors_are_one_line(codes, tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, said = refused(codes, "--port", taken.getsockname()[1])
    assert (status, said.count("\n"), "cannot be listened to" in said) == (1, 1, True)
    assert refused(tmp_path / "nothing.hgi")[0] == 1
    monkeypatch.setattr("hashgrove.cli.serve.find_spec", lambda name: None)
    assert "pip install 'hashgrove[serve]'" in refused(codes)[1]


def test_labels_and_fields_are_read_from_files(codes, tmp_path):
    np.save(tmp_path / "y.npy", np.array([1.0, 2.0, np.nan, 1.0, 2.0, 10.0]))
    (tmp_path / "fields.csv").write_text('id,name,author\n0,first,Ada\n9,other,Eve\n3,fourth,"Bob, B."\n')
    found = open_collection(str(codes), labels=str(tmp_path / "y.npy"), fields=str(tmp_path / "fields.csv"))
    with found.index:
        items = found.described(found.listed())
        assert items[0] == {"id": "0", "label": "1", "name": "first", "fields": {"author": "Ada"}}
        assert items[3]["fields"] == {"author": "Bob, B."}
        assert "label" not in items[2]
        assert found.details.classes == ["1", "2", "10"]


def test_labels_are_in_the_order_in_which_items_were_added(tmp_path):
    FlatIndex(np.array([[1], [2], [3]], np.uint8), ids=["c", "a", "b"]).save(tmp_path / "texts.hgi")
    np.save(tmp_path / "y.npy", np.array(["label of c", "label of a", "label of b"]))
    found = open_collection(str(tmp_path / "texts.hgi"), labels=str(tmp_path / "y.npy"), read_only=True)
    items = found.described(found.listed())
    assert [(item["id"], item["label"]) for item in items] == [(id_, f"label of {id_}") for id_ in "cab"]


@pytest.mark.parametrize("text", ["name\na\n", "id,id\n1,2\n", "id,x\n1\n", ""])
def test_a_table_of_fields_must_be_one(codes, tmp_path, text):
    (tmp_path / "fields.csv").write_text(text)
    with pytest.raises(FileError, match=r"fields\.csv"):
        open_collection(str(codes), fields=str(tmp_path / "fields.csv"))
    open_collection(str(codes)).index.close()  # the lock of the index was released


def test_the_index_remembers_where_its_images_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("photos/cats")
    Image.new("RGB", (4, 4)).save("photos/cats/a.png")
    os.mkdir("index")
    remember_images("index", ["photos/cats/a.png", "no image"])
    find = remembered_images("index")
    monkeypatch.chdir("/")
    assert find("photos/cats/a.png") == str(tmp_path / "photos" / "cats" / "a.png")
    assert find("photos/a.png") is None
    assert find("photos/cats/../../secret.png") is None
    folder = str(tmp_path / "index")
    remember_images(folder, [f"{tmp_path}/more/b.jpg"], keep_old=True)
    assert remembered_images(folder)("photos/cats/a.png") is not None
    remember_images(folder, ["1", "2"])
    assert remembered_images(folder) is None
    (tmp_path / "index" / "images.json").write_text('{"folders": [1]}')
    with pytest.raises(FileError, match=r"images\.json"):
        remembered_images(folder)


def test_demo_serves_images_of_digits(tmp_path):
    with command("demo", "--serve", "--port", 0) as (process, url):
        with httpx.Client(base_url=url, timeout=60) as client:
            info = client.get("/info").json()
            assert (info["takes_images"], info["has_labels"], info["can_rerank"]) == (True, True, True)
            item = client.get("/items", params={"label": "7", "limit": 1}).json()["items"][0]
            image = client.get(item["image"]).content
            hits = client.post("/search", files={"image": ("a.png", image)}).json()["results"][0]
            assert sum(hit["label"] == "7" for hit in hits) >= 8
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_serve_takes_the_url_of_an_engine(tmp_path):
    """Items are found, added and removed in the database itself."""
    url = f"sqlite:///{tmp_path}/codes.db"
    with connect(url) as index:
        index.add(np.arange(12, dtype=np.uint8).reshape(6, 2))
    with command("serve", url, "--port", 0) as (_, address):
        found = httpx.post(f"{address}search", json={"codes": ["0001"], "k": 2}).json()["results"][0]
        assert [(item["id"], item["distance"]) for item in found] == [("0", 0), ("1", 2)]
        assert httpx.post(f"{address}items", json={"items": [{"code": "ffff"}]}).status_code == 201
        assert httpx.delete(f"{address}items/2").status_code == 200
    with connect(url) as index:
        assert index.ids.tolist() == [0, 1, 3, 4, 5, 6]


def test_serve_makes_no_database(tmp_path):
    result = CliRunner().invoke(cli.main, ["serve", f"sqlite:///{tmp_path}/none.db"])
    assert result.exit_code == 1
    assert "no such file or folder" in result.output
    assert not list(tmp_path.iterdir())
