"""A service whose disk is full, or whose index another program has replaced, says so, and loses nothing."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from hashgrove.index import FlatIndex, folder
from hashgrove.web import changes
from hashgrove.web.opening import open_index
from index_writer import codes_of
from web_service import error_of, served

ITEM = {"items": [{"id": 9000, "code": codes_of([9000], 0).tobytes().hex()}]}


class FullDisk:
    """The module os, on a disk that takes no more."""

    def __getattr__(self, name):
        return self._full if name == "write" else getattr(os, name)

    def _full(self, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def place(tmp_path):
    FlatIndex(codes_of(range(5000), 0)).save(tmp_path / "codes.hgi")
    return tmp_path / "codes.hgi"


def test_a_full_disk(place, monkeypatch):
    with served(open_index(str(place))) as client:
        monkeypatch.setattr(folder, "os", FullDisk())
        for answer in (client.post("/items", json=ITEM), client.delete("/items/3")):
            assert str(place.parent) not in answer.text
            assert "disk of the service is full" in error_of(answer, 507)["message"]
        assert client.get("/health").json()["items"] == 5000
        monkeypatch.setattr(folder, "os", os)
        assert client.post("/items", json=ITEM).status_code == 201
    assert len(FlatIndex.load(place)) == 5001


def test_a_compaction_that_fails_is_no_error_of_the_change(place, monkeypatch):
    """The disk is full as soon as the removal is done, and the files are about to be rewritten."""
    real, called = FlatIndex.compact, []

    def compact(index):
        called.append(index)
        monkeypatch.setattr(folder, "os", FullDisk())
        real(index)

    monkeypatch.setattr(FlatIndex, "compact", compact)
    monkeypatch.setattr(changes, "COMPACT", 5000)
    with served(open_index(str(place))) as client:
        names = set(os.listdir(place))
        assert client.delete("/items/3").json() == {"removed": 1, "items": 4999}
        assert len(called) == 1
        assert set(os.listdir(place)) == names
    assert len(FlatIndex.load(place)) == 4999


def test_a_folder_that_is_replaced_while_it_is_served(place, tmp_path):
    with served(open_index(str(place))) as client:
        place.rename(tmp_path / "old")
        shutil.copytree(tmp_path / "old", place)
        before = {path.name: path.read_bytes() for path in place.iterdir()}
        answer = client.post("/items", json=ITEM)
        assert str(place) not in answer.text
        assert "could not be changed" in error_of(answer, 500)["message"]
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
