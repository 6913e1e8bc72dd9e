"""Stores of bins on disk: the same bins and the same models as from rows in memory; damaged files are refused."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hashgrove import ITQ, BoostedTrees, FastHash, FeatureStore, ParameterError, build_store
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.trees.binning import bin_features, fit_bins
from makers import blobs

TREES = BoostedTrees(n_trees=6, max_depth=3)

PRIVATE = """
import sys
from pathlib import Path
import numpy as np
from hashgrove import BoostedTrees, FastHash, build_store
store = build_store(sys.argv[1], sys.argv[2], n_jobs=1)
def show(record):
    [private] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    print(private.split()[1])
trees = BoostedTrees(n_trees=2, max_depth=2)
hasher = FastHash(2, hash_function=trees, random_state=0, n_jobs=1, callbacks=[show])
hasher.fit(store, np.arange(len(store)) % 3)
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    X, y = blobs(n=1500, n_features=12)
    X = X.astype(np.float32)
    X[:, 3] = 7  # a constant feature
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr("hashgrove.storage.stored_rows.PIECE_BYTES", 4 * 12 * 400)  # several pieces
    return X, y


def saved(hasher, X, y, path):
    hasher.fit(X, y).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16])
@pytest.mark.parametrize("kind", ["npy", "parquet", "folder", "chunks"])
def test_bins_are_those_of_rows_in_memory(data, tmp_path, dtype, kind):
    X = (data[0] * 40 + 100).astype(dtype)
    source = tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(source, X)
    elif kind == "parquet":
        parquet.write_table(pa.table({f"c{j}": X[:, j] for j in range(12)}), source, row_group_size=333)
    elif kind == "folder":
        source.mkdir()
        for number, part in enumerate(np.array_split(X, 4)):
            np.save(source / f"{number}.npy", part)
    else:
        source = lambda: iter(np.array_split(X, 7))  # noqa: E731
    store = build_store(source, tmp_path / "X.bins", n_jobs=2)
    known = X if dtype != np.int16 else X.astype(np.float64)
    low, scale = fit_bins(known)
    assert store.shape == X.shape
    assert np.array_equal(store.low, low)
    assert np.array_equal(store.scale, scale)
    assert np.array_equal(store.bins, bin_features(known, low, scale))


@pytest.mark.parametrize(
    "hasher",
    [
        FastHash(6, hash_function=TREES, random_state=0),
        FastHash(5, hash_function=TREES, random_state=1, stagewise=True, n_jobs=1),
        FastHash(4, hash_function=BoostedTrees(n_trees=3, max_depth=8), random_state=0),
        FastHash.paper(4, hash_function=BoostedTrees.paper(n_trees=4), random_state=0),
    ],
    ids=["independent", "stagewise", "deep", "paper"],
)
def test_a_fit_from_a_store_gives_the_same_model_bytes(data, tmp_path, hasher):
    X, y = data
    store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
    expected = saved(hasher, X, y, tmp_path / "memory")
    assert saved(hasher, store, y, tmp_path / "store") == expected
    assert np.array_equal(hasher.transform(X), hasher.fit(X, y).transform(X))


def test_a_checkpoint_of_a_store_goes_on_and_refuses_others(data, tmp_path):
    X, y = data
    store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
    file = tmp_path / "run"
    FastHash(2, hash_function=TREES, random_state=0).fit(store, y, checkpoint=file)
    six = FastHash(6, hash_function=TREES, random_state=0)
    digest = six.fit(store, y, checkpoint=file).encoder_.digest
    assert digest == six.fit(X, y).encoder_.digest
    np.save(tmp_path / "other.npy", X[::-1])
    other = build_store(tmp_path / "other.npy", tmp_path / "other.bins")
    with pytest.raises(ValueError, match="a checkpoint of other data"):
        six.fit(other, y, checkpoint=file)


def test_a_store_is_reused_while_its_files_are_the_same(data, tmp_path):
    path = tmp_path / "X.bins"
    build_store(tmp_path / "X.npy", path)
    made = path.stat().st_mtime_ns, path.stat().st_ino
    build_store(tmp_path / "X.npy", path)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == made
    np.save(tmp_path / "X.npy", 2 * data[0])
    store = build_store(tmp_path / "X.npy", path)
    assert path.stat().st_ino != made[1]
    assert np.array_equal(store.low, fit_bins(2 * data[0])[0])


class TestRefused:
    @pytest.mark.parametrize(
        ("hasher", "settings", "match"),
        [
            (
                FastHash(8),
                {},
                "'X' parameter must be rows in memory for FastHash with these parameters. Got a FeatureStore",
            ),
            (FastHash(8, hash_function="posterior"), {}, "Got a FeatureStore, which has the bins of rows only"),
            (FastHash(8, hash_function=BoostedTrees(start="linear")), {}, "hash_function='trees', generic_bits=0"),
            (FastHash(8, hash_function=TREES, generic_bits=2), {}, "Got a FeatureStore"),
            (FastHash(8, hash_function=TREES, warm_start=True), {}, "Got a FeatureStore"),
            (FastHash(8, hash_function=TREES, new_classes=0.5), {}, "Got a FeatureStore"),
            (FastHash(8, hash_function=TREES), {"validation": 0.2}, "'validation' parameter must be None"),
            (FastHash(8, hash_function=TREES), {"unlabelled": 0}, "'y' parameter must have a label for every row"),
            (ITQ(8), {}, "'X' parameter must be rows in memory for ITQ"),
        ],
    )
    def test_learners_that_need_the_rows(self, data, tmp_path, hasher, settings, match):
        store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        arguments = (store,) if isinstance(hasher, ITQ) else (store, data[1])
        with pytest.raises(ParameterError, match=match):
            hasher.fit(*arguments, **settings)

    def test_a_start(self, data, tmp_path):
        store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        with pytest.raises(ParameterError, match="'start' parameter must be None to learn from a FeatureStore"):
            BoostedTrees(start="linear").prepare(store, np.random.default_rng(0))

    def test_a_wrong_number_of_labels(self, data, tmp_path):
        store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        with pytest.raises(ValueError, match="1500"):
            FastHash(8, hash_function=TREES).fit(store, data[1][:-1])

    def test_sources(self, data, tmp_path):
        X = data[0].copy()
        X[1234, 5] = np.inf
        np.save(tmp_path / "inf.npy", X)
        with pytest.raises(FileError, match=r"inf\.npy: must hold finite numbers. Got inf in row 1234, column 5"):
            build_store(tmp_path / "inf.npy", tmp_path / "X.bins")
        with pytest.raises(FileError, match=r"the chunks: must have rows\. Got none"):
            build_store(list, tmp_path / "X.bins")
        with pytest.raises(ParameterError, match=r"a matrix with 12 columns, as the first one\. Got shape \(3, 4\)"):
            build_store(lambda: [data[0], np.zeros((3, 4))], tmp_path / "X.bins")
        turns = iter([[data[0]], [data[0][:5]]])
        with pytest.raises(FileError, match="gives other rows each time"):
            build_store(lambda: next(turns), tmp_path / "X.bins")
        with pytest.raises(MissingFileError):
            build_store(tmp_path / "no.npy", tmp_path / "X.bins")
        assert not (tmp_path / "X.bins").exists()

    def test_no_other_file_is_overwritten(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(FileError, match=r"must be a feature store\. Got another file"):
            build_store(lambda: [np.ones((3, 2))], tmp_path / "notes.txt")
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_chunks_that_are_not_finite_the_second_time(self, tmp_path):
        chunks = [[np.ones((3, 2))], [np.full((3, 2), np.nan)]]
        with pytest.raises(FileError, match=r"must hold finite numbers\. Got nan in row 0, column 0"):
            build_store(lambda: chunks.pop(0), tmp_path / "bins")

    def test_damaged_files(self, data, tmp_path):
        path = tmp_path / "X.bins"
        build_store(tmp_path / "X.npy", path)
        content = path.read_bytes()
        with pytest.raises(MissingFileError, match="no such file"):
            FeatureStore(tmp_path / "none.bins")
        for place in (0, 9, 40, 200, 4100, 4300, len(content) - 1):
            damaged = bytearray(content)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(FileError, match=r"X\.bins: "):
                FeatureStore(path)
        for size in (0, 100, 4096, len(content) - 1):
            path.write_bytes(content[:size])
            with pytest.raises(FileError, match=r"X\.bins: "):
                FeatureStore(path)
        path.write_bytes(content)
        assert FeatureStore(path).shape == data[0].shape
        assert os.fspath(path) in repr(FeatureStore(path))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_rows_are_not_in_memory_during_a_fit(tmp_path):
    """Four times as many features take hardly more private memory: 200 MB of rows and 50 MB of bins are in files."""
    private = []
    for n_features in (256, 1024):
        X = np.random.default_rng(0).normal(size=(50_000, 32)).astype(np.float32)
        np.save(tmp_path / "X.npy", np.tile(X, (1, n_features // 32)))
        command = [sys.executable, "-c", PRIVATE, tmp_path / "X.npy", tmp_path / "X.bins"]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
        assert len(shown) == 2
        private.append(max(map(int, shown)) * 1024)
    assert private[1] - private[0] < 30e6
