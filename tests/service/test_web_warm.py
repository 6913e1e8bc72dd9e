"""A service is warm before it answers: what the first requests need is compiled and read."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hashgrove import LSH, FlatIndex
from hashgrove.web.collection import Collection
from hashgrove.web.warming import warm_up
from web_service import build_digits, collection_that_decodes, served

# Everything that a client may ask, of a service whose kernels no earlier process has compiled
FIRST_REQUESTS = """
import logging, sys
from hashgrove.web.warming import warm_up
from web_service import open_digits, served

class Compiled(logging.Handler):
    def emit(self, record):
        compiled.append(record.getMessage())

folder, compiled = sys.argv[1], []
collection = open_digits(folder)
logger = logging.getLogger("hashgrove.runtime.compiling")
logger.setLevel(logging.INFO)
logger.addHandler(Compiled())
warm_up(collection)
assert compiled, "kernels were compiled before"
compiled.clear()
with served(collection) as client:
    first = client.get("/items").json()["items"][0]["id"]
    for how in ({}, {"rerank": True}, {"weights": True}, {"show_histogram": True}, {"radius": 3}):
        client.post("/search", json={"id": first, **how}).raise_for_status()
    with open(f"{folder}/images/{first}", "rb") as file:
        client.post("/search", files={"image": file}).raise_for_status()
print(*compiled, sep="\\n", end="")
"""


def test_first_requests_compile_nothing(tmp_path):
    build_digits(tmp_path)
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REQUESTS, str(tmp_path)],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize("kind", ["empty", "codes", "decodable"])
def test_any_collection_can_be_warmed_up(kind):
    made = {
        "empty": lambda: Collection(FlatIndex(np.empty((0, 2), np.uint8)), name="none"),
        "codes": lambda: Collection(FlatIndex(np.eye(8, dtype=np.uint8)), name="codes"),
        "decodable": lambda: collection_that_decodes()[0],
    }
    collection = made[kind]()
    before = collection.contents()
    warm_up(collection)
    assert all(np.array_equal(one, other) for one, other in zip(before, collection.contents(), strict=True))


def test_features_of_another_kind_are_not_ranked_by():
    """An index may keep features that its model does not take; by default, searches then leave them alone."""
    X = np.random.default_rng(0).normal(size=(20, 6))
    hasher = LSH(16, random_state=0).fit(X)
    index = FlatIndex(hasher.transform(X), model=hasher)
    index.keep_features(X[:, :2], ids=np.arange(20))
    collection = Collection(index, name="other", model=hasher.encoder_)
    warm_up(collection)
    assert (collection.can_rerank, collection.default_ranking) == (False, "bits")
    with served(collection) as client:
        for query in ({"id": 3}, {"features": [X[3].tolist()]}):
            answer = client.post("/search", json={**query, "k": 1}).raise_for_status().json()
            assert (answer["ranked_by"], answer["results"][0][0]["id"]) == ("bits", "3")


def test_a_change_is_looked_at_once_before_the_ranking_is_known():
    X = np.random.default_rng(0).normal(size=(20, 6))
    hasher = LSH(16, random_state=0).fit(X)
    index = FlatIndex(hasher.transform(X), model=hasher)
    index.keep_features(X, ids=np.arange(20))
    collection = Collection(index, name="own", model=hasher.encoder_)
    assert not collection.knows_ranking
    assert (collection.default_ranking, collection.knows_ranking) == ("features", True)
    index.add(hasher.transform(X[:1]), model=hasher)
    collection.changed()
    assert not collection.knows_ranking
    assert (collection.default_ranking, collection.knows_ranking) == ("bits", True)
