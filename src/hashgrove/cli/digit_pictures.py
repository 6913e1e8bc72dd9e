"""What ``hashgrove demo --serve`` shows: handwritten digits as picture files, and an index of them."""

from __future__ import annotations

import os

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from hashgrove.fasthash import FastHash
from hashgrove.features import Gist
from hashgrove.features.images import resize_images
from hashgrove.index import FlatIndex
from hashgrove.storage.atomic import atomic_write

__all__ = ["INDEX", "PICTURES", "index_digits"]

INDEX, PICTURES, MODEL = "digits.hgi", "pictures", "model.hashgrove"
N_TRAINED = 600  # the other 1,197 are indexed: codes of items that were trained on hardly differ within a class
N_BITS = 64
SIDE = 32  # pixels of a picture


def index_digits(folder: str, *, seed: int) -> None:
    """Learn codes from some digits; write the others as pictures, and an index of them with its model.

    Parameters
    ----------
    folder : str
        An empty folder; it gets the index ``digits.hgi`` and the folder ``pictures``.
    seed : int
        Seed of what is trained on, and of the model.
    """
    from PIL import Image

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    pixels, labels = digits.images[order], digits.target[order]
    images = resize_images((255 - pixels * 15.9).astype(np.uint8), SIDE, resampling="bicubic")
    # Threads of BLAS spin while they wait, which takes seconds on a busy machine with matrices this small.
    with threadpool_limits(1, user_api="blas"):
        extractor = Gist(image_size=SIDE).fit(images[:N_TRAINED])
        X = extractor.transform(images)
        hasher = FastHash(N_BITS, hash_function="posterior", random_state=seed).fit(X[:N_TRAINED], labels[:N_TRAINED])
        codes = hasher.transform(X[N_TRAINED:])
    names = [f"{label}/{number:04}.png" for number, label in zip(order[N_TRAINED:], labels[N_TRAINED:], strict=True)]
    for image, name in zip(images[N_TRAINED:], names, strict=True):
        path = os.path.join(folder, PICTURES, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with atomic_write(path) as file:
            Image.fromarray(image).save(file, "PNG")
    index = FlatIndex(codes, ids=names, model=hasher.encoder_)
    index.keep_features(X[N_TRAINED:], ids=names)
    index.save(os.path.join(folder, INDEX))
    hasher.save(os.path.join(folder, INDEX, MODEL), features=extractor)
