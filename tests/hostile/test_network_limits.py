"""Hostile networks without loops: onnxruntime works under a limit of time, and the process survives it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tiny_onnx
from hashgrove.features import OnnxFeatures, load_extractor, network_child
from hashgrove.runtime.threads import run_within
from hashgrove.storage.formats import FileError
from tiny_onnx import attribute, field, node

IMAGES = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)


def slow(*, folded):
    """A network of a few KB that multiplies matrices for a minute: of what it sees, or of its own constants."""
    size, n_products = 1200, 400
    shape = field(1, 2) + field(2, 7) + field(8, "size") + field(9, np.array([size, size], np.int64).tobytes())
    first = tiny_onnx.tensor("small", np.full((1, 1), 1e-3))
    mean = attribute("axes", (1, 2, 3)) + attribute("keepdims", 0)
    nodes = [node("ReduceMean", ["x"], ["seen"], mean), node("Expand", ["small" if folded else "seen", "size"], ["a0"])]
    nodes += [node("MatMul", [f"a{i}", f"a{i}"], [f"a{i + 1}"]) for i in range(n_products)]
    sums = attribute("axes", (0, 1)) + attribute("keepdims", 0)
    nodes += [node("ReduceMean", [f"a{n_products}"], ["sum"], sums), node("Add", ["sum", "seen"], ["flat"])]
    nodes += [node("Unsqueeze", ["flat", "one"], ["y"])]
    one = field(1, 1) + field(2, 7) + field(8, "one") + field(9, np.array([1], np.int64).tobytes())
    graph = b"".join(field(1, made) for made in nodes) + field(2, "slow")
    graph += b"".join(field(5, constant) for constant in (shape, first, one))
    graph += field(11, tiny_onnx.value_info("x", ("n", 3, "h", "w"))) + field(12, tiny_onnx.value_info("y", ("n", 1)))
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def test_a_slow_network_is_given_up(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "slow.onnx"
    path.write_bytes(slow(folded=False))
    with pytest.raises(FileError, match=r"slow\.onnx: must take at most 1 seconds per image; set the 'time_limit'"):
        OnnxFeatures(path, image_size=4, time_limit=1).fit(IMAGES[:1])


def test_the_limit_changes_no_feature_and_is_not_saved(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(tiny_onnx.model())
    settings = {"output": "mean", "image_size": 4}
    features = [OnnxFeatures(path, time_limit=limit, **settings).fit(IMAGES).transform(IMAGES) for limit in (None, 60)]
    np.testing.assert_array_equal(*features)
    for limit in (1.0, None):
        OnnxFeatures(path, time_limit=limit, **settings).fit(IMAGES).save(tmp_path / f"saved {limit}")
    assert (tmp_path / "saved 1.0").read_bytes() == (tmp_path / "saved None").read_bytes()
    assert load_extractor(tmp_path / "saved None").time_limit == 60
    for limit in (0, -1, "60", np.nan):
        with pytest.raises(ValueError, match="'time_limit' parameter must be a number above 0"):
            OnnxFeatures(path, time_limit=limit, **settings).fit(IMAGES)


@pytest.mark.parametrize(("folded", "what"), [(False, "per image"), (True, "to be opened")])
def test_the_command_ends_in_one_line(tmp_path, folded, what):
    """A network that is being opened does not stop when it is asked to, and still runs when the command ends."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "slow.onnx").write_bytes(slow(folded=folded))
    np.save(tmp_path / "images.npy", IMAGES[:1])
    command = [sys.executable, "-m", "hashgrove", "features", "onnx", "images.npy", "-o", "X.npy"]
    command += ["--network", "slow.onnx", "--size", "4", "--time-limit", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: slow.onnx: must take at most 1.0 seconds {what}; ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "X.npy").exists()


CRASHES = {
    "smallest integer": tiny_onnx.divides_smallest_integer(folded=False),
    "smallest integer in a constant": tiny_onnx.divides_smallest_integer(folded=True),
    "no groups": tiny_onnx.transposes_with_no_groups(),
}


@pytest.mark.parametrize("network", CRASHES.values(), ids=CRASHES)
def test_a_network_that_ends_its_process(tmp_path, network):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "crash.onnx"
    path.write_bytes(network)
    with pytest.raises(FileError, match=r"crash\.onnx: .*: the process that runs the network was ended by SIGFPE$"):
        OnnxFeatures(path, image_size=4).fit(IMAGES)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2**31 - 1, 3, 4, 4), (1, 3, 0, 4), (4000, 3, 4000, 4000)])
def test_a_batch_of_a_hostile_size(tmp_path, shape):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(tiny_onnx.model(outputs=("mean",), input_shape=shape))
    with pytest.raises(FileError, match=r"net\.onnx: must take batches of .*\. Got .*\d"):
        OnnxFeatures(path).fit(IMAGES)


def test_a_network_that_takes_too_much_memory(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(network_child, "memory_limit", lambda: 2**30)
    path = tmp_path / "net.onnx"
    for side, takes_too_much in ((4_000, False), (20_000, True)):  # 64 MB and 1.6 GB
        path.write_bytes(tiny_onnx.takes_memory(side))
        features = OnnxFeatures(path, image_size=4)
        if takes_too_much:
            with pytest.raises(FileError, match=r"net\.onnx: cannot be run on images of shape \(3, 4, 4\): "):
                features.fit(IMAGES[:1])
        else:
            assert features.fit(IMAGES[:1]).transform(IMAGES[:1]).shape == (1, 1)


def opened(folder):
    """A network whose process is running."""
    pytest.importorskip("onnxruntime")
    path = folder / "net.onnx"
    path.write_bytes(tiny_onnx.model())
    return OnnxFeatures(path, output="mean", image_size=4, batch_size=1).fit(IMAGES)


class TestTheChildProcess:
    @pytest.fixture
    def features(self, tmp_path):
        return opened(tmp_path)

    def test_it_is_reused_between_batches_and_started_again_after_a_crash(self, features):
        child = features._network._running
        expected = features.transform(IMAGES)
        assert features._network._running is child
        os.kill(child._process.pid, signal.SIGKILL)
        child._process.wait()
        np.testing.assert_array_equal(features.transform(IMAGES), expected)
        assert features._network._running is not child

    def test_a_crash_while_it_works_is_one_error(self, features):
        child = features._network._running
        os.kill(child._process.pid, signal.SIGSTOP)
        threading.Timer(0.2, child._process.kill).start()
        with pytest.raises(ValueError, match="the process that runs the network was ended by SIGKILL"):
            features.transform(IMAGES)

    def test_a_process_that_hangs_is_ended_in_time(self, features):
        child = features._network._running
        os.kill(child._process.pid, signal.SIGSTOP)  # it does not even read what is sent
        features.time_limit = 0.2
        with pytest.raises(ValueError, match=r"must take at most 0\.2 seconds per image"):
            features.transform(np.zeros((1, 1000, 1000, 3), np.uint8))
        assert child._process.wait() == -signal.SIGKILL

    def test_it_ends_with_what_it_belongs_to(self, tmp_path):
        features = opened(tmp_path)  # not the fixture, which pytest keeps
        process = features._network._running._process
        del features
        gc.collect()
        assert process.wait(timeout=60) == -signal.SIGKILL

    def test_it_ends_with_its_parent(self, tmp_path):
        pytest.importorskip("onnxruntime")
        (tmp_path / "net.onnx").write_bytes(tiny_onnx.model(outputs=("mean",)))
        program = """
import os, signal, numpy as np
from hashgrove.features import OnnxFeatures
features = OnnxFeatures("net.onnx", image_size=4).fit(np.zeros((1, 4, 4, 3), np.uint8))
print(features._network._running._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == -signal.SIGKILL  # and its pipes have been closed, by the child too
        child = f"/proc/{int(done.stdout)}"
        end = time.monotonic() + 60
        while os.path.exists(child) and "Z" not in Path(child, "stat").read_text().rpartition(")")[2].split()[0]:
            assert time.monotonic() < end
            time.sleep(0.02)

    def test_threads_share_it(self, features):
        images = np.random.default_rng(0).integers(0, 256, (64, 4, 4, 3), dtype=np.uint8)
        features.n_jobs = 8
        np.testing.assert_allclose(features.transform(images), images.mean(axis=(1, 2)), rtol=1e-6)


class TestRunWithin:
    def test_the_result_or_the_error(self):
        assert run_within(60, lambda: 42) == 42
        assert run_within(None, threading.get_ident) == threading.get_ident()
        assert run_within(1e300, lambda: 42) == 42
        with pytest.raises(KeyError, match="x"):
            run_within(60, lambda: {}["x"])

    def test_the_call_is_asked_to_stop(self):
        asked = threading.Event()
        ended = threading.Event()

        def work():
            asked.wait()
            ended.set()

        with pytest.raises(TimeoutError):
            run_within(0.01, work, stop=asked.set)
        assert ended.wait(60)

    @pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="needs signals")
    def test_ctrl_c_is_not_held_up(self):
        asked = threading.Event()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run_within(600, asked.wait, stop=asked.set)
