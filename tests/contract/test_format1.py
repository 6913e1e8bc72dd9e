"""Files of format 1, written by the first version: every later version reads them, with equal results."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hashgrove
from hashgrove import features
from hashgrove.encoders import ENCODERS
from paths import FORMAT1

INPUTS = np.load(FORMAT1 / "inputs.npz")
CODES = {name: bytes.fromhex(text) for name, text in json.loads((FORMAT1 / "codes.json").read_text()).items()}


def test_models_of_every_encoder_that_format_1_had_are_kept():
    assert CODES.keys() - {"image"} <= ENCODERS.keys()


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_model_gives_the_codes_that_it_gave(name):
    encoder = hashgrove.load(FORMAT1 / f"{name}.hashgrove")
    assert encoder.encode(INPUTS["images" if name == "image" else "X"]).tobytes() == CODES[name]


@pytest.mark.parametrize("name", ["gist", "codebook"])
def test_an_extractor_gives_the_features_that_it_gave(name):
    extractor = features.load_extractor(FORMAT1 / f"{name}.features")
    np.testing.assert_allclose(extractor.transform(INPUTS["images"]), INPUTS[name], rtol=1e-5, atol=1e-6)
