"""Arrays in .npz files: one's own, and small files in the form of the measured ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import damaged, few, one_line_error, reads_or_says_why
from experiments.datasets import DATASETS, load_dataset, load_npz
from hashgrove.storage.formats import FileError, MissingFileError

RNG = np.random.default_rng(0)
X = RNG.random((20, 3))
Y = RNG.integers(0, 2, (20, 4), dtype=np.uint8)


class TestOwn:
    def test_classes_without_split(self, tmp_path):
        path = tmp_path / "mine.npz"
        np.savez(path, X=X, y=np.array(["a", "b"] * 10))
        one, same, other = (load_npz(path, n_query=5, seed=seed) for seed in (0, 0, 1))
        assert one.name == "mine"
        assert one.query.tolist() == same.query.tolist() != other.query.tolist()
        np.testing.assert_array_equal(one.X_query, X[one.query])
        assert one.y_train.tolist() == np.array(["a", "b"] * 10)[one.train].tolist()
        assert one.n_labels == 2

    def test_tags_with_split_and_names(self, tmp_path):
        path = tmp_path / "mine.npz"
        np.savez(path, X=X, Y=Y, is_test=np.arange(20) > 16, words=np.array(["a", "b", "c", "d"]))
        dataset = load_npz(path, names="words")
        assert dataset.query.tolist() == [17, 18, 19]
        assert dataset.names == ("a", "b", "c", "d")
        assert dataset.has_tags

    def test_other_names(self, tmp_path):
        path = tmp_path / "mine.npz"
        np.savez(path, features=X, target=np.arange(20) % 3, held_out=(np.arange(20) < 2).astype(int))
        dataset = load_npz(path, features="features", labels="target", is_test="held_out")
        assert dataset.query.tolist() == [0, 1]
        one_line_error(lambda: load_npz(path), path, r"one of \[features, target, held_out\]. Got 'X'")

    @pytest.mark.parametrize(
        ("arrays", "match"),
        [
            ({"X": X[:, 0], "y": Y[:, 0]}, "'X' must be numbers in 2 dimensions"),
            ({"X": X[:, :0], "y": Y[:, 0]}, "'X' must be numbers in 2 dimensions"),
            ({"X": X.astype(str), "y": Y[:, 0]}, "'X' must be numbers"),
            ({"X": X, "y": Y[:5, 0]}, "'y' must have 20 rows, as the features have. Got 5"),
            ({"X": X, "Y": Y[None]}, "'Y' must be numbers in 1 or 2 dimensions"),
            ({"X": X[:1], "y": Y[:1, 0]}, "at least 2 rows"),
            ({"X": X, "y": Y[:, 0], "is_test": np.zeros(20, bool)}, "of which 0 are true"),
            ({"X": X, "y": Y[:, 0], "is_test": np.ones(20, bool)}, "of which 20 are true"),
            ({"X": X, "y": Y[:, 0], "is_test": np.arange(19) == 1}, "Got 19 values"),
            ({"X": X, "y": Y[:, 0], "is_test": np.ones(20)}, "'is_test' must be numbers"),
            ({"X": X, "Y": Y, "names": np.array(["a"])}, "'names' must have a name for each of 4 labels. Got 1"),
            ({"X": X, "y": Y[:, 0] + 3, "names": np.array(["a"] * 4)}, "each of 5 labels. Got 4"),
        ],
    )
    def test_wrong_arrays(self, tmp_path, arrays, match):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        one_line_error(lambda: load_npz(path, names="names" if "names" in arrays else None), path, match)

    def test_wrong_files(self, tmp_path):
        with pytest.raises(MissingFileError, match="no such file"):
            load_npz(tmp_path / "none.npz")
        path = tmp_path / "a.npz"
        path.write_bytes(b"hello")
        one_line_error(lambda: load_npz(path), path, "must be a .npz archive")
        one_line_error(lambda: load_npz(tmp_path), tmp_path, "cannot be read")

    @few
    @given(data=st.data())
    def test_damage(self, tmp_path_factory, data):
        path = tmp_path_factory.mktemp("npz") / "a.npz"
        np.savez(path, X=X, y=Y[:, 0], is_test=Y[:, 1])
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        reads_or_says_why(lambda: load_npz(path), path)


class TestMeasured:
    def test_bytes_are_decoded_or_not(self, tmp_path, monkeypatch):
        path = tmp_path / "mirflickr14.npz"
        codes = RNG.integers(0, 256, (20, 5), dtype=np.uint8)
        lo, scale = RNG.random(5).astype(np.float32), RNG.random(5).astype(np.float32)
        gist = RNG.random((20, 3)).astype(np.float16)
        arrays = {
            "gist": gist, "eff_u8": codes, "eff_lo": lo, "eff_scale": scale, "Y": Y,
            "is_test": np.arange(20) < 5, "names": np.array(["a", "b", "c", "d"]),
        }  # fmt: skip
        np.savez(path, **arrays)
        entry = DATASETS["mirflickr14"]
        decoded = entry.read(tmp_path, features="eff")
        assert decoded.features.dtype == np.float32
        np.testing.assert_array_equal(decoded.features, codes * scale + lo)
        assert decoded.query.tolist() == [0, 1, 2, 3, 4]
        assert decoded.names == ("a", "b", "c", "d")
        np.testing.assert_array_equal(entry.read(tmp_path, features="eff", decode=False).features, codes)
        assert entry.read(tmp_path).features.dtype == np.float32
        stored = entry.read(tmp_path, decode=False).features
        assert stored.dtype == np.float16
        np.testing.assert_array_equal(stored, gist)
        with pytest.raises(ValueError, match="'features' parameter must be one of"):
            entry.read(tmp_path, features="sift")
        with pytest.raises(FileError, match=r"must have 7683 training rows and 2493 queries. Got 15 and 5"):
            load_dataset("mirflickr14", root=tmp_path)
        np.savez(path, **{**arrays, "eff_lo": lo[:3]})
        one_line_error(lambda: entry.read(tmp_path, features="eff"), path, "'eff_lo' must have 5 values")

    def test_without_split(self, tmp_path):
        np.savez(tmp_path / "corel5k_bow_mulan.npz", X=X, Y=Y)
        dataset = load_dataset("corel5k-bow", root=tmp_path, n_query=7, seed=2)
        assert len(dataset.query) == 7
        assert dataset.query.tolist() == load_dataset("corel5k-bow", root=tmp_path, n_query=7, seed=2).query.tolist()

    def test_too_few_rows(self, tmp_path):
        path = tmp_path / "cifar10_gist512_u8.npz"
        np.savez(path, X=Y, y=Y[:, 0], lo=X[0], scale=X[0])
        one_line_error(lambda: load_dataset("cifar10-gist", root=tmp_path), path, "more than 50000 rows. Got 20")
