"""What small fits of the methods of the paper learn does not change by accident; see rival_fits.py."""

from __future__ import annotations

import json

import pytest

import fits
from experiments.tests import rival_fits

RECORDED = json.loads(rival_fits.RECORD.read_text())


def test_every_fit_is_recorded():
    assert RECORDED.keys() == rival_fits.FITS.keys()


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_fit_gives_the_recorded_codes(name):
    assert fits.same_codes(fits.describe(rival_fits.FITS[name]()), RECORDED[name])
