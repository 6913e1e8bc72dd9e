from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from hashgrove.storage import modelfile
from hashgrove.storage.formats import FileError
from hashgrove.storage.modelfile import ModelFileError, read, read_header, write
from hashgrove.storage.models import read_learned

HEADER = {"hasher": "FastHash", "n_bits": 2, "parameters": {"loss": "hinge", "gamma": 0.1, "text": "é\n\"'"}}
DTYPES = ["float32", "float64"] + [f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)]
ARRAYS = {
    "weights": np.arange(6.0).reshape(2, 3),
    "bias": np.array([1, -1], np.float32),
    "gamma": np.array(0.5),
    "empty": np.zeros((0, 3), np.int32),
    "codes": np.array([[255, 1, 0]], np.uint8),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.hashgrove"
    write(path, kind="encoder", header=HEADER, arrays=ARRAYS)
    return path


def refused(path, match=None, kind="encoder"):
    with pytest.raises(ModelFileError, match=match) as caught:
        read(path, kind=kind)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    assert len(message) < len(str(path)) + 400
    return caught.value


def container(header, data=b"", length=None):
    """A safetensors file by hand."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def metadata(fields):
    return {"__metadata__": {"hashgrove": fields if isinstance(fields, str) else modelfile._canonical(fields)}}


def fields(**changes):
    good = {"format": 1, "kind": "encoder", "version": "0", "header": {}}
    digest = hashlib.sha256(modelfile._canonical(good).encode()).hexdigest()
    return good | {"sha256": digest} | changes


def test_round_trip(path):
    header, arrays = read(path, kind="encoder")
    assert header == HEADER
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)


def test_is_a_safetensors_file(path):
    np.testing.assert_array_equal(load_file(path)["weights"], ARRAYS["weights"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
def test_types_orders_and_strides(tmp_path, dtype, order):
    array = np.arange(24).reshape(4, 6).astype(np.dtype(dtype).newbyteorder(order)).T[::2]
    write(tmp_path / "m", kind="index", header={}, arrays={"a": array})
    result = read(tmp_path / "m", kind="index")[1]["a"]
    assert result.dtype == np.dtype(dtype)
    assert result.dtype.isnative
    np.testing.assert_array_equal(result, array)


def test_same_input_same_bytes(path, tmp_path):
    script = (
        "import sys, numpy as np; from hashgrove.storage.modelfile import read, write;"
        "header, arrays = read(sys.argv[1], kind='encoder');"
        "flipped = dict(reversed(header.items()));"
        "write(sys.argv[2], kind='encoder', header=flipped, arrays=dict(reversed(arrays.items())))"
    )
    for seed in "12":
        other = tmp_path / f"other{seed}"
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script, path, other], check=True, env=environment)
        assert other.read_bytes() == path.read_bytes()


def test_read_header(path):
    described = read_header(path)
    assert described["header"] == HEADER
    assert described["kind"] == "encoder"
    assert described["format"] == 1
    assert described["arrays"]["weights"] == ("float64", (2, 3))
    assert described["arrays"]["gamma"] == ("float64", ())


def test_every_flipped_byte_is_detected(path):
    content = path.read_bytes()
    for position in range(len(content)):
        for mask in (1 << (position % 8), 0x20, 0xFF):
            path.write_bytes(content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :])
            refused(path)
    path.write_bytes(content)
    read(path, kind="encoder")


def test_every_truncation_and_extension_is_detected(path):
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        refused(path)
    path.write_bytes(content + b"\0")
    refused(path)


def test_hand_built_file_is_accepted(tmp_path):
    """The hostile files below differ from a good one only in what they are about."""
    (tmp_path / "m").write_bytes(container(metadata(fields())))
    assert read(tmp_path / "m", kind="encoder") == ({}, {})


F64 = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a model file"),
        (b"PK\x03\x04 this is something else entirely", "not a model file"),
        (container(b"{}", length=2**63), "not a model file"),
        (container(b"{}", length=2**64 - 1), "not a model file"),
        (container(b"{}", length=10**9), "not a model file"),
        (container(b"{}" + b" " * 6), "not one that hashgrove wrote"),
        (container({"__metadata__": {"a": "b"}}), "not one that hashgrove wrote"),
        (container({"__metadata__": {"hashgrove": 5}}), "not a model file"),
        (container({"__metadata__": ["hashgrove"]}), "not a model file"),
        (container(b'{"a":' * 100_000), "not a model file"),
        (container(metadata("[" * 100_000)), "not JSON"),
        (container(metadata("[" * 500 + "]" * 500)), "JSON object"),
        (container(metadata('{"format":' + "9" * 10_000 + "}")), "not JSON"),
        (container(metadata("[]")), "JSON object"),
        (container(metadata("null")), "JSON object"),
        (container(metadata("{}")), "canonical"),
        (container(metadata(fields(format=2))), "format version must be 1.*Got 2"),
        (container(metadata(fields(format="1"))), "canonical"),
        (container(metadata(fields(format=True))), "canonical"),
        (container(metadata(fields(header=[]))), "canonical"),
        (container(metadata(fields(extra=1))), "canonical"),
        (container(metadata(json.dumps(fields()))), "canonical"),
        (container(metadata(fields(header={"n_bits": 9}))), "checksum"),
        (container(metadata(fields(sha256=fields()["sha256"].upper()))), "checksum"),
        (container(metadata(fields()) | {"a": F64}, b"\0" * 16), "checksum"),
        (container(metadata(fields()) | {"a": F64}, b"\0" * 15), "not a model file"),
        (container(metadata(fields()) | {"a": F64 | {"shape": [2**40]}}, b"\0" * 16), "not a model file"),
        (container(metadata(fields()) | {"a": F64 | {"shape": [2**62, 8]}}, b"\0" * 16), "not a model file"),
        (container(metadata(fields()) | {"a": F64 | {"shape": [-2]}}, b"\0" * 16), "not a model file"),
        *(
            (container(metadata(fields()) | {"a": F64 | {"shape": shape, "data_offsets": [0, 0]}}), "possible shape")
            for shape in ([0, 2**63], [0, 2**62, 4], [0] * 65)
        ),
        (
            container(metadata(fields()) | {"a": F64 | {"data_offsets": [16, 32]}}, b"\0" * 32),
            "not a model file",
        ),
        (
            container(metadata(fields()) | {"a": F64 | {"dtype": "BF16", "shape": [8]}}, b"\0" * 16),
            "type.*BF16",
        ),
        (
            container(metadata(fields()) | {"a": F64 | {"dtype": "BOOL", "shape": [16]}}, b"\0" * 16),
            "type.*BOOL",
        ),
    ],
)
def test_hostile_files(tmp_path, content, match):
    path = tmp_path / "m"
    path.write_bytes(content)
    refused(path, match)


def test_header_that_declares_more_than_the_file_allocates_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "m"
    path.write_bytes(container(metadata(fields()) | {"a": F64 | {"shape": [2**36], "data_offsets": [0, 2**39]}}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_other_kind(path):
    refused(path, "must be a model file of kind 'index'. Got 'encoder'", kind="index")


def test_missing_and_folder(tmp_path):
    assert isinstance(refused(tmp_path / "no", "no such file"), FileNotFoundError)
    refused(tmp_path, "folder")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "device")


def test_foreign_safetensors(tmp_path):
    (tmp_path / "m").write_bytes(save({"a": np.zeros(3)}))
    refused(tmp_path / "m", "not one that hashgrove wrote")


def test_crash_while_writing_keeps_the_old_file(path):
    """A child process dies by os._exit when half of the new file is written."""
    before = path.read_bytes()
    script = """
import os, sys, numpy as np
from contextlib import contextmanager
from hashgrove.storage import modelfile
real = modelfile.atomic_write
@contextmanager
def dying(path):
    with real(path) as file:
        class Half:
            def write(self, content):
                file.write(content[: len(content) // 2]); file.flush(); os._exit(9)
        yield Half()
modelfile.atomic_write = dying
modelfile.write(sys.argv[1], kind="encoder", header={}, arrays={"a": np.zeros(1000)})
"""
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 9
    assert path.read_bytes() == before
    read(path, kind="encoder")
    write(path, kind="encoder", header={}, arrays={"a": np.zeros(3)})
    assert read(path, kind="encoder")[0] == {}


def test_failed_write_leaves_no_file_behind(path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match=f"{path}: cannot be written: No space"):
        write(path, kind="encoder", header={}, arrays={})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"kind": "other"}, "'kind' parameter must be one of"),
        ({"header": {"a": float("nan")}}, "'header' parameter must be representable as JSON"),
        ({"header": {"a": object()}}, "'header' parameter must be representable as JSON"),
        ({"arrays": {"a": np.zeros(2, bool)}}, "Got bool"),
        ({"arrays": {"a": np.zeros(2, np.float16)}}, "Got float16"),
        ({"arrays": {"a": np.array(["x"])}}, "Got <U1"),
    ],
)
def test_write_refuses(tmp_path, arguments, match):
    with pytest.raises(ValueError, match=match):
        write(tmp_path / "m", **({"kind": "encoder", "header": {}, "arrays": {}} | arguments))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "learned",
    ["text", {"validation": {"n_rows": 3}}, {"validation": {"n_rows": "3", "rows": []}}, {"trained_on": ["x"]},
     {"validation": {"n_rows": 3, "rows": [{"method": "m", "n_bytes": 8, "map": "high", "precision_at_10": 0.5}]}}],
)  # fmt: skip
def test_what_a_file_says_about_its_fit_is_checked(tmp_path, learned):
    some = {"a": np.zeros(1)}  # safetensors 0.4 reads no file without arrays
    modelfile.write(tmp_path / "m", kind="encoder", header={"learned": learned}, arrays=some)
    with pytest.raises(ModelFileError, match="damaged: what it says about its fit"):
        read_learned(tmp_path / "m")


def test_the_reason_of_a_refused_file_is_that_of_the_system_or_of_the_library(tmp_path, monkeypatch):
    path = tmp_path / "cut.hashgrove"
    path.write_bytes(b"short")
    with pytest.raises(ModelFileError, match=r"damaged: .*[Hh]eader"):
        read(path, kind="encoder")

    def fail(*arguments, **options):
        raise OSError(errno.EIO, "Input/output error", "some/other/name")

    monkeypatch.setattr(modelfile, "safe_open", fail)
    with pytest.raises(ModelFileError, match=r"damaged: Input/output error$"):
        read(path, kind="encoder")
