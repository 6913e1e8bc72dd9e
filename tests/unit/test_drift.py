"""Drift: what a model file remembers of its training rows, and what new rows are compared with."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

import naive
from command import call, fails
from hashgrove import ITQ, FastHash, ModelFileError, ParameterError, load, measure_drift, unpack
from hashgrove.encoders.profile import CodeProfile
from hashgrove.storage.modelfile import read, write
from hashgrove.storage.models import read_learned

X, y = load_digits(return_X_y=True)
OLD = y < 7


@pytest.fixture(scope="module")
def hasher():
    """A validated model of seven of ten classes."""
    return FastHash(24, hash_function="posterior", random_state=0).fit(X[OLD][:800], y[OLD][:800], validation=0.25)


@pytest.fixture(scope="module")
def model(hasher, tmp_path_factory):
    path = tmp_path_factory.mktemp("drift") / "model.hashgrove"
    hasher.save(path)
    return str(path)


class TestProfile:
    def test_numbers_are_those_of_the_rows(self):
        hasher = ITQ(11, random_state=0).fit(X[:300])
        profile, codes = hasher.profile_, np.asarray(hasher.transform(X[:300]))
        assert profile.n_rows == 300
        np.testing.assert_array_equal(profile.ones, unpack(codes, n_bits=11).sum(axis=0))
        assert len(profile.codes) == 150
        nearest = naive.hamming(codes[naive_others(300, 150)], profile.codes).min(axis=1)
        np.testing.assert_array_equal(profile.nearest, np.bincount(nearest, minlength=12))
        assert not profile.held_out

    def test_it_is_small_for_many_rows_and_long_codes(self):
        rng = np.random.default_rng(0)
        hasher = ITQ(600, random_state=0, n_iter=1).fit(rng.normal(size=(3000, 600)))
        assert hasher.profile_.codes.shape == (2**14 // 75, 75)
        assert hasher.profile_.n_rows == 2000
        assert len(json.dumps(hasher.profile_.to_dict())) < 50_000

    def test_validation_gives_distances_of_held_out_rows(self, hasher):
        assert hasher.profile_.held_out
        assert hasher.profile_.nearest.sum() == 200

    def test_file_gives_it_back(self, hasher, model):
        found = read_learned(model).profile
        assert vars(found).keys() == vars(hasher.profile_).keys()
        for name, value in vars(hasher.profile_).items():
            np.testing.assert_array_equal(getattr(found, name), value)

    def test_same_bytes_with_any_number_of_threads(self, tmp_path):
        for n_jobs in (1, 2):
            again = FastHash(16, hash_function="posterior", random_state=0, n_jobs=n_jobs)
            again.fit(X[:400], y[:400], validation=0.25).save(tmp_path / f"{n_jobs}.hashgrove")
        assert (tmp_path / "1.hashgrove").read_bytes() == (tmp_path / "2.hashgrove").read_bytes()

    @pytest.mark.parametrize(
        "change",
        [
            {"ones": [1]},
            {"ones": [10**6] * 24},
            {"ones": [-1] * 24},
            {"ones": [0.5] * 24},
            {"ones": None},
            {"nearest": [1] * 26},
            {"nearest": ["a"]},
            {"codes": []},
            {"codes": ["00"]},
            {"codes": ["zz0000"]},
            {"codes": ["000000"] * 257},
            {"codes": ["000000", "00"]},
            {"codes": 3},
            {"n_rows": True},
            {"held_out": 1},
        ],
    )
    def test_what_a_file_says_is_checked(self, model, tmp_path, change):
        header, arrays = read(model, kind="encoder")
        header["learned"]["profile"].update(change)
        write(tmp_path / "bad.hashgrove", kind="encoder", header=header, arrays=arrays)
        with pytest.raises(ModelFileError, match=r"bad\.hashgrove: damaged: what it says about its fit"):
            read_learned(tmp_path / "bad.hashgrove")

    def test_one_row(self):
        profile = CodeProfile.of(ITQ(2, random_state=0).fit(X[:3]).encoder_, X[:1])
        assert (len(profile.codes), profile.nearest.sum(), profile.n_rows) == (1, 0, 1)


def naive_others(n_rows, n_codes):
    kept = set(np.linspace(0, n_rows - 1, n_codes).astype(int).tolist())
    return [row for row in range(n_rows) if row not in kept]


class TestMeasure:
    def test_rows_of_known_classes(self, hasher):
        found = measure_drift(hasher, X[OLD][800:])
        assert not found.is_far
        assert not found.is_unbalanced
        assert "No need to retrain" in str(found)

    def test_rows_of_new_classes(self, model):
        found = measure_drift(model, X[~OLD])
        assert found.is_far
        assert found.nearest > found.expected_nearest
        assert found.verdict.startswith(f"Retrain: {found.far:.0%} of the new rows are farther")
        assert "Retrain" in found._repr_html_()

    def test_other_shares_of_the_classes(self, hasher):
        found = measure_drift(hasher, X[OLD][800:][y[OLD][800:] == 3])
        assert not found.is_far
        assert found.is_unbalanced
        assert "more frequent, or rarer" in found.verdict

    def test_the_numbers(self, hasher):
        new, profile = X[~OLD], hasher.profile_
        codes = np.asarray(hasher.transform(new))
        nearest = naive.hamming(codes, profile.codes).min(axis=1)
        found = measure_drift(hasher, new)
        known = np.repeat(np.arange(25), profile.nearest)
        assert found.limit == min(d for d in range(25) if (known > d).mean() <= 0.01)
        assert found.far == pytest.approx((nearest > found.limit).mean())
        assert found.expected_far == pytest.approx((known > found.limit).mean())
        assert found.nearest == np.sort(nearest)[(len(nearest) - 1) // 2]
        change = unpack(codes, n_bits=24).mean(axis=0) - profile.ones / profile.n_rows
        assert found.balance == pytest.approx(np.abs(change).mean())

    def test_without_validation_the_advice_is_careful(self):
        fitted = FastHash(24, hash_function="posterior", random_state=0).fit(X[OLD][:800], y[OLD][:800])
        found = measure_drift(fitted, X[~OLD])
        assert not found.held_out
        assert found.verdict.startswith("Perhaps retrain")
        assert "--validate" in found.verdict

    def test_models_without_a_profile(self, model, tmp_path):
        header, arrays = read(model, kind="encoder")
        del header["learned"]["profile"]
        write(tmp_path / "old.hashgrove", kind="encoder", header=header, arrays=arrays)
        with pytest.raises(
            ValueError, match=r"old\.hashgrove: must remember its training rows.* Fit and save it again"
        ):
            measure_drift(tmp_path / "old.hashgrove", X)
        with pytest.raises(ValueError, match="FastHash: must remember"):
            measure_drift(FastHash(8), X)
        with pytest.raises(ParameterError, match="'model' parameter must be a fitted hasher or the path"):
            measure_drift(load(model), X)


class TestCommand:
    def test_text_and_json(self, capsys, model, tmp_path):
        np.save(tmp_path / "new.npy", X[~OLD])
        status, out, _ = call(capsys, "drift", model, str(tmp_path / "new.npy"))
        assert status == 0
        assert "\nRetrain: " in out
        found = json.loads(call(capsys, "drift", model, str(tmp_path / "new.npy"), "--json")[1])
        assert found["is_far"] is True
        assert found["n_rows"] == (~OLD).sum()

    def test_of_an_index(self, capsys, model, tmp_path):
        np.save(tmp_path / "X.npy", X[OLD][:800])
        folder = str(tmp_path / "items.hgi")
        assert call(capsys, "index", "build", str(tmp_path / "X.npy"), "--model", model, "-o", folder)[0] == 0
        assert "No need" in call(capsys, "drift", folder, str(tmp_path / "X.npy"))[1]
        (tmp_path / "items.hgi" / "model.hashgrove").unlink()
        fails(capsys, "drift", folder, str(tmp_path / "X.npy"), code=1, match="must hold its model. It does not; give")

    def test_info_does_not_print_it(self, capsys, model):
        assert "held_out" not in call(capsys, "info", model)[1]
