"""Encoding in bounded memory: files and folders of shards, byte for byte as rows in memory, and resumable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from command import call, fails
from hashgrove import ITQ, LSH, ParameterError, encode_file, encode_folder, encode_shard, load
from hashgrove.encoders import Encoder
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import read_codes
from hashgrove.storage.streams import open_rows
from hashgrove.streaming import PIECE_BYTES, record_file

N, D = 5000, 300

PEAK = """
import sys
from pathlib import Path
from hashgrove import encode_file
encode_file(sys.argv[1], sys.argv[2], sys.argv[3], n_jobs=2)
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak.split()[1])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model, and its features in every form."""
    folder = tmp_path_factory.mktemp("streaming")
    X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    LSH(20, random_state=0).fit(X).save(folder / "model")
    np.save(folder / "X.npy", X)
    np.save(folder / "columns.npy", np.asfortranarray(X))
    np.save(folder / "swapped.npy", X.astype(">f4"))
    columns = {f"c{j}": X[:, j] for j in range(D)}
    parquet.write_table(pa.table(columns), folder / "X.parquet", row_group_size=777)
    vectors = pa.FixedSizeListArray.from_arrays(X.reshape(-1), D)
    parquet.write_table(pa.table({"v": vectors}), folder / "vectors.parquet", row_group_size=1300)
    np.savez(folder / "X.npz", X)
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "part-0.npy", X[:2000])
    parquet.write_table(
        pa.table({name: values[2000:] for name, values in columns.items()}), folder / "shards" / "part-1.parquet"
    )
    return folder


@pytest.fixture
def work(home, tmp_path):
    """A copy of the folder that a test may change."""
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="module")
def codes(home):
    return np.asarray(load(home / "model").encode(np.load(home / "X.npy")))


class TestFile:
    @pytest.mark.parametrize("source", ["X.npy", "columns.npy", "swapped.npy", "X.parquet", "vectors.parquet", "X.npz"])
    @pytest.mark.parametrize("n_jobs", [1, 3])
    def test_codes_are_those_of_rows_in_memory(self, home, codes, tmp_path, source, n_jobs):
        assert N * D * 4 > 2 * PIECE_BYTES
        assert encode_file(home / "model", home / source, tmp_path / "codes.npy", n_jobs=n_jobs) == N
        assert np.array_equal(np.load(tmp_path / "codes.npy"), codes)

    @pytest.mark.parametrize("ending", ["npy", "csv", "parquet"])
    def test_every_kind_of_output_is_read_back(self, home, codes, tmp_path, ending, monkeypatch):
        monkeypatch.setattr("hashgrove.storage.streams.ROWS_PER_GROUP", 1500)
        encode_file(home / "model", home / "shards", tmp_path / f"codes.{ending}")
        assert np.array_equal(read_codes(tmp_path / f"codes.{ending}"), codes)

    def test_parquet_has_fixed_size_binary_and_the_model(self, home, tmp_path):
        target = tmp_path / "codes.parquet"
        encode_file(load(home / "model"), home / "X.npy", target)
        schema = parquet.read_schema(target)
        assert schema.names == ["code"]
        assert schema.field("code").type == pa.binary(3)
        assert schema.metadata[b"hashgrove.model"].decode() == load(home / "model").digest

    def test_parquet_has_the_same_bytes_for_any_number_of_threads(self, home, tmp_path):
        for n_jobs in (1, 4):
            encode_file(home / "model", home / "X.npy", tmp_path / f"{n_jobs}.parquet", n_jobs=n_jobs)
        assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "4.parquet").read_bytes()

    def test_pieces_are_reported_in_order(self, home, codes, tmp_path):
        seen = []
        encode_file(home / "model", home / "X.npy", tmp_path / "codes.npy", n_jobs=2, on_codes=seen.append)
        assert len(seen) > 2
        assert np.array_equal(np.concatenate(seen), codes)

    def test_a_file_without_rows_gives_a_file_without_codes(self, home, tmp_path):
        np.save(tmp_path / "none.npy", np.empty((0, D), np.float32))
        for ending in ("npy", "parquet"):
            assert encode_file(home / "model", tmp_path / "none.npy", tmp_path / f"codes.{ending}") == 0
        assert np.load(tmp_path / "codes.npy").shape == (0, 3)
        assert parquet.read_table(tmp_path / "codes.parquet").num_rows == 0

    def test_what_is_not_finite_is_named(self, work):
        X = np.load(work / "X.npy")
        X[4321, 7] = np.nan
        np.save(work / "X.npy", X)
        with pytest.raises(FileError, match=r"X\.npy: must hold finite numbers. Got nan in row 4321, column 7"):
            encode_file(work / "model", work / "X.npy", work / "codes.npy", n_jobs=2)
        assert not (work / "codes.npy").exists()

    def test_the_shard_is_named(self, work):
        X = np.load(work / "shards" / "part-0.npy")
        X[1, 7] = np.inf
        np.save(work / "shards" / "part-2.npy", X)
        with pytest.raises(FileError, match=r"part-2\.npy: must hold finite numbers\. Got inf in row 1, column 7"):
            encode_file(work / "model", work / "shards", work / "codes.npy")
        np.save(work / "shards" / "part-2.npy", X[:, :4])
        with pytest.raises(FileError, match=r"part-2\.npy: must have 300 features per row"):
            encode_file(work / "model", work / "shards", work / "codes.npy")

    def test_a_failed_run_leaves_the_old_file(self, work):
        (work / "codes.parquet").write_bytes(b"old")

        def fail(codes):
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            encode_file(work / "model", work / "X.npy", work / "codes.parquet", on_codes=fail)
        assert (work / "codes.parquet").read_bytes() == b"old"
        assert not list(work.glob(".hashgrove*"))

    @pytest.mark.parametrize("change", ["cut", "replaced"])
    @pytest.mark.parametrize("name", ["X.npy", "columns.npy"])
    def test_a_file_that_changes_meanwhile_is_an_error(self, work, name, change):
        rows = open_rows(work / name)
        if change == "cut":
            os.truncate(work / name, 10_000)
        else:
            np.save(work / "other.npy", np.zeros((N, D), np.float32))
            os.replace(work / "other.npy", work / name)
        with pytest.raises(FileError, match=rf"{name}: has been changed while it was read"):
            encode_file(work / "model", rows, work / "codes.npy")

    def test_an_input_is_not_overwritten(self, work):
        before = (work / "X.npy").read_bytes()
        for target in ("X.npy", "link.npy"):
            if target == "link.npy":
                os.symlink(work / "X.npy", work / target)
            for encode in (encode_file, encode_shard):
                with pytest.raises(FileError, match=rf"{target}: must not be the input file itself"):
                    encode(work / "model", work / "X.npy", work / target)
        os.link(work / "model", work / "model.npy")
        with pytest.raises(FileError, match=r"model\.npy: must not be the input file itself"):
            encode_file(work / "model", work / "X.npy", work / "model.npy")
        assert (work / "X.npy").read_bytes() == before

    def test_parquet_needs_pyarrow(self, work, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(FileError, match=r"codes\.parquet: .* need pyarrow: pip install"):
            encode_file(work / "model", work / "X.npy", work / "codes.parquet")

    @pytest.mark.parametrize(
        ("source", "target", "match"),
        [
            ("no.npy", "codes.npy", r"no\.npy: no such file"),
            ("X.npy", "codes.txt", r"codes\.txt: must end in \.npy, \.csv or \.parquet\. Got '\.txt'"),
            ("narrow.npy", "codes.npy", r"narrow\.npy: must have 300 features per row, .* Got 4 instead"),
            ("flat.npy", "codes.npy", r"flat\.npy: must be a 2-D matrix of numbers\. Got float64 of shape \(5,\)"),
            ("empty", "codes.npy", r"empty: must hold shards that end in \.npy or \.parquet\. Got none"),
            ("damaged.parquet", "codes.npy", r"damaged\.parquet: must be a \.parquet file\. It is damaged"),
            ("shards", "shards/codes.npy", r"shards/codes\.npy: must not be in the folder of the features"),
        ],
    )
    def test_errors(self, work, source, target, match):
        np.save(work / "narrow.npy", np.zeros((5, 4)))
        np.save(work / "flat.npy", np.zeros(5))
        (work / "empty").mkdir()
        (work / "damaged.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
        with pytest.raises(FileError, match=match) as raised:
            encode_file(work / "model", work / source, work / target)
        assert isinstance(raised.value, MissingFileError) == (source == "no.npy")
        assert "\n" not in str(raised.value)


class TestShards:
    def test_each_shard_gets_a_file_of_its_kind(self, work, codes):
        shards = encode_folder(work / "model", work / "shards", work / "codes")
        assert [(os.path.basename(shard.path), shard.n_rows, shard.was_finished) for shard in shards] == [
            ("part-0.npy", 2000, False),
            ("part-1.parquet", 3000, False),
        ]
        assert np.array_equal(np.concatenate([read_codes(shard.path) for shard in shards]), codes)

    def test_an_interrupted_run_goes_on(self, work, codes):
        seen = []

        def interrupt(part):
            seen.extend(part)
            if len(seen) > 2000:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            encode_folder(work / "model", work / "shards", work / "codes", on_codes=interrupt)
        assert sorted(os.listdir(work / "codes")) == ["_part-0.npy.json", "part-0.npy"]
        before = (work / "codes" / "part-0.npy").stat()
        shards = encode_folder(work / "model", work / "shards", work / "codes")
        assert [shard.was_finished for shard in shards] == [True, False]
        assert [shard.n_rows for shard in shards] == [2000, 3000]
        assert (work / "codes" / "part-0.npy").stat().st_mtime_ns == before.st_mtime_ns
        assert np.array_equal(np.concatenate([read_codes(shard.path) for shard in shards]), codes)

    @pytest.mark.parametrize(
        "change", ["shard", "model", "no codes", "cut codes", "no record", "damaged record", "other record"]
    )
    def test_a_shard_is_encoded_again_unless_all_is_as_it_was(self, work, change):
        source, target = work / "shards" / "part-0.npy", work / "codes.npy"
        assert not encode_shard(work / "model", source, target).was_finished
        assert encode_shard(work / "model", source, target).was_finished
        record = record_file(target)
        if change == "shard":
            np.save(source, np.load(source)[::-1])
        elif change == "model":
            ITQ(20, random_state=1).fit(np.load(source)).save(work / "model")
        elif change == "no codes":
            target.unlink()
        elif change == "cut codes":
            os.truncate(target, 100)
        elif change == "no record":
            os.unlink(record)
        else:
            content = b"[[" if change == "damaged record" else json.dumps({"hashgrove-shard": [1]}).encode()
            with open(record, "wb") as file:
                file.write(content)
        assert not encode_shard(work / "model", source, target).was_finished
        assert np.array_equal(np.load(target), load(work / "model").encode(np.load(source)))
        assert encode_shard(work / "model", source, target).was_finished

    def test_a_record_is_not_taken_for_that_of_other_codes(self, work):
        """A run with another model ends after it has written codes of the same size, before their record."""
        source, target = work / "shards" / "part-0.npy", work / "codes.npy"
        encode_shard(work / "model", source, target)
        expected = target.read_bytes()
        other = ITQ(20, random_state=1).fit(np.load(source))

        def stop(codes):
            os.makedirs(record_file(target), exist_ok=True)  # so that the record cannot be written

        with pytest.raises(FileError, match=r"_codes\.npy\.json"):
            encode_shard(other.encoder_, source, target, n_jobs=1, on_codes=stop)
        os.rmdir(record_file(target))
        assert target.read_bytes() != expected
        assert not encode_shard(work / "model", source, target).was_finished
        assert target.read_bytes() == expected

    def test_a_shard_that_changes_meanwhile_is_not_finished(self, work):
        source, target = work / "shards" / "part-0.npy", work / "codes.npy"
        with pytest.raises(FileError, match=r"part-0\.npy: has been changed while it was"):
            encode_shard(work / "model", source, target, on_codes=lambda codes: os.utime(source, ns=(0, 0)))
        assert not os.path.exists(record_file(target))

    def test_the_same_shard_gives_the_same_bytes(self, work):
        for name in ("one.parquet", "two.parquet"):
            encode_shard(work / "model", work / "shards" / "part-1.parquet", work / name)
        assert (work / "one.parquet").read_bytes() == (work / "two.parquet").read_bytes()

    def test_folders_that_do_not_fit_are_refused(self, work):
        with pytest.raises(FileError, match="must be another folder than that of the features"):
            encode_folder(work / "model", work / "shards", work / "shards")
        encode_folder(work / "model", work / "shards", work / "codes")
        os.unlink(work / "shards" / "part-1.parquet")
        with pytest.raises(FileError, match=r"codes: must hold no codes but .* Got part-1\.parquet; remove it"):
            encode_folder(work / "model", work / "shards", work / "codes")

    def test_an_encoder_that_cannot_be_saved_is_refused(self, work):
        class Other(Encoder):
            n_bits, n_features = 8, D

            def arrays(self):
                raise ValueError

            def _scores(self, X):
                return X[:, :8]

        with pytest.raises(ParameterError, match="'model' parameter must have arrays that can be saved"):
            encode_shard(Other(), work / "X.npy", work / "codes.npy")


class TestCommand:
    def test_file(self, work, codes, monkeypatch, capsys):
        monkeypatch.chdir(work)
        monkeypatch.setattr("hashgrove.cli.encode.MAX_COUNTED", 3000)
        status, out, err = call(capsys, "encode", "model", "vectors.parquet", "-o", "codes.parquet")
        assert (status, out) == (0, "")
        distinct = f"{len(np.unique(codes[:3000], axis=0)):,} distinct codes among the first 3,000 items"
        assert err == f"Wrote 5,000 codes of 3 bytes to codes.parquet; {distinct}\n"
        assert np.array_equal(read_codes("codes.parquet"), codes)

    def test_names_from_before_are_warned_of(self, work, monkeypatch, capsys):
        monkeypatch.chdir(work)
        (work / "codes.names.txt").write_text("a\n")
        status, _, err = call(capsys, "encode", "model", "X.npy", "-o", "codes.npy")
        assert status == 0
        assert "Warning: codes.names.txt is from before, and commands take it for the ids of codes.npy" in err

    def test_no_rows(self, work, monkeypatch, capsys):
        monkeypatch.chdir(work)
        np.save("none.npy", np.empty((0, D), np.float32))
        status, _, err = call(capsys, "encode", "model", "none.npy", "-o", "codes.npy")
        assert (status, err.startswith("Wrote 0 codes of 3 bytes to codes.npy")) == (0, True), err

    def test_folder(self, work, monkeypatch, capsys):
        monkeypatch.chdir(work)
        order = ("encode", "model", "shards", "-o", "codes")
        assert call(capsys, *order) == (0, "", "codes has 5,000 codes in 2 shards\n")
        assert call(capsys, *order) == (0, "", "codes has 5,000 codes in 2 shards; 2 were finished before\n")
        fails(capsys, "encode", "model", "X.npy", "-o", "codes", code=2, match="or be a folder if FEATURES is one")
        fails(capsys, "encode", "model", "shards", "-o", "X.npy/codes", code=1, match="cannot be made")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """A file of 200 MB takes hardly more memory than one of 4 MB: what is held is a few pieces per thread."""
    X = np.random.default_rng(0).normal(size=(2000, 512)).astype(np.float32)
    LSH(64, random_state=0).fit(X).save(tmp_path / "model")
    peaks = []
    for repeats in (1, 50):
        rows = np.tile(X, (repeats, 1))
        if kind == "npy":
            np.save(tmp_path / "X.npy", rows)
        else:
            table = pa.table({"v": pa.FixedSizeListArray.from_arrays(rows.reshape(-1), 512)})
            parquet.write_table(table, tmp_path / "X.parquet")
        command = [sys.executable, "-c", PEAK, tmp_path / "model", tmp_path / f"X.{kind}", tmp_path / "codes.npy"]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, text=True).stdout) * 1024)
    assert rows.nbytes > 200e6
    assert peaks[1] - peaks[0] < 70e6
