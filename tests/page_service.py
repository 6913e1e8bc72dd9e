"""The real service, in a thread, for tests of its page: digits with pictures, and words without."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np
import uvicorn
from PIL import Image
from sklearn.datasets import load_digits

from hashgrove import FlatIndex, Gist
from hashgrove import load as load_model
from hashgrove.baselines import SDH
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details
from hashgrove.web.pictures import pictures_in

N_PICTURES = 150
SIDE = 32  # pixels of a picture


def write_digits(folder, names, *, first):
    """Write digits of scikit-learn as pictures with these names, from the digit ``first`` on; gives their paths."""
    folder.mkdir()
    for pixels, name in zip(load_digits().images[first:], names, strict=False):
        small = Image.fromarray((255 - pixels * 15.9).astype(np.uint8))
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / name)
    return [str(folder / name) for name in names]


def collection_with_pictures(folder):
    """Digits as pictures, with labels, a model that takes pictures, and features for re-ranking."""
    pictures, others = folder / "pictures", folder / "others"
    names = [f"digit {number:03}.png" for number in range(N_PICTURES)]
    files = write_digits(pictures, names, first=0)
    trained = write_digits(others, names, first=N_PICTURES)  # codes of trained items would hardly differ
    targets = load_digits().target.astype(str)
    extractor = Gist(image_size=SIDE).fit(trained)
    hasher = SDH(32, random_state=0).fit(extractor.transform(trained), targets[N_PICTURES : 2 * N_PICTURES])
    hasher.save(folder / "model.hashgrove", features=extractor)
    model = load_model(folder / "model.hashgrove")
    X = extractor.transform(files)
    index = FlatIndex(hasher.transform(X), ids=names, model=model)
    index.keep_features(X, ids=names)
    labels = targets[:N_PICTURES]
    details = Details(np.array(names), labels=labels)
    return Collection(index, "digits.hgi", model=model, details=details, picture_of=pictures_in(str(pictures)))


def collection_of_texts():
    """Codes of eight bytes with fields, without pictures, labels and a model."""
    rng = np.random.default_rng(0)
    ids = np.arange(40)
    columns = {"title": [f"Report on topic {row % 7}" for row in ids], "year": [str(1990 + row) for row in ids]}
    codes = rng.integers(0, 256, (len(ids), 8), dtype=np.uint8)
    return Collection(FlatIndex(codes), "reports.hgi", details=Details(ids, columns=columns))


@contextmanager
def served(collection, *, port=0, key=None):
    """Serve a collection on the loopback interface; gives its address."""
    config = uvicorn.Config(create_app(collection, key=key), port=port, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
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
