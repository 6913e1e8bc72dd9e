"""A service that is killed at any moment loses no acknowledged change, and items keep their own features."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException

import numpy as np
import pytest

from hashgrove import FlatIndex
from hashgrove.baselines import SignThreshold
from hashgrove.index import load_index
from hashgrove.web.additions import Additions
from paths import TESTS
from processes import kills

ROUNDS, WRITERS = kills(100) // 2, 3
STOPPED = (OSError, HTTPException)  # what a client sees when the service is killed


class Writer(threading.Thread):
    """Adds, replaces and removes items of its own until the service is gone; knows what was acknowledged."""

    def __init__(self, port, number, rng, *, by_features):
        super().__init__()
        self.port, self.next, self.rng, self.by_features = port, number * 10**9, rng, by_features
        self.there, self.unsure = {}, set()

    def run(self):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            while True:
                self.change(connection)
        except STOPPED:
            connection.close()

    def change(self, connection):
        if self.there and self.rng.random() < 0.3:
            (id_, code), replaced = self.rng.choice(list(self.there.items())), self.rng.random() < 0.5
        else:
            self.next += 1
            id_, code, replaced = self.next, None, False
        new = self.rng.randbytes(4).hex()
        self.unsure.add(id_)  # until the answer comes
        if code is None or replaced:
            item = {"features": features_of(new)} if self.by_features else {"code": new}
            body = json.dumps({"items": [{"id": id_, "label": new, **item}], "replace": replaced})
            connection.request("POST", "/items", body, {"content-type": "application/json"})
        else:
            connection.request("DELETE", f"/items/{id_}")
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), text
        if code is None or replaced:
            self.there[id_] = new
        else:
            del self.there[id_]
        self.unsure.discard(id_)


def features_of(code):
    """The features that the model turns into a code: 1 for a one, -1 for a zero."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(code), np.uint8), bitorder="little")
    return (2.0 * bits - 1).tolist()


def check(folder, expected, unsure, *, by_features):
    """Every acknowledged change is on disk; others are there whole, or not at all."""
    index = load_index(folder)
    found = {id_: code.tobytes().hex() for id_, code in zip(index.ids.tolist(), index.codes, strict=True)}
    if by_features:
        codes = np.packbits(index.features.of(index.ids) > 0, axis=1, bitorder="little")
        assert codes.tolist() == index.codes.tolist()  # of each item its own
    entries = Additions(str(folder)).entries
    labels = {int(id_): entry.label for id_, entry in entries.items()}
    assert labels == {id_: code for id_, code in found.items() if id_ in labels or id_ >= 10}  # of each item its own
    sure = {id_: code for id_, code in found.items() if id_ not in unsure}
    assert sure == {id_: code for id_, code in expected.items() if id_ not in unsure}
    return found


def save_index(folder, codes, *, by_features):
    """Write an index of codes; with features, it stores them and holds the model that encodes them."""
    if not by_features:
        FlatIndex(codes).save(folder)
        return
    X = np.array([features_of(code.tobytes().hex()) for code in codes])
    hasher = SignThreshold(X.shape[1], threshold="zero").fit(X)
    index = FlatIndex(codes, model=hasher.encoder_)
    index.keep_features(X)
    index.save(folder)
    hasher.save(folder / "model.hashgrove")


@pytest.mark.parametrize("by_features", [False, True], ids=["codes", "features"])
def test_kill_9_under_writes_loses_no_acknowledged_change(tmp_path, by_features):
    folder, rng = tmp_path / "codes.hgi", random.Random(0)
    save_index(folder, np.arange(40, dtype=np.uint8).reshape(10, 4), by_features=by_features)
    expected = {id_: bytes(range(4 * id_, 4 * id_ + 4)).hex() for id_ in range(10)}
    expected = check(folder, expected, set(), by_features=by_features)
    command = [sys.executable, str(TESTS / "web_writer.py"), str(folder)]
    n_changes = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as starter:
        for round_ in range(ROUNDS):
            starter.stdin.write("start\n")
            pid, port = map(int, starter.stdout.readline().split())
            numbers = range(WRITERS * round_ + 1, WRITERS * (round_ + 1) + 1)
            writers = [Writer(port, number, random.Random(rng.random()), by_features=by_features) for number in numbers]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.02, 0.3))
            os.kill(pid, signal.SIGKILL)
            for writer in writers:
                writer.join()
                n_changes += len(writer.there)
                expected |= writer.there
            unsure = set().union(*(writer.unsure for writer in writers))
            expected = check(folder, expected, unsure, by_features=by_features)
        starter.stdin.close()
    assert n_changes > ROUNDS
