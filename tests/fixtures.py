"""Files of format 1, which every later version reads: ``python tests/fixtures.py`` writes them to tests/format1.

They are written once per format. Write them anew only if the format has not been released, or for a new encoder.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
from sklearn.datasets import load_digits

from example_encoders import N_FEATURES, example
from hashgrove import BoostedTrees, Codebook, FastHash, FlatIndex, Gist, ImageEncoder, LinearSVM, MultiIndex
from hashgrove.encoders import ENCODERS
from hashgrove.storage import models
from paths import FORMAT1

X, Y = load_digits(return_X_y=True)
X, Y = X[:200], Y[:200]
ROWS = np.random.default_rng(1).normal(size=(40, N_FEATURES))
IMAGES = np.random.default_rng(2).integers(0, 256, (12, 20, 20), np.uint8)
IDS = np.random.default_rng(3).permutation(60) * 3


def hasher(n_bits, **parameters):
    """A hasher whose fits are integers throughout, so that its bytes are the same on every machine."""
    trees = BoostedTrees.paper(n_trees=3, features_per_node=20)
    return FastHash.paper(n_bits, **{"hash_function": trees, "random_state": 0} | parameters)


def write_models():
    """A model of every encoder, of a fit, and of images; a checkpoint; returns the codes that they give."""
    codes = {}
    for name in ENCODERS:
        encoder = example(name, 9)
        models.save(FORMAT1 / f"{name}.hashgrove", encoder, hasher="FastHash", parameters={})
        codes[name] = encoder.encode(ROWS).tobytes().hex()
    fitted = hasher(4).fit(X, Y, checkpoint=FORMAT1 / "run.checkpoint")
    fitted.save(FORMAT1 / "fit.model")
    gist = Gist(n_cells=2, image_size=16).fit(IMAGES)
    svm = FastHash(8, hash_function=LinearSVM(), random_state=0).fit(gist.transform(IMAGES), np.arange(12) % 3)
    svm.save(FORMAT1 / "image.model", features=gist)
    codes["fit"] = fitted.transform(X).tobytes().hex()
    codes["image"] = ImageEncoder(gist, svm.encoder_).encode(IMAGES).tobytes().hex()
    return codes


def write_features():
    """A file of each extractor that needs no network; returns the features that they give."""
    extractors = {
        "gist": Gist(n_cells=2, image_size=16),
        "codebook": Codebook(8, patch_size=4, n_patches=200, n_iter=2, random_state=0),
    }
    found = {}
    for name, extractor in extractors.items():
        extractor.fit(IMAGES).save(FORMAT1 / f"{name}.features")
        found[name] = extractor.transform(IMAGES)
    return found


def write_indexes():
    """Folders of both indexes, with ids in any order and features, after a removal; returns their codes."""
    codes = np.random.default_rng(4).integers(0, 256, (60, 8), np.uint8)
    for make in (FlatIndex, MultiIndex):
        index = make(codes, ids=IDS, model="0" * 64)
        index.keep_features(np.arange(120, dtype=np.float32).reshape(60, 2))
        index.remove(IDS[:5])
        index.save(FORMAT1 / f"{make.__name__}.index")
    return codes


def main():
    shutil.rmtree(FORMAT1, ignore_errors=True)
    FORMAT1.mkdir()
    (FORMAT1 / "codes.json").write_text(json.dumps(write_models(), indent=1, sort_keys=True) + "\n")
    np.savez(FORMAT1 / "inputs.npz", index=write_indexes(), **write_features())


if __name__ == "__main__":
    main()
