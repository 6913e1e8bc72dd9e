"""The real service over HTTP, in a thread; and a small collection with everything: model, labels and images."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from functools import partial

import httpx
import numpy as np
import uvicorn
from PIL import Image
from sklearn.datasets import load_digits

from hashgrove import FastHash, FlatIndex, Gist
from hashgrove.baselines import SDH
from hashgrove.cli.serve import open_collection
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.connections import Connection, Door
from hashgrove.web.details import Details

N_ITEMS, N_TRAINED, N_BITS, SIDE = 120, 150, 32, 32


@contextmanager
def at_address(collection, *, port=0, door=None, **settings):
    """Serve a collection on the loopback interface; gives its address."""
    with at_app(create_app(collection, **settings), port=port, door=door) as address:
        yield address


@contextmanager
def at_app(app, *, port=0, door=None):
    """Serve an application on the loopback interface; gives its address."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=port,
            http=partial(Connection, door=door or Door()),
            log_level="critical",
            lifespan="on",
            timeout_graceful_shutdown=10,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def served(collection, **settings):
    """Serve a collection on the loopback interface; gives a client of it."""
    with (
        at_address(collection, **settings) as address,
        httpx.Client(base_url=address.rstrip("/"), timeout=60) as client,
    ):
        yield client


def build_digits(folder):
    """Write images of digits, and an index of them with a model for images, labels in folders, and features."""
    pixels, targets = load_digits().images, load_digits().target
    images = [
        Image.fromarray((255 - digit * 15.9).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        for digit in pixels[: N_ITEMS + N_TRAINED]
    ]
    X_images = np.stack([np.asarray(image) for image in images])
    extractor = Gist(image_size=SIDE, n_cells=2).fit(X_images)
    X = extractor.transform(X_images)
    hasher = SDH(N_BITS, random_state=0).fit(X[N_ITEMS:], targets[N_ITEMS : N_ITEMS + N_TRAINED])
    names = [f"{label}/{number:03}.png" for number, label in enumerate(targets[:N_ITEMS])]
    for image, name in zip(images, names, strict=False):
        path = os.path.join(folder, "images", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        image.save(path)
    index = FlatIndex(hasher.transform(X[:N_ITEMS]), ids=names, model=hasher.encoder_)
    index.keep_features(X[:N_ITEMS], ids=names)
    index.save(os.path.join(folder, "digits.hgi"))
    hasher.save(os.path.join(folder, "digits.hgi", "model.hashgrove"), features=extractor)
    return X[:N_ITEMS], names


def open_digits(folder, **settings):
    """Open what `build_digits` wrote."""
    images = os.path.join(folder, "images")
    return open_collection(os.path.join(folder, "digits.hgi"), labels_from_folders=True, images=images, **settings)


def error_of(answer, status):
    """The error in an answer, which must have this status and the form of every error."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert set(error) == {"status", "field", "message"}
    assert error["status"] == status
    assert "Traceback" not in answer.text
    assert "\n" not in error["message"]
    return error


def collection_that_decodes():
    """300 digits with a model whose codes can be decoded, and features of the first 200; and vectors of queries."""
    X, targets = load_digits(return_X_y=True)
    model = FastHash(32, hash_function="decodable", random_state=0).fit(X[600:], targets[600:]).encoder_
    ids = np.arange(300)
    index = FlatIndex(model.encode(X[:300]), model=model)
    index.keep_features(X[:200], ids=ids[:200])
    details = Details(ids, labels=targets[:300].astype(str))
    return Collection(index, "digits.hgi", model=model, details=details), X[300:305]
