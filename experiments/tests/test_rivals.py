"""The contract of every method of the paper that only the experiments have."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from baseline_contract import FEW_X, FEW_Y, BaselineContract, short, shortest
from experiments.baselines import BASELINES, RIVALS
from hashgrove import baselines
from hashgrove.encoders import ENCODERS


@parametrize_with_checks(shortest(RIVALS))
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=sorted(RIVALS))
def baseline(request):
    return RIVALS[request.param]


class TestEveryRival(BaselineContract):
    def test_a_model_with_an_encoder_of_its_own_says_that_it_cannot_be_saved(self, baseline, tmp_path):
        hasher = short(baseline, 9).fit(FEW_X, FEW_Y)
        if type(hasher.encoder_) in ENCODERS.values():
            hasher.save(tmp_path / "m.hashgrove")
        else:
            with pytest.raises(ValueError, match="cannot be saved"):
                hasher.save(tmp_path / "m.hashgrove")
            assert not list(tmp_path.iterdir())


def test_no_method_has_two_homes():
    assert not RIVALS.keys() & baselines.BASELINES.keys()
    assert BASELINES.keys() == RIVALS.keys() | baselines.BASELINES.keys()
