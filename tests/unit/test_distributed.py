"""Fits and encoding on a Dask cluster: the bytes of one machine, also if workers die; and clear errors."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from distributed import Client, KilledWorker, LocalCluster
from sklearn.tree import DecisionTreeClassifier

from command import call, fails
from hashgrove import ITQ, LSH, BoostedTrees, FastHash, ParameterError, PosteriorBits, build_store, encode_folder
from hashgrove.distributed import DistributedError, cluster, connect, encode, fit
from hashgrove.distributed.rows import by_reference, opened
from hashgrove.numerics import rows as numerics_rows
from hashgrove.step_one import Target
from hashgrove.storage.formats import FileError
from hashgrove.streaming import record_file
from processes import unmeasured

N, D, BITS = 600, 8, 8
RNG = np.random.default_rng(0)
Y = RNG.integers(5, size=N)
X = (RNG.normal(size=(5, D))[Y] + RNG.normal(size=(N, D))).astype(np.float32)
TREES = BoostedTrees(n_trees=8)


def hasher(function=TREES, **changes):
    return FastHash(BITS, hash_function=function, random_state=0, **changes)


def kill_one(client):
    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)


@pytest.fixture(scope="module")
def client():
    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**workers) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def shards(tmp_path):
    """A folder of shards, and a model."""
    (tmp_path / "shards").mkdir()
    for number, shard in enumerate(np.array_split(X, 12)):
        np.save(tmp_path / "shards" / f"part-{number:02}.npy", shard)
    LSH(16, random_state=0).fit(X).save(tmp_path / "model")
    return tmp_path / "shards"


def contents(folder):
    """All files but hidden ones: a worker that is killed leaves what it was writing in one."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


class TestFit:
    @pytest.mark.parametrize(
        "one",
        [
            hasher(),
            hasher(BoostedTrees(n_trees=5, start="linear")),
            hasher(DecisionTreeClassifier(max_depth=3), stagewise=False),
            hasher("posterior"),
        ],
        ids=lambda one: str(one.hash_function),
    )
    def test_equals_that_of_one_machine(self, client, one):
        given = {"sample_weight": np.arange(1, N + 1)}
        codes = np.asarray(one.fit(X, Y, **given).transform(X))
        objectives = [record.objective for record in one.history_]
        assert fit(one, X, Y, client=client, **given) is one
        assert np.array_equal(one.transform(X), codes)
        assert [record.objective for record in one.history_] == objectives

    @pytest.mark.parametrize("function", [PosteriorBits(), PosteriorBits(classifier="logistic")], ids=repr)
    def test_sums_over_parts_of_the_rows(self, client, monkeypatch, tmp_path, function):
        monkeypatch.setattr(numerics_rows, "KEPT_VALUES", 0)
        monkeypatch.setattr(numerics_rows, "PART_ROWS", 128)
        monkeypatch.setattr(numerics_rows, "ROWS_PER_CHUNK", 64)
        np.save(tmp_path / "X.npy", X)
        one, submitted = hasher(function), []
        expected = one.fit(X, Y).digest
        submit = client.submit
        monkeypatch.setattr(client, "submit", lambda f, *given, **how: submitted.append(f) or submit(f, *given, **how))
        assert fit(one, tmp_path / "X.npy", Y, client=client).digest == expected
        assert len(submitted) > 10

    def test_rows_on_disk(self, client, shards, tmp_path):
        expected = hasher().fit(X, Y).digest
        np.save(tmp_path / "X.npy", X)
        build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        for source in (tmp_path / "X.npy", str(tmp_path / "X.bins"), shards):
            assert fit(hasher(), source, Y, client=client).digest == expected

    def test_trials_of_auto(self, client):
        here, there = (FastHash(8, random_state=0, n_similar=10, n_dissimilar=10) for _ in range(2))
        few = slice(0, 150)
        here.fit(X[few], Y[few])
        fit(there, X[few], Y[few], client=client)
        assert there.choice_.to_dict() == here.choice_.to_dict()
        assert there.digest == here.digest

    def test_a_worker_that_is_killed(self, client):
        expected = FastHash(24, hash_function=TREES, random_state=0).fit(X, Y).digest
        one = FastHash(24, hash_function=TREES, random_state=0)
        one.callbacks = [lambda record: kill_one(client) if record.bit == 3 else None]
        assert fit(one, X, Y, client=client).digest == expected

    def test_wrong_calls(self, client):
        with pytest.raises(ParameterError, match="'stagewise' parameter must be False for bits that are learned"):
            fit(FastHash.paper(4), X, Y, client=client)
        with pytest.raises(ParameterError, match=r"'hasher' parameter must be a FastHash\. Got ITQ instead"):
            fit(ITQ(4), X, client=client)
        with pytest.raises(DistributedError, match=r"must be a distributed.Client. Got str instead"):
            fit(hasher(), X, Y, client="tcp://127.0.0.1:8786")

    def test_a_file_that_workers_do_not_see(self, client, tmp_path):
        np.save(tmp_path / "X.npy", X)
        rows = np.load(tmp_path / "X.npy", mmap_mode="r")
        (tmp_path / "X.npy").unlink()
        with pytest.raises(DistributedError, match=r"X.npy: must be on a file system that all workers see.*tcp://"):
            fit(hasher(), rows, Y, client=client)

    def test_a_file_with_other_rows(self, client, tmp_path):
        np.save(tmp_path / "X.npy", X)
        rows = np.load(tmp_path / "X.npy", mmap_mode="r")
        np.save(tmp_path / "other.npy", X[::-1])
        os.replace(tmp_path / "other.npy", tmp_path / "X.npy")
        with pytest.raises(FileError, match=r"must have the rows that the fit began with.*on the worker tcp://"):
            fit(hasher(), rows, np.roll(Y, 1), client=client)


class TestRows:
    def test_views_of_a_file_travel_as_its_name(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        rows = np.load(tmp_path / "X.npy", mmap_mode="r")
        for view in (rows, np.asarray(rows), rows[10:50], rows[:, 3:], rows[::-2].T):
            sent = pickle.dumps(by_reference(view))
            assert len(sent) < 10_000
            assert np.array_equal(opened(pickle.loads(sent)), view)
        assert by_reference(X) is X
        assert opened(X) is X

    def test_a_file_that_was_cut(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        reference = by_reference(np.load(tmp_path / "X.npy", mmap_mode="r"))
        os.truncate(tmp_path / "X.npy", 5000)
        with pytest.raises(FileError, match="is smaller than when the fit began"):
            opened(reference)
        (tmp_path / "X.npy").unlink()
        with pytest.raises(FileError, match=r"X\.npy: cannot be read: No such file"):
            opened(reference)

    def test_another_store(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        store = build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        reference = by_reference(store)
        assert np.array_equal(opened(reference).bins, store.bins)
        np.save(tmp_path / "X.npy", X[::-1])
        build_store(tmp_path / "X.npy", tmp_path / "X.bins")
        with pytest.raises(FileError, match="must be the store that the fit began with"):
            opened(reference)

    @pytest.mark.parametrize("n", [1, 8, 1001])
    def test_values_of_a_bit_travel_as_bits(self, n):
        z = np.where(np.random.default_rng(n).random(n) < 0.5, 1, -1).astype(np.int8)
        target = Target(3, z, None, np.random.default_rng(5), 0.25)
        sent = pickle.dumps(target)
        assert len(sent) < n / 8 + 1000
        there = pickle.loads(sent)
        assert there.z.dtype == np.int8
        assert np.array_equal(there.z, z)
        assert (there.bit, there.weights, there.seconds) == (3, None, 0.25)
        assert there.rng.random() == target.rng.random()


class TestEncode:
    def test_shards(self, client, shards):
        model, codes, done = shards.parent / "model", shards.parent / "codes", []
        found = encode(model, shards, codes, client=client, on_shard=done.append)
        encode_folder(model, shards, shards.parent / "here")
        assert contents(codes) == contents(shards.parent / "here")
        assert done == list(range(1, 13))
        assert sum(shard.n_rows for shard in found) == N
        os.unlink(record_file(codes / "part-03.npy"))
        again = encode(model, shards, codes, client=client)
        assert [shard.was_finished for shard in again] == [number != 3 for number in range(12)]

    @pytest.mark.parametrize("ending", [None, ".parquet"])
    def test_arrays(self, client, tmp_path, ending):
        encoder = LSH(16, random_state=0).fit(X).encoder_
        rows = dask.array.from_array(X, chunks=(250, 3))
        found = encode(encoder, rows, tmp_path / "codes", client=client, ending=ending)
        assert [os.path.basename(shard.path) for shard in found] == [
            f"part-0000{number}{ending or '.npy'}" for number in range(3)
        ]
        if ending is None:
            assert np.array_equal(np.concatenate([np.load(shard.path) for shard in found]), encoder.encode(X))
        rows[300:350] *= 2  # another second partition
        again = encode(encoder, rows, tmp_path / "codes", client=client, ending=ending)
        assert [shard.was_finished for shard in again] == [True, False, True]

    def test_data_frames(self, client, tmp_path):
        frame = pd.DataFrame(X, columns=[f"x{number}" for number in range(D)])
        frame.insert(0, "name", [f"item {number}" for number in range(N)])
        encoder = LSH(16, random_state=0).fit(X).encoder_
        rows = dask.dataframe.from_pandas(frame, npartitions=2)
        found = encode(encoder, rows, tmp_path / "codes", client=client, features="x*")
        assert np.array_equal(np.concatenate([np.load(shard.path) for shard in found]), encoder.encode(X))

    def test_errors_name_the_worker(self, client, shards):
        np.save(shards / "part-05.npy", X[:, :3])
        with pytest.raises(FileError, match=r"part-05.npy: must have 8 features per row.*\(on the worker tcp://"):
            encode(shards.parent / "model", shards, shards.parent / "codes", client=client)

    def test_wrong_calls(self, client, shards, tmp_path):
        model, codes = shards.parent / "model", shards.parent / "codes"
        for source, more, match in (
            (shards / "part-00.npy", {}, "'source' parameter must be a folder of .npy and .parquet shards"),
            (X, {}, r"must be a folder of shards, a dask\.array\.Array or a Dask DataFrame\. Got ndarray"),
            (dask.array.zeros(5), {}, "must have rows and columns. Got an array of 1 dimensions"),
            (shards, {"features": "x*"}, "'features' parameter must be None for a folder"),
            (dask.array.zeros((5, D)), {"ending": ".csv"}, "'ending' parameter must be one of"),
        ):
            with pytest.raises(ParameterError, match=match):
                encode(model, source, codes, client=client, **more)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "part-00007.npy").touch()
        with pytest.raises(FileError, match=r"must hold no codes but those of the shards. Got part-00007.npy"):
            encode(model, dask.array.zeros((5, D)), tmp_path / "full", client=client)


class TestCluster:
    def test_commands(self, shards, capsys, monkeypatch):
        """A scheduler and workers of their own, as on several machines; one of them is killed."""
        monkeypatch.chdir(shards.parent)
        np.save("X.npy", X)
        np.save("y.npy", Y)
        dask_command = [sys.executable, "-m", "dask"]
        quiet = {"stderr": subprocess.PIPE, "text": True, "env": unmeasured()}
        processes = [subprocess.Popen([*dask_command, "scheduler", "--port", "0", "--no-dashboard"], **quiet)]
        try:
            address = next(found[0] for line in processes[0].stderr if (found := re.search(r"tcp://[\d.]+:\d+", line)))
            worker = [*dask_command, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            processes += [subprocess.Popen(worker, **quiet | {"stderr": subprocess.DEVNULL}) for _ in range(2)]
            with connect(address) as client:
                client.wait_for_workers(2)
                encode("model", "shards", "codes", client=client, on_shard=lambda d: d == 2 and processes[1].kill())
            train = ["train", "X.npy", "y.npy", "--bits", "4", "--trees", "5", "--seed", "0", "--quiet", "-o"]
            assert call(capsys, *train, "there", "--scheduler", address)[0] == 0
            assert call(capsys, *train, "here")[0] == 0
            status, _, said = call(capsys, "encode", "model", "shards", "-o", "codes", "--scheduler", address)
            assert (status, said) == (0, "codes has 600 codes in 12 shards; 12 were finished before\n")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        processes[0].stderr.close()
        encode_folder("model", "shards", "codes-here")
        assert contents(shards.parent / "codes") == contents(shards.parent / "codes-here")
        assert (shards.parent / "there").read_bytes() == (shards.parent / "here").read_bytes()

    def test_commands_that_cannot_work(self, shards, capsys, monkeypatch):
        monkeypatch.chdir(shards.parent)
        monkeypatch.setattr(cluster, "SECONDS", 0.5)
        model = ("encode", "model")
        fails(capsys, *model, "shards/part-00.npy", "-o", "c.npy", "--scheduler", "x:1", code=2, match="be a folder")
        fails(capsys, *model, "shards", "-o", "c", "--scheduler", "here", code=1, match="must be the address of a Dask")
        address = "tcp://127.0.0.1:1"
        fails(capsys, *model, "shards", "-o", "c", "--scheduler", address, code=1, match="no Dask scheduler answers")
        monkeypatch.setitem(sys.modules, "distributed", None)
        wanted = r"pip install 'hashgrove\[dask\]'"
        fails(capsys, *model, "shards", "-o", "c", "--scheduler", address, code=1, match=wanted)

    def test_dask_is_imported_when_it_is_used(self):
        code = "import hashgrove.distributed, sys; print({'dask', 'distributed'} & sys.modules.keys())"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"

    def test_no_workers(self, monkeypatch):
        monkeypatch.setattr(cluster, "SECONDS", 0.1)
        with LocalCluster(n_workers=0, processes=False, dashboard_address=":0", protocol="tcp://") as empty:
            address = empty.scheduler_address
            with pytest.raises(DistributedError, match=f"{address}: the scheduler has no workers. Start some"):
                connect(address)

    def test_other_versions(self, client, monkeypatch):
        monkeypatch.setattr(cluster, "__version__", "9.9.9")
        with pytest.raises(DistributedError, match=r"tcp://.*must have the versions of this.* \(here 9\.9\.9\)"):
            fit(hasher(), X, Y, client=client)

    def test_other_processors(self, client, monkeypatch):
        here = cluster._versions() | {"processor": "znver9"}
        monkeypatch.setattr(cluster, "_ask_all", lambda client, question: {"tcp://there": cluster._versions() | here})
        with pytest.warns(UserWarning, match=r"processors of 2 types \(.*znver9"):
            cluster.check_workers(client)

    def test_workers_without_hashgrove(self, client, monkeypatch):
        def question():
            raise ModuleNotFoundError("No module named 'hashgrove'")

        with pytest.raises(DistributedError, match=r"tcp://.*hashgrove .* must be installed there"):
            cluster._ask_all(client, question)
        with pytest.raises(DistributedError, match="does not answer"):
            cluster._ask_all(client, lambda: 1 / 0)

    def test_errors_of_dask(self):
        class State:
            address = "tcp://10.0.0.7:4000"

        died = r"10\.0\.0\.7:4000: several workers died with the same task"
        with pytest.raises(DistributedError, match=died), cluster.clear_errors():
            raise KilledWorker("task", State, 3)


def test_four_workers(client, shards):
    """The last test, because the workers stay."""
    client.cluster.scale(4)
    client.wait_for_workers(4)
    assert fit(hasher(), X, Y, client=client).digest == hasher().fit(X, Y).digest
    encode(shards.parent / "model", shards, shards.parent / "codes", client=client)
    encode_folder(shards.parent / "model", shards, shards.parent / "here")
    assert contents(shards.parent / "codes") == contents(shards.parent / "here")
