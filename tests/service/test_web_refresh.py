"""What other processes change is seen by a service that only reads: items, labels, pictures, and another model."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hashgrove import LSH, FlatIndex
from hashgrove.cli.serve import open_collection
from hashgrove.index import connect
from hashgrove.web import current
from hashgrove.web.additions import Additions, Entry
from hashgrove.web.current import Current
from hashgrove.web.opening import open_index, refresh
from web_service import error_of, served

PATIENCE = 30


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(current, "SECONDS", 0.02)


def eventually(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path):
    model = LSH(16, random_state=0).fit(load_digits().data)
    codes = model.transform(load_digits().data[:40])
    FlatIndex(codes, model=model.encoder_).save(tmp_path / "x.hgi")
    model.save(tmp_path / "x.hgi" / "model.hashgrove")
    return str(tmp_path / "x.hgi")


def add(folder, code, id_, entry=None):
    with FlatIndex.load(folder, writable=True) as index:
        additions = Additions(folder, has=lambda ids: [True] * len(ids))
        with additions.change({str(id_): entry}):
            index.add(np.array([code], np.uint8), ids=[id_], model=index.model)


def n_items(client):
    return client.get("/health").json()["items"]


def test_items_that_another_process_adds_are_found_and_shown(folder):
    with served(open_collection(folder, read_only=True)) as client:
        assert client.get("/report").json()["status"] == "none"
        add(folder, [7, 8], 1000, Entry("new", {"name": "Number 1000"}))
        eventually(lambda: n_items(client) == 41)
        item = client.get("/items/1000").json()
        assert (item["label"], item["name"], item["code"]) == ("new", "Number 1000", "0708")
        hits = client.post("/search", json={"id": 1000, "k": 1}).json()["results"][0]
        assert hits[0]["id"] == "1000"
        assert client.get("/items", params={"label": "new"}).json()["total"] == 1
        assert client.get("/info").json()["has_labels"] is True
        with FlatIndex.load(folder, writable=True) as index:
            index.remove([1000])
        eventually(lambda: n_items(client) == 40)
        assert error_of(client.get("/items/1000"), 404)
        assert error_of(client.post("/search", json={"id": 1000}), 404)


def test_no_answer_is_wrong_while_items_change(folder):
    """Each item has a code that says its version and id; an answer must be of one moment."""
    rng = np.random.default_rng(0)
    with served(open_collection(folder, read_only=True)) as client:
        stop = threading.Event()

        def write():
            for version in range(40):
                with FlatIndex.load(folder, writable=True) as index:
                    ids = rng.permutation(np.arange(100, 120))
                    codes = np.stack([np.full(20, version), ids], axis=1).astype(np.uint8)
                    index.add(codes, ids=ids, replace=True, model=index.model)
                    if version % 7 == 6:
                        index.compact()
            stop.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen, last = set(), 0
        while not stop.is_set():
            id_ = int(rng.integers(100, 120))
            answer = client.get(f"/items/{id_}")
            if answer.status_code == 404:
                assert not seen
                continue
            version, number = bytes.fromhex(answer.json()["code"])
            assert number == id_
            assert version >= last
            seen.add(version)
            last = version
            code = bytes([version, id_]).hex()
            body = {"codes": [code], "k": 1, "model": client.get("/info").json()["model"], "show_code": True}
            (hit,) = client.post("/search", json=body).json()["results"][0]
            assert int(hit["id"]) >= 0
        writer.join()
        eventually(lambda: client.get("/items/110").json()["code"] == "276e")


def test_the_report_is_of_the_items_of_now(tmp_path):
    codes = np.repeat(np.array([[0, 0], [255, 255]], np.uint8), 10, axis=0)
    FlatIndex(codes).save(tmp_path / "x.hgi")
    folder = str(tmp_path / "x.hgi")
    additions = Additions(folder)
    for id_ in range(20):  # a journal without an index that is changed meanwhile, as an earlier service wrote it
        with additions.change({str(id_): Entry("ab"[id_ // 10])}):
            add(folder, [0, 0], 500)
            with FlatIndex.load(folder, writable=True) as index:
                index.remove([500])

    def report():
        found = {}
        eventually(lambda: found.update(client.get("/report").json()) or found["status"] != "running")
        return found["report"]

    with served(open_collection(folder, read_only=True)) as client:
        assert (report()["map"], report()["n_items"]) == (1.0, 20)
        add(folder, [255, 255], 20, Entry("a"))  # far from the others of its label
        eventually(lambda: n_items(client) == 21)
        assert report()["n_items"] == 21
        assert report()["map"] < 1.0


def test_codes_of_another_model_come_with_that_model(folder, tmp_path):
    X = load_digits().data
    other = LSH(24, random_state=1).fit(X)
    new = tmp_path / "new.hgi"
    FlatIndex(other.transform(X[:50]), model=other.encoder_).save(new)
    other.save(new / "model.hashgrove")
    with served(
        open_collection(folder, read_only=True), reopen=lambda: open_collection(folder, read_only=True)
    ) as client:
        assert client.get("/info").json()["n_bits"] == 16
        os.rename(folder, tmp_path / "old.hgi")
        os.rename(new, folder)
        eventually(lambda: client.get("/info").json()["n_bits"] == 24)
        hits = client.post("/search", json={"features": [X[45].tolist()], "k": 1}).json()["results"][0]
        assert hits[0]["id"] == "45"
        assert n_items(client) == 50


def test_without_a_way_to_open_it_anew_the_old_index_stays(folder, tmp_path, caplog):
    other = LSH(16, random_state=1).fit(load_digits().data)
    with served(open_collection(folder, read_only=True)) as client:
        FlatIndex(other.transform(load_digits().data[:7]), model=other.encoder_).save(folder)
        eventually(lambda: "another model" in caplog.text)
        assert n_items(client) == 40
        assert client.post("/search", json={"id": 3, "k": 1}).json()["results"][0][0]["id"] == "3"


def test_a_folder_that_is_gone_or_damaged_leaves_what_was_read(folder, caplog):
    with served(open_collection(folder, read_only=True)) as client:
        shutil.rmtree(folder)
        eventually(lambda: "cannot be read" in caplog.text)
        assert n_items(client) == 40
        assert client.post("/search", json={"id": 3, "k": 1}).json()["results"][0][0]["id"] == "3"


def test_a_table_of_a_database_is_read_again(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/codes.db"
    with connect(url, n_bits=8) as index:
        index.add(np.array([[1], [2]], np.uint8))
    with served(open_index(url)) as client, connect(url) as other:
        assert error_of(client.get("/items/7"), 404)
        other.add(np.array([[9]], np.uint8), ids=[7])
        eventually(lambda: client.get("/items/7").status_code == 200)
        monkeypatch.setattr("hashgrove.web.collection.ENGINE_SECONDS", 0)
        other.update(np.array([[5]], np.uint8), ids=[7])
        eventually(lambda: client.get("/items/7").json()["code"] == "05")
        refused = client.post("/items", json={"items": [{"code": "01", "label": "x"}]})
        assert error_of(refused, 422)["field"] == "items.0.label"


def test_a_service_that_writes_does_not_look(folder):
    collection = open_collection(folder)
    with collection.index:
        assert refresh(collection) is False


def test_an_old_service_is_closed_when_the_new_one_has_taken_its_place(folder):
    closed = []

    class Service:
        limits = type("Limits", (), {"seconds": 0.01})

        def close(self):
            closed.append(self)

    asyncio.run(Current._close_later(Service()))
    assert len(closed) == 1


def test_items_are_read_outside_the_event_loop(folder, monkeypatch):
    collection = open_collection(folder)
    read, threads = collection.index.items, set()

    def noted():
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return read()

    monkeypatch.setattr(collection.index, "items", noted)
    features = load_digits().data[:1].tolist()
    requests = [
        ("GET", "/items", None),
        ("GET", "/items/3", None),
        ("GET", "/info", None),
        ("POST", "/search", {"id": 3}),
        ("POST", "/search", {"features": features, "show_code": True, "show_histogram": True}),
        ("GET", "/report", None),
    ]
    with served(collection) as client:
        for method, path, body in requests:
            added = client.post("/items", json={"items": [{"features": features[0], "label": "x"}]})
            assert added.status_code == 201
            assert client.request(method, path, json=body).status_code == 200
    assert threads == {"hashgrove-encode"}


def test_any_failure_of_the_report_is_answered(folder, monkeypatch):
    def fail(collection):
        raise RuntimeError("secret details")

    monkeypatch.setattr("hashgrove.web.quality.measure", fail)
    add(folder, [1, 2], 900, Entry("x"))
    with served(open_collection(folder, read_only=True)) as client:
        eventually(lambda: client.get("/report").json()["status"] == "failed")
        assert "secret" not in client.get("/report").text
