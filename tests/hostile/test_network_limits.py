"""Hostile networks without loops: onnxruntime works under a limit of time, and the process survives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tiny_onnx
from hashgrove.features import OnnxFeatures, load_extractor
from hashgrove.runtime.threads import run_within
from hashgrove.storage.formats import FileError
from tiny_onnx import field, node

IMAGES = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)


def attribute(name, values):
    """An attribute of a node: an integer, or a tuple of them."""
    if isinstance(values, int):
        return field(5, field(1, name) + field(3, values) + field(20, 2))
    return field(5, field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7))


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
    with pytest.raises(FileError, match=r"slow\.onnx: must take at most 1 seconds per image; set 'time_limit' higher"):
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
