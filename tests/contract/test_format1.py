"""Files of format 1, written by release 0.1.0 (tests/fixtures.py): every later version reads them, with equal codes."""

from __future__ import annotations

import inspect
import json
import shutil

import numpy as np
import pytest

import fixtures
import hashgrove
from hashgrove import BoostedTrees, load_hasher, load_index
from hashgrove.encoders import ENCODERS
from hashgrove.features import load_extractor
from hashgrove.functions import HASH_FUNCTIONS
from hashgrove.storage.models import plain, rebuild
from paths import FORMAT1

HASH_FUNCTIONS_BY_CLASS = {kind.__name__: kind for kind in HASH_FUNCTIONS.values()}
STORED = np.load(FORMAT1 / "inputs.npz")
CODES = {name: bytes.fromhex(text) for name, text in json.loads((FORMAT1 / "codes.json").read_text()).items()}


def test_there_is_a_model_of_every_encoder():
    assert CODES.keys() - {"fit", "image"} == ENCODERS.keys()


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_model_gives_the_codes_that_it_gave(name):
    assert hashgrove.load(FORMAT1 / f"{name}.hashgrove").encode(fixtures.ROWS).tobytes() == CODES[name]


def test_a_model_of_images_gives_the_codes_that_it_gave():
    assert hashgrove.load(FORMAT1 / "image.model").encode(fixtures.IMAGES).tobytes() == CODES["image"]


def test_a_fit_goes_on_from_its_model():
    hasher = load_hasher(FORMAT1 / "fit.model")
    assert hasher.transform(fixtures.X).tobytes() == CODES["fit"]
    longer = hasher.set_params(n_bits=6).fit(fixtures.X, fixtures.Y)
    np.testing.assert_array_equal(
        longer.transform(fixtures.X), fixtures.hasher(6).fit(fixtures.X, fixtures.Y).transform(fixtures.X)
    )


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    shutil.copy(FORMAT1 / "run.checkpoint", tmp_path / "run")
    learned = []
    hasher = fixtures.hasher(6, callbacks=[learned.append])
    hasher.fit(fixtures.X, fixtures.Y, checkpoint=tmp_path / "run")
    assert [record.bit for record in learned] == [4, 5]


@pytest.mark.parametrize("name", ["FlatIndex", "MultiIndex"])
def test_an_index_has_its_items_in_their_order(name):
    index = load_index(FORMAT1 / f"{name}.index")
    assert type(index).__name__ == name
    np.testing.assert_array_equal(index.ids, fixtures.IDS[5:])
    np.testing.assert_array_equal(index.codes, STORED["index"][5:])
    assert index.model == "0" * 64
    assert index.features.ids.tolist() == fixtures.IDS[5:].tolist()


@pytest.mark.parametrize("name", ["gist", "codebook"])
def test_an_extractor_gives_the_features_that_it_gave(name):
    extractor = load_extractor(FORMAT1 / f"{name}.features")
    np.testing.assert_allclose(extractor.transform(fixtures.IMAGES), STORED[name], rtol=1e-5, atol=1e-6)


def test_a_file_without_a_newer_parameter_means_what_it_meant():
    written = {"class": "BoostedTrees", "params": plain(BoostedTrees(n_trees=3))["params"]}
    del written["params"]["n_thresholds"]
    assert rebuild(written, HASH_FUNCTIONS_BY_CLASS).n_thresholds == 256, "the release tried all thresholds"
    assert rebuild(plain(BoostedTrees(n_trees=3)), HASH_FUNCTIONS_BY_CLASS).n_thresholds is None
    del written["params"]["n_trees"]
    with pytest.raises(ValueError, match="must have the parameters"):
        rebuild(written, HASH_FUNCTIONS_BY_CLASS)


@pytest.mark.parametrize("kind", HASH_FUNCTIONS_BY_CLASS.values())
def test_newer_parameters_are_parameters(kind):
    assert getattr(kind, "added", {}).keys() <= inspect.signature(kind).parameters.keys()
