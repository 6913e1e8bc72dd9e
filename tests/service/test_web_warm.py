"""A service is warm before it answers: what the first requests need is compiled and read."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hashgrove import FlatIndex
from hashgrove.web.collection import Collection
from web_service import build_digits, collection_that_decodes

# Everything that a client may ask, of a service whose kernels no earlier process has compiled
FIRST_REQUESTS = """
import logging, sys
from web_service import open_digits, served

class Compiled(logging.Handler):
    def emit(self, record):
        compiled.append(record.getMessage())

folder, compiled = sys.argv[1], []
collection = open_digits(folder)
logger = logging.getLogger("hashgrove.runtime.compiling")
logger.setLevel(logging.INFO)
logger.addHandler(Compiled())
collection.warm_up()
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
    collection.warm_up()
    assert all(np.array_equal(one, other) for one, other in zip(before, collection.contents(), strict=True))
