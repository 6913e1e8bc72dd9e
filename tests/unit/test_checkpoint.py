"""Nothing that was learned is lost: checkpoints, kill -9 and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from hashgrove import (
    ICM,
    LSH,
    BoostedTrees,
    FastHash,
    KernelSVM,
    LinearSVM,
    ModelFileError,
    PosteriorBits,
    load_hasher,
)
from hashgrove.storage import modelfile
from hashgrove.storage.checkpoints import Checkpoint
from hashgrove.storage.models import plain
from hashgrove.two_step import BitRecord
from processes import kills, unmeasured

X, Y = load_digits(return_X_y=True)
X, Y = X[:300], Y[:300]
TREES = BoostedTrees(n_trees=5, max_depth=3)


def small(n_bits=8, **parameters):
    return FastHash(n_bits, **{"hash_function": TREES, "random_state": 0} | parameters)


class Stop(Exception):
    pass


def stop_after(n_bits):
    def callback(record):
        if record.bit + 1 == n_bits:
            raise Stop

    return callback


def model_bytes(hasher, path):
    hasher.save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"stagewise": False, "weighted": False},
        {"inference": "spectral"},
        {"hash_function": LinearSVM()},
        {"hash_function": KernelSVM(n_support=40)},
        {"hash_function": PosteriorBits(n_anchors=20), "generic_bits": 0},
        {"hash_function": BoostedTrees(n_trees=4, start="kernel", n_anchors=20), "generic_bits": 0},
    ],
    ids=str,
)
def test_a_run_that_was_stopped_goes_on_to_the_same_model(tmp_path, parameters):
    whole = small(**parameters).fit(X, Y)
    with pytest.raises(Stop):
        small(callbacks=[stop_after(3)], **parameters).fit(X, Y, checkpoint=tmp_path / "run")
    seen = []
    again = small(callbacks=[seen.append], **parameters).fit(X, Y, checkpoint=tmp_path / "run")
    assert [record.bit for record in seen] == [3, 4, 5, 6, 7]
    assert [record.objective for record in again.history_] == [record.objective for record in whole.history_]
    assert model_bytes(again, tmp_path / "a") == model_bytes(whole, tmp_path / "b")


def test_a_run_without_a_seed_keeps_the_seed_that_it_drew(tmp_path):
    with pytest.raises(Stop):
        small(random_state=None, callbacks=[stop_after(3)]).fit(X, Y, checkpoint=tmp_path / "run")
    kept = (tmp_path / "run").read_bytes()
    codes = []
    for _ in range(2):
        (tmp_path / "run").write_bytes(kept)
        codes.append(small(random_state=None).fit(X, Y, checkpoint=tmp_path / "run").transform(X))
    np.testing.assert_array_equal(*codes)


def test_more_bits_go_on_from_a_finished_checkpoint(tmp_path):
    small(5).fit(X, Y, checkpoint=tmp_path / "run")
    longer = small(8).fit(X, Y, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(longer.transform(X), small(8).fit(X, Y).transform(X))
    with pytest.raises(ValueError, match="at least 8: 8 bits learned so far"):
        small(6).fit(X, Y, checkpoint=tmp_path / "run")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    small(2).fit(X, Y, checkpoint=tmp_path / "run")
    for hasher, data in (
        (small(4), (X + 1e-9, Y)),
        (small(4), (X, 9 - Y)),
        (small(4, loss="ksh"), (X, Y)),
        (small(4, random_state=1), (X, Y)),
        (small(4, hash_function=BoostedTrees(n_trees=6)), (X, Y)),
    ):
        with pytest.raises(ModelFileError, match="a checkpoint of other data or other parameters"):
            hasher.fit(*data, checkpoint=tmp_path / "run")
    small(2).fit(X, Y).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="must be a model file of kind 'checkpoint'"):
        small(4).fit(X, Y, checkpoint=tmp_path / "model")
    damaged = bytearray((tmp_path / "run").read_bytes())
    damaged[-5] ^= 1
    (tmp_path / "run").write_bytes(damaged)
    with pytest.raises(ModelFileError, match="checksum"):
        small(4).fit(X, Y, checkpoint=tmp_path / "run")


RECORD = {
    "bit": 0, "objective": 1.0, "objective_before": 1.0, "objective_of": "learned bits", "training_error": 0.1,
    "ones": 0.5, "seconds_inference": 1, "seconds_learning": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"records": ["a", "b"]}, "records must be named values"),
        ({"records": {"a": 1, "b": 2}}, "records must be named values"),
        ({"records": [{"x": 1}, {"x": 1}]}, "unexpected keyword argument 'x'"),
        ({"records": [RECORD | {"ones": "x"}] * 2}, "records must be numbers and short texts"),
        ({"records": [RECORD | {"ones": 10**400}] * 2}, "records must be numbers and short texts"),
        ({"records": [RECORD] * 3}, "must hold 2 records"),
        ({"seed": -1}, "seed must be an integer"),
        ({"seed": 10**400}, "seed must be an integer"),
        ({"seed": "7"}, "seed must be an integer"),
        ({"encoder": ["trees"]}, "unhashable"),
        ({"bits": np.zeros((2, 1), np.uint8)}, "bits of 300 points"),  # a kernel would read beyond its end
        ({"bits": np.zeros((2, 10**5), np.uint8)}, "bits of 300 points"),
        ({"bits": np.zeros((2, 38), np.int8)}, "bits of 300 points"),
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_hostile_checkpoint_is_refused(tmp_path, change, match):
    """It has the right fingerprint and the right checksum, and nothing else is right."""
    small(2).fit(X, Y, checkpoint=tmp_path / "run")
    header, arrays = modelfile.read(tmp_path / "run", kind="checkpoint")
    for key, value in change.items():
        (arrays if key == "bits" else header)[key] = value
    modelfile.write(tmp_path / "run", kind="checkpoint", header=header, arrays=arrays)
    with pytest.raises(ModelFileError, match=match):
        small(4).fit(X, Y, checkpoint=tmp_path / "run")


def test_a_checkpoint_of_functions_of_fewer_features_is_refused(tmp_path):
    small(2).fit(X, Y, checkpoint=tmp_path / "run")
    header, arrays = modelfile.read(tmp_path / "run", kind="checkpoint")
    few = small(2).fit(X[:, :10], Y).encoder_.arrays()
    arrays = {f"encoder.{name}": array for name, array in few.items()} | {"bits": arrays["bits"]}
    modelfile.write(tmp_path / "run", kind="checkpoint", header=header, arrays=arrays)
    with pytest.raises(ModelFileError, match="points with 64 features"):
        small(4).fit(X, Y, checkpoint=tmp_path / "run")


def test_what_a_file_cannot_hold_is_refused_at_the_first_bit(tmp_path):
    with pytest.raises(ValueError, match="cannot be saved"):
        small(hash_function=DecisionTreeClassifier(max_depth=3)).fit(X, Y, checkpoint=tmp_path / "run")


KILLED = """
import os, random, signal, sys, time
import numpy as np
from sklearn.datasets import load_digits
from hashgrove import BoostedTrees, FastHash

folder, n_kills = sys.argv[1], int(sys.argv[2])
X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]

def fit(checkpoint):
    hasher = FastHash(24, hash_function=BoostedTrees(n_trees=5, max_depth=3), random_state=0, n_jobs=1)
    return hasher.fit(X, y, checkpoint=checkpoint)

started = time.perf_counter()
fit(None).save(folder + "/whole")
seconds = time.perf_counter() - started
rng, killed, checkpoint = random.Random(0), 0, folder + "/run"
while killed < n_kills:
    child = os.fork()
    if child == 0:
        fit(checkpoint).save(folder + "/again")
        os._exit(0)
    time.sleep(rng.uniform(0.02, 0.5) * max(seconds, 0.1))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    killed += os.WIFSIGNALED(status)
    if not os.WIFSIGNALED(status):  # it ended before the kill: start anew
        assert open(folder + "/again", "rb").read() == open(folder + "/whole", "rb").read()
        os.unlink(checkpoint)
fit(checkpoint).save(folder + "/again")
assert open(folder + "/again", "rb").read() == open(folder + "/whole", "rb").read()
print(killed, "kills")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_9_at_random_moments(tmp_path):
    small(1).fit(X, Y)  # so that the child finds compiled kernels
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(kills(50))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout == f"{kills(50)} kills\n", run.stderr


class TestInterrupt:
    @pytest.mark.parametrize("seed", range(5))
    def test_ctrl_c_keeps_the_bits_and_warm_start_goes_on(self, seed, tmp_path):
        hasher = small(64, warm_start=True)
        first = threading.Event()
        hasher.callbacks = [lambda record: first.set()]

        def interrupt():
            first.wait()
            time.sleep(np.random.default_rng(seed).uniform(0, 0.2))
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            hasher.fit(X, Y)
            sender.join()  # it was faster than the signal: wait for that
            time.sleep(1)
        sender.join()
        n_learned = hasher.encoder_.n_bits
        assert 1 <= n_learned <= 64
        assert len(hasher.history_) == n_learned
        assert hasher.transform(X).shape == (len(X), -(-n_learned // 8))
        hasher.callbacks = ()
        whole = small(64).fit(X, Y)
        assert model_bytes(hasher.fit(X, Y), tmp_path / "a") == model_bytes(whole, tmp_path / "b")

    def test_before_the_first_bit_the_hasher_stays_as_it_was(self):
        hasher = small().fit(X, Y)
        before = hasher.encoder_

        class Interrupting(BoostedTrees):
            def prepare(self, *args, **settings):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            hasher.set_params(hash_function=Interrupting()).fit(X[:, :10], Y)
        assert hasher.encoder_ is before
        assert hasher.n_features_in_ == 64

    def test_no_other_bit_is_begun(self):
        def at_work():
            return [thread.name for thread in threading.enumerate() if thread.name.startswith("hashgrove-piece")]

        class Slow(BoostedTrees):
            def learn(self, *arguments):
                time.sleep(0.05)
                return super().learn(*arguments)

        def interrupt(record):
            if record.bit == 2:
                assert at_work()
                raise KeyboardInterrupt

        hasher = small(64, hash_function=Slow(n_trees=5), n_jobs=2, callbacks=[interrupt], warm_start=True)
        with pytest.raises(KeyboardInterrupt) as caught:  # the traceback, which is kept, holds the loop over the bits
            hasher.fit(X, Y)
        assert caught.tb is not None
        assert not at_work()
        assert hasher.encoder_.n_bits == 3
        hasher.set_params(callbacks=()).fit(X, Y)
        whole = small(64, hash_function=BoostedTrees(n_trees=5), n_jobs=1).fit(X, Y)
        assert np.array_equal(hasher.transform(X), whole.transform(X))

    @pytest.mark.parametrize("checkpoint", [True, False])
    def test_the_command_says_how_to_go_on(self, tmp_path, checkpoint):
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", Y)
        command = [sys.executable, "-m", "hashgrove", "train", "X.npy", "y.npy", "-o", "model", "--seed", "0"]
        command += ["--bits", "3000", "--trees", "20", "--n-jobs", "1"] + ["--checkpoint", "run"] * checkpoint
        terminal, stderr = os.openpty()  # only on a terminal is it told how far the fit is
        with subprocess.Popen(command, cwd=tmp_path, stderr=stderr, env=unmeasured() | {"TERM": "xterm"}) as run:
            os.close(stderr)
            error, is_interrupted = "", False
            for part in read_terminal(terminal):
                error += part
                is_learning = (tmp_path / "run").exists() if checkpoint else "learning bits" in error
                if is_learning and not is_interrupted:
                    run.send_signal(signal.SIGINT)
                    is_interrupted = True
        assert run.returncode == 130, error
        assert not (tmp_path / "model").exists()
        assert "Traceback" not in error
        if checkpoint:
            assert "Run the same command again to go on." in error
            assert Path(tmp_path / "run").exists()


def read_terminal(terminal):
    """What the process at the other end writes, until it ends."""
    while True:
        try:
            yield os.read(terminal, 2**12).decode(errors="replace")
        except OSError:  # EIO: nobody has the other end open
            os.close(terminal)
            return


def test_the_command_goes_on_and_removes_the_checkpoint(tmp_path, monkeypatch, capsys):
    from hashgrove.cli import main

    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    monkeypatch.chdir(tmp_path)
    order = ["train", "X.npy", "y.npy", "-o", "model", "--seed", "0", "--bits", "6", "--trees", "5", "--quiet"]
    hasher = FastHash(6, hash_function=BoostedTrees(n_trees=5), random_state=0, callbacks=[stop_after(2)])
    with pytest.raises(Stop):
        hasher.fit(X, Y, checkpoint="run")
    for arguments in (order, [*order, "--checkpoint", "run"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments, prog_name="hashgrove")
        assert ended.value.code == 0, capsys.readouterr().err
        (tmp_path / "model").rename(tmp_path / f"model{len(arguments)}")
    models = sorted(tmp_path.glob("model*"))
    assert models[0].read_bytes() == models[1].read_bytes()
    assert not (tmp_path / "run").exists()


class TestLoadHasher:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"hash_function": LinearSVM(C=2.0), "inference": ICM(n_sweeps=1), "n_similar": None},
            {"hash_function": PosteriorBits(n_anchors=20), "generic_bits": 0},
            {"hash_function": BoostedTrees(n_trees=4, start="kernel", n_anchors=20), "generic_bits": 0},
        ],
        ids=str,
    )
    def test_a_saved_model_goes_on(self, tmp_path, parameters):
        small(4, **parameters).fit(X, Y).save(tmp_path / "model")
        again = load_hasher(tmp_path / "model")
        np.testing.assert_array_equal(again.transform(X), small(4, **parameters).fit(X, Y).transform(X))
        longer = again.set_params(n_bits=8).fit(X, Y)
        assert model_bytes(longer, tmp_path / "a") == model_bytes(small(8, **parameters).fit(X, Y), tmp_path / "b")

    def test_what_the_file_cannot_hold_is_asked_for(self, tmp_path):
        small(2, hash_function=RidgeClassifier()).fit(X, Y).save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"'RidgeClassifier' cannot be made .*hash_function=\.\.\."):
            load_hasher(tmp_path / "model")
        hasher = load_hasher(tmp_path / "model", hash_function=RidgeClassifier())
        assert hasher.set_params(n_bits=4).fit(X, Y).transform(X).shape == (len(X), 1)

    @pytest.mark.parametrize("start", [True, False])
    def test_all_parameters_are_written_whatever_scikit_learn_prints(self, tmp_path, start):
        """A changed default must not change what a file means."""
        learner = BoostedTrees(n_trees=4)
        with config_context(print_changed_only=start):
            small(2, hash_function=learner).fit(X, Y, checkpoint=tmp_path / "run").save(tmp_path / "model")
        header = modelfile.read_header(tmp_path / "model")["header"]
        assert header["parameters"]["hash_function"] == {"class": "BoostedTrees", "params": learner.get_params()}
        with config_context(print_changed_only=not start):
            small(2, hash_function=learner).fit(X, Y, checkpoint=tmp_path / "run").save(tmp_path / "again")
        assert (tmp_path / "model").read_bytes() == (tmp_path / "again").read_bytes()

    @pytest.mark.parametrize(
        ("name", "value", "match"),
        [
            ("hash_function", plain(BoostedTrees(n_trees=10**9)), "'n_trees' parameter must be"),
            ("hash_function", plain(BoostedTrees(n_trees="a")), "'n_trees' parameter must be"),
            ("hash_function", plain(ICM()), "'hash_function' parameter must be"),
            ("hash_function", {"a": 1}, "'None' cannot be made again"),
            (
                "hash_function",
                {"class": "os.system", "params": {"command": "true"}},
                "'os.system' cannot be made again",
            ),
            ("hash_function", {"class": "BoostedTrees", "params": {"n_trees": 3}}, "must have the parameters"),
            ("hash_function", {"class": "BoostedTrees", "params": 5}, "cannot be made again"),
            ("hash_function", {"class": ["BoostedTrees"], "params": {}}, "cannot be made again"),
            ("hash_function", "BoostedTrees()", "'hash_function' parameter must be"),
            ("hash_function", "(" * 100_000, "'hash_function' parameter must be"),
            ("inference", plain(BoostedTrees()), "'inference' parameter must be"),
            ("n_bits", 10**9, "'n_bits' parameter must be"),
            ("loss", "my_loss", "'loss' parameter must be"),
            ("loss", ["x" * 10**5], "'loss' parameter must be"),
            ("weighted", "yes", "'weighted' parameter must be"),
            ("random_state", "RandomState", r"Give it: load_hasher\(path, random_state=\.\.\.\)"),
            ("random_state", -4, "Seed must be"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_absurd_parameters_are_refused_when_the_file_is_read(self, tmp_path, name, value, match):
        small(2).fit(X, Y).save(tmp_path / "model")
        header, arrays = modelfile.read(tmp_path / "model", kind="encoder")
        header["parameters"][name] = value
        modelfile.write(tmp_path / "model", kind="encoder", header=header, arrays=arrays)
        with pytest.raises(ModelFileError, match=match) as caught:
            load_hasher(tmp_path / "model")
        assert len(str(caught.value)) < 500 + len(str(tmp_path))
        assert "\n" not in str(caught.value)
        default = getattr(FastHash(), name)
        assert load_hasher(tmp_path / "model", **{name: default}).get_params(deep=False)[name] == default

    def test_a_file_does_not_decide_about_threads_and_callbacks(self, tmp_path):
        small(2).fit(X, Y).save(tmp_path / "model")
        header, arrays = modelfile.read(tmp_path / "model", kind="encoder")
        header["parameters"] |= {"n_jobs": 10**9, "callbacks": ["x"], "verbose": "x", "warm_start": False}
        modelfile.write(tmp_path / "model", kind="encoder", header=header, arrays=arrays)
        hasher = load_hasher(tmp_path / "model")
        assert (hasher.n_jobs, hasher.callbacks, hasher.verbose, hasher.warm_start) == (None, (), 0, True)

    def test_a_model_of_another_method_is_refused(self, tmp_path):
        LSH(8, random_state=0).fit(X).save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"must be a model of FastHash\. Got 'LSH'"):
            load_hasher(tmp_path / "model")


def test_model_files_have_no_addresses_in_memory(tmp_path):
    def loss(distance, similar, n_bits):
        return np.where(similar, distance, n_bits - distance) / n_bits

    small(2, loss=loss, random_state=np.random.RandomState(0)).fit(X, Y).save(tmp_path / "model")
    parameters = modelfile.read_header(tmp_path / "model")["header"]["parameters"]
    assert parameters["loss"] == "loss"
    assert "0x" not in str(parameters)
    again = small(2, loss=loss, random_state=np.random.RandomState(0)).fit(X, Y)
    assert model_bytes(again, tmp_path / "again") == (tmp_path / "model").read_bytes()


def test_an_own_solver_has_no_address_and_its_run_goes_on(tmp_path):
    class Same(ICM):
        """A solver like any that a user writes: it says nothing about itself."""

        __repr__ = object.__repr__

    fitted = small(2, inference=Same(), random_state=0).fit(X, Y, checkpoint=tmp_path / "run")
    fitted.save(tmp_path / "model")
    assert "0x" not in str(modelfile.read_header(tmp_path / "model")["header"])
    again = small(2, inference=Same(), random_state=0).fit(X, Y, checkpoint=tmp_path / "run")
    assert model_bytes(again, tmp_path / "again") == (tmp_path / "model").read_bytes()
    assert repr(again.inference) != repr(fitted.inference)


def test_a_checkpoint_is_a_small_file_of_arrays(tmp_path):
    small(4).fit(X, Y, checkpoint=tmp_path / "run")
    shape = {"shape": (300, 64), "record": BitRecord}
    progress = small(4)._checkpoint(tmp_path / "run", X, _labels(), None, TREES).read(**shape)
    assert progress.bits.shape == (4, 300)
    assert progress.encoder.n_bits == 4
    assert Checkpoint(tmp_path / "none", "").read(**shape) is None


def _labels():
    from hashgrove.supervision import Target

    return Target(Y).read(X, min_shared=2, method="FastHash")
