"""What a fixed set of small fits learns does not change by accident; see tests/fits.py."""

from __future__ import annotations

import json

import pytest

import fits

RECORDED = json.loads(fits.RECORD.read_text())
# trees on given pairs, inferred by cuts: integers throughout, so the bytes are the same on every machine
INTEGERS = (
    "loss ",
    "solver block-gc",
    "solver icm",
    "trees ",
    "few neighbours",
    "text labels",
    "tags",
    "pairs",
    "warm",
)


def test_no_recorded_fit_is_gone():
    assert RECORDED.keys() <= fits.FITS.keys()


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_fit_gives_the_recorded_model(name):
    found, recorded = fits.describe(fits.FITS[name]()), RECORDED[name]
    assert fits.same_codes(found, recorded)
    if name.startswith(INTEGERS) and not name.endswith(("spectral", "svm")):
        assert found["model"] == recorded["model"]
