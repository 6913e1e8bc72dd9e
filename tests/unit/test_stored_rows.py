"""Rows in files: what is read is what is in memory, and fits give the same models."""

from __future__ import annotations

import itertools
import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.base import clone

from hashgrove import (
    ITQ,
    BoostedTrees,
    FastHash,
    FeatureStore,
    LinearSVM,
    ParameterError,
    PosteriorBits,
    StoredRows,
    build_store,
    load,
)
from hashgrove.runtime.memory import _limits_of_cgroups, memory_limit
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.trees.binning import fit_bins
from makers import blob_tags, blobs, pairs_of

TREES = BoostedTrees(n_trees=6, max_depth=3)
STARTED = BoostedTrees(n_trees=4, max_depth=3, start="linear")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Several pieces, chunks and reads, and no rows that are kept because they are few."""
    monkeypatch.setattr("hashgrove.storage.stored_rows.PIECE_BYTES", 4 * 12 * 300)
    monkeypatch.setattr("hashgrove.storage.stored_rows.GAP_BYTES", 200)
    monkeypatch.setattr("hashgrove.storage.stored_rows.SPAN_BYTES", 4000)
    monkeypatch.setattr("hashgrove.numerics.rows.KEPT_VALUES", 0)
    monkeypatch.setattr("hashgrove.numerics.rows.ROWS_PER_CHUNK", 256)


@pytest.fixture
def data(tmp_path):
    X, y = blobs(n=1500, n_features=12, noise=0.6)
    X = X.astype(np.float32)
    X[:, 3] = 7  # a constant feature
    np.save(tmp_path / "X.npy", X)
    return X, y


def write(folder, X, kind):
    """Rows as one file, as shards or as chunks; returns the source, whether it needs a cache, and the rows."""
    if kind == "npy":
        np.save(folder / "rows.npy", X)
        return folder / "rows.npy"
    if kind == "columns":
        np.save(folder / "rows.npy", np.asfortranarray(X))
        return folder / "rows.npy"
    if kind == "parquet":
        parquet.write_table(pa.table({f"c{j}": X[:, j] for j in range(12)}), folder / "X.parquet", row_group_size=333)
        return folder / "X.parquet"
    if kind == "chunks":
        return lambda: iter(np.array_split(X, 7))
    (folder / "shards").mkdir()
    for number, part in enumerate(np.array_split(X, 4)):
        np.save(folder / "shards" / f"{number}.npy", part)
    return folder / "shards"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16, np.float16])
@pytest.mark.parametrize("kind", ["npy", "shards", "columns", "parquet", "chunks"])
def test_what_is_read_is_what_is_in_memory(data, tmp_path, dtype, kind):
    X = (data[0] * 40 + 100).astype(dtype)
    rows = StoredRows(write(tmp_path, X, kind), cache=tmp_path / "cache")
    known = X if dtype not in (np.int16, np.float16) else X.astype(np.float64)
    assert (rows.shape, rows.dtype, len(rows)) == (X.shape, known.dtype, len(X))
    rng = np.random.default_rng(0)
    picks = [slice(0, 5), slice(370, 390), slice(None), slice(1490, None), slice(7, 7), np.array([], np.int64)]
    picks += [rng.permutation(1500), np.array([3, 3, 1499, 0]), np.sort(rng.choice(1500, 40)), X[:, 0] > X[:, 0].mean()]
    for numbers in picks:
        found = rows[numbers]
        assert found.dtype == known.dtype
        np.testing.assert_array_equal(found, known[numbers])
    part = rows.subset(np.arange(100, 1300, 3)).subset(np.arange(400) % 5 > 0)
    left = known[100:1300:3][np.arange(400) % 5 > 0]
    np.testing.assert_array_equal(part[:], left)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part))[10:20], left[10:20])


def test_rows_in_memory_may_follow(data, tmp_path):
    X, more = data[0], np.ones((7, 12), np.float32)
    rows = StoredRows(tmp_path / "X.npy")
    together = np.concatenate([X, more])
    for found, expected in (
        (rows.joined(more), together),
        (rows.subset(np.arange(0, 1500, 2)).joined(more), np.concatenate([X[::2], more])),
        (rows.joined(more).subset(np.arange(1507) % 3 == 0), together[::3]),
    ):
        np.testing.assert_array_equal(found[:], expected)
        np.testing.assert_array_equal(found[np.array([len(expected) - 1, 3])], expected[[-1, 3]])
    assert len({rows.key, rows.joined(more).key, rows.joined(2 * more).key}) == 3


@pytest.mark.parametrize("name", ["posterior", "trees"])
def test_classes_without_a_label_become_clusters(data, tmp_path, name):
    X, y = data
    y = np.where(y < 5, -1, y)
    hasher = clone(HASHERS[name]).set_params(new_classes=0.5)
    X = X + 20 * np.eye(12, dtype=np.float32)[data[1]]
    np.save(tmp_path / "X.npy", X)
    expected = model(hasher, X, y, tmp_path / "memory", unlabelled=-1)
    assert hasher.n_clusters_ > 0
    rows = StoredRows(tmp_path / "X.npy", cache=tmp_path / "cache")
    assert model(hasher, rows, y, tmp_path / "files", unlabelled=-1) == expected


HASHERS = {
    "trees": FastHash(6, hash_function=TREES, random_state=0),
    "paper, deep": FastHash.paper(3, hash_function=BoostedTrees.paper(n_trees=3, max_depth=8), random_state=0),
    "posterior": FastHash(12, hash_function="posterior", random_state=0),
    "logistic": FastHash(8, hash_function=PosteriorBits(classifier="logistic"), random_state=0),
    "anchors": FastHash(8, hash_function=PosteriorBits(n_anchors=40), random_state=0),
    "decodable": FastHash(12, hash_function="decodable", random_state=0),
    "linear start": FastHash(8, hash_function=STARTED, random_state=0),
    "generic": FastHash(8, generic_bits=8, random_state=0),
    "new classes": FastHash(8, hash_function="posterior", new_classes=0.5, random_state=0),
}


def model(hasher, X, y, path, **options):
    hasher.fit(X, y, **options).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("cache", [None, "cache"])
@pytest.mark.parametrize("name", HASHERS)
def test_a_fit_gives_the_same_model_bytes(data, tmp_path, name, cache):
    X, y = data
    rows = StoredRows(tmp_path / "X.npy", cache=None if cache is None else tmp_path / cache)
    expected = model(HASHERS[name], X, y, tmp_path / "memory")
    codes = HASHERS[name].inferred_codes_
    assert model(HASHERS[name], rows, y, tmp_path / "files") == expected
    np.testing.assert_array_equal(HASHERS[name].inferred_codes_, codes)
    np.testing.assert_array_equal(HASHERS[name].transform(rows), load(tmp_path / "files").encode(X))


def test_auto_and_a_path(data, tmp_path, monkeypatch):
    monkeypatch.setattr("hashgrove.choosing.SAMPLE_ROWS", 300)
    hasher = FastHash(8, random_state=0)
    X, y = data[0][:600], data[1][:600]
    np.save(tmp_path / "few.npy", X)
    assert model(hasher, str(tmp_path / "few.npy"), y, tmp_path / "files") == model(hasher, X, y, tmp_path / "memory")


def test_tags_and_pairs(data, tmp_path):
    X, tags = blob_tags(n=400)
    np.save(tmp_path / "tags.npy", X)
    for hasher, known in (
        (FastHash(8, hash_function="posterior", random_state=0), {"y": tags}),
        (FastHash(6, hash_function=STARTED, random_state=0), {"affinity": pairs_of(np.arange(400) % 5)}),
    ):
        digest = hasher.fit(StoredRows(tmp_path / "tags.npy"), **known).digest
        assert hasher.fit(X, **known).digest == digest


@pytest.mark.filterwarnings("ignore:On held-out rows the codes are worse")
@pytest.mark.parametrize("name", ["trees", "posterior", "logistic", "linear start"])
def test_rows_without_a_label_and_validation(data, tmp_path, name):
    X, y = data
    y = np.where(np.arange(1500) % 4 == 0, -1, y)
    rows = StoredRows(tmp_path / "X.npy", cache=tmp_path / "cache")
    options = {"unlabelled": -1, "validation": 0.2}
    expected = model(HASHERS[name], X, y, tmp_path / "memory", **options)
    assert model(HASHERS[name], rows, y, tmp_path / "files", **options) == expected


def test_warm_starts_and_checkpoints(data, tmp_path):
    X, y = data
    rows = StoredRows(tmp_path / "X.npy", cache=tmp_path / "cache")
    for learner in (TREES, PosteriorBits()):
        hasher = FastHash(4, hash_function=learner, generic_bits=0, warm_start=True, random_state=0).fit(rows, y)
        digest = hasher.set_params(n_bits=7).fit(rows, y).digest
        anew = FastHash(7, hash_function=learner, generic_bits=0, random_state=0)
        assert anew.fit(X, y).digest == digest
        file = tmp_path / "run"
        FastHash(3, hash_function=learner, generic_bits=0, random_state=0).fit(rows, y, checkpoint=file)
        assert anew.fit(rows, y, checkpoint=file).digest == digest
        np.save(tmp_path / "other.npy", X[::-1])
        with pytest.raises(ValueError, match="a checkpoint of other data"):
            anew.fit(tmp_path / "other.npy", y, checkpoint=file)
        file.unlink()


def test_a_cache_is_reused_while_the_files_are_the_same(data, tmp_path):
    X, y = data
    source, cache = write(tmp_path, X, "parquet"), tmp_path / "cache"

    def made():
        return {file.name: file.stat().st_mtime_ns for file in cache.iterdir()}

    HASHERS["trees"].fit(StoredRows(source, cache=cache), y)
    first = made()
    assert sorted(name.split("-")[0] for name in first) == ["bins", "rows"]
    HASHERS["trees"].fit(StoredRows(source, cache=cache), y)
    assert made() == first
    write(tmp_path, 2 * X, "parquet")
    digest = HASHERS["trees"].fit(StoredRows(source, cache=cache), y).digest
    assert len(made()) == 4
    assert HASHERS["trees"].fit(2 * X, y).digest == digest


def test_bins_in_a_cache_fit_the_rows_of_a_subset(data, tmp_path):
    from hashgrove.stores import bins_of

    numbers = np.flatnonzero(data[0][:, 0] < data[0][:, 0].mean())
    part = StoredRows(tmp_path / "X.npy", cache=tmp_path / "cache").subset(numbers)
    low, scale = fit_bins(data[0][numbers])
    for found in (bins_of(part), bins_of(StoredRows(tmp_path / "X.npy").subset(numbers))):
        np.testing.assert_array_equal(found.low, low)
        np.testing.assert_array_equal(found.scale, scale)
        assert found.bins.shape == (12, len(numbers))


class TestRefused:
    def test_learners_that_need_all_rows_in_memory(self, data, tmp_path):
        for hasher in (ITQ(4), FastHash(4, hash_function=LinearSVM())):
            with pytest.raises(ParameterError, match=r"'X' parameter must be rows in memory for .* Got rows in files"):
                hasher.fit(StoredRows(tmp_path / "X.npy"), data[1])

    def test_sources(self, data, tmp_path):
        X = data[0].copy()
        with pytest.raises(MissingFileError, match="no such file"):
            StoredRows(tmp_path / "none.npy")
        for kind in ("columns", "parquet", "chunks"):
            (tmp_path / kind).mkdir()
            with pytest.raises(ParameterError, match="'cache' parameter must be a folder for"):
                StoredRows(write(tmp_path / kind, X, kind))
        with pytest.raises(FileError, match="Got none"):
            StoredRows(list, cache=tmp_path / "cache")
        with pytest.raises(ParameterError, match=r"matrices with 12 columns, as the first one\. Got shape \(3, 4\)"):
            StoredRows(lambda: [X, np.zeros((3, 4))], cache=tmp_path / "cache")
        with pytest.raises(ParameterError, match=r"numbers of one type, float32 as the first ones\. Got float64"):
            StoredRows(lambda: [X, X.astype(float)], cache=tmp_path / "cache")
        source = write(tmp_path, X, "shards")
        np.save(source / "9.npy", X[:, :5])
        with pytest.raises(FileError, match=r"shards of equally many columns\. Got 5 and 12"):
            StoredRows(source)
        with pytest.raises(FileError, match="cannot be made"):
            StoredRows(tmp_path / "X.npy", cache=tmp_path / "X.npy" / "cache")

    def test_values_that_are_not_finite(self, data, tmp_path):
        X = data[0].copy()
        X[1234, 5] = np.inf
        np.save(tmp_path / "inf.npy", X)
        for learner in ("posterior", TREES):
            with pytest.raises(FileError, match=r"inf\.npy: must hold finite numbers. Got inf in row 1234, column 5"):
                FastHash(4, hash_function=learner).fit(tmp_path / "inf.npy", data[1])

    def test_a_wrong_number_of_labels_and_of_features(self, data, tmp_path):
        with pytest.raises(ValueError, match="1500"):
            FastHash(4).fit(tmp_path / "X.npy", data[1][:-1])
        hasher = FastHash(4, hash_function=TREES, warm_start=True, random_state=0).fit(data[0][:, :8], data[1])
        with pytest.raises(ParameterError, match=r"must have 8 features\. Got 12"):
            hasher.fit(tmp_path / "X.npy", data[1])

    def test_files_that_change(self, data, tmp_path):
        rows = StoredRows(tmp_path / "X.npy")
        np.save(tmp_path / "X.npy", data[0][:700])
        with pytest.raises(FileError, match="has been changed while it was read"):
            rows[:10]


class TestLargerThanMemory:
    @pytest.fixture
    def store(self, data, tmp_path, monkeypatch):
        monkeypatch.setattr("hashgrove.runtime.memory.memory_limit", lambda: 20_000)
        monkeypatch.setattr("hashgrove.functions.boosting.memory_limit", lambda: 20_000)
        return build_store(tmp_path / "X.npy", tmp_path / "X.bins")  # 18 kB

    def test_features_of_the_next_tree_are_read_ahead(self, data, store, monkeypatch):
        read = []
        monkeypatch.setattr(FeatureStore, "read_columns", lambda self, features: read.append(features.tolist()))
        for leaves in ("newton", "sign"):
            learner = BoostedTrees(n_trees=9, max_depth=3, leaves=leaves, subset="tree", features_per_node=3)
            hasher = FastHash(1, hash_function=learner, random_state=0)
            read.clear()
            digest = hasher.fit(store, data[1]).digest
            trees = hasher.encoder_
            for number, features in enumerate(read):  # a tree that was there first is left out
                assert len(features) == 3
                used = [
                    set(trees.feature[start:stop][trees.child[start:stop] > 0].tolist())
                    for start, stop in itertools.pairwise(trees.tree_ptr)
                ]
                assert any(of_tree <= set(features) for of_tree in used[number:])
            assert len(read) >= 1
            assert hasher.fit(data[0], data[1]).digest == digest

    def test_other_subsets_and_bins_in_memory_are_refused(self, data, store, tmp_path, monkeypatch):
        for subset in ("node", "level"):
            learner = BoostedTrees(n_trees=2, subset=subset)
            with pytest.raises(
                ParameterError, match=f"'subset' parameter must be 'tree' for bins of .* Got '{subset}'"
            ):
                FastHash(2, hash_function=learner).fit(store, data[1])
        monkeypatch.setattr("hashgrove.runtime.memory.memory_limit", lambda: 10_000)
        with pytest.raises(ParameterError, match="'cache' parameter must be a folder for the bins of StoredRows"):
            FastHash(2, hash_function=TREES).fit(tmp_path / "X.npy", data[1])

    def test_columns_are_read_whole(self, data, store, monkeypatch):
        monkeypatch.setattr("hashgrove.storage.feature_store.COLUMN_CHUNK", 999)
        parts, opened = [], open

        class Recorder:
            def __init__(self, *given, **more):
                self.file = opened(*given, **more)
                self.seek = self.file.seek

            def __enter__(self):
                return self

            def __exit__(self, *error):
                self.file.close()

            def readinto(self, room):
                n = self.file.readinto(room)
                parts.append(np.array(room[:n]))
                return n

        with monkeypatch.context() as patched:
            patched.setattr("builtins.open", Recorder)
            store.read_columns(np.array([0, 11]))
        assert [len(part) for part in parts] == [999, 501, 999, 501]
        np.testing.assert_array_equal(np.concatenate(parts), np.concatenate([store.bins[0], store.bins[11]]))


def test_bins_beyond_32_bits_are_summed_in_slabs(data, monkeypatch):
    X, y = data
    for learner in (TREES, BoostedTrees(n_trees=4, max_depth=9), BoostedTrees.paper(n_trees=5)):
        hasher = FastHash(3, hash_function=learner, random_state=0)
        expected = hasher.fit(X, y)
        bits, errors = expected.encoder_, [record.training_error for record in expected.history_]
        with monkeypatch.context() as patched:
            patched.setattr("hashgrove.encoders.trees.PLACES", 1000)
            patched.setattr("hashgrove.encoders.trees.SLAB_BYTES", 12 * 64 * 3)
            again = hasher.fit(X, y)
        assert again.encoder_.digest == bits.digest
        assert [record.training_error for record in again.history_] == errors


def test_memory_limit(tmp_path):
    old, new = tmp_path / "memory" / "a" / "b", tmp_path / "c" / "d"
    old.mkdir(parents=True)
    new.mkdir(parents=True)
    membership = tmp_path / "cgroup"
    membership.write_text("5:cpu:/\n4:memory,hugetlb:/a/b\n0::/c/d\n")
    assert _limits_of_cgroups(tmp_path, membership) == []
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text("3000\n")
    (new / "memory.max").write_text("max\n")
    (tmp_path / "c" / "memory.max").write_text("2000\n")
    assert sorted(_limits_of_cgroups(tmp_path, membership)) == [2000, 3000, 9223372036854771712]
    assert _limits_of_cgroups(tmp_path, tmp_path / "none") == []
    assert 2**26 < memory_limit() <= sys.maxsize
