"""Files of strangers that are large, or whose names are: memory, and errors of one short line."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import hashgrove
from example_encoders import example
from hashgrove.codes import MAX_BITS
from hashgrove.encoders import ENCODERS, LeafTrees, Trees, UnitKernel
from hashgrove.storage import modelfile, models
from hashgrove.storage.formats import FileError
from hashgrove.storage.matrices import read_matrix
from hashgrove.storage.modelfile import ModelFileError
from paths import FORMAT1

SIZE = 80_000_000  # bytes of a large file: enough that 64 MB are a small part of what it may take
LIMITED = """
import os, resource, sys
import hashgrove

hashgrove.load(sys.argv[1])  # imports what is needed
for path in sys.argv[2:]:
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + 2**26 + 4 * os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    print(os.path.basename(path), hashgrove.load(path).n_bits, flush=True)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def chain(n_nodes):
    """One tree whose inner nodes each have a leaf on the left and the next inner node on the right."""
    child = np.zeros(n_nodes, np.uint32)
    inner = np.arange(0, n_nodes - 2, 2)
    child[inner] = inner + 1
    return {
        "low": np.zeros(1),
        "scale": np.ones(1),
        "bit_ptr": np.array([0, 1], np.int32),
        "tree_ptr": np.array([0, n_nodes], np.int32),
        "feature": np.zeros(n_nodes, np.uint32),
        "threshold": np.zeros(n_nodes, np.uint8),
        "child": child,
        "value": (child == 0).astype(np.int8),
    }


def large(name):
    """A model of `SIZE` bytes, most of them in the arrays that its checks look at most closely."""
    if name == "trees":
        return Trees(weights=np.ones(1, np.int16), **chain(SIZE // 10 | 1))
    if name == "leaf-trees":
        return LeafTrees(unit=np.ones(1), **chain(SIZE // 10 | 1))
    if name == "unit-kernel":
        anchors = np.zeros((SIZE // 40_000, 10_000), np.float32)
        anchors[:, 0] = 1
        return UnitKernel(anchors=anchors, gamma=np.array(1, np.float32))
    raise KeyError(name)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs RLIMIT_AS and /proc")
def test_a_large_model_takes_at_most_four_times_its_size(tmp_path):
    """The fuzz loop has small files only, for which 64 MB are always enough."""
    paths, expected = [FORMAT1 / "linear.hashgrove"], []
    for name in ("trees", "leaf-trees", "unit-kernel"):
        encoder, path = large(name), tmp_path / name
        models.save(path, encoder, hasher="FastHash", parameters={})
        assert abs(os.path.getsize(path) / SIZE - 1) < 0.1
        paths.append(path)
        expected.append(f"{name} {encoder.n_bits}")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, paths)],
        env=os.environ | {"MALLOC_ARENA_MAX": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == expected, done.stderr[-500:]


def test_a_model_has_no_more_bits_than_a_code_can_have(tmp_path):
    """Scores of a thousand rows would take gigabytes; and no index takes such codes."""
    for n_bits in (MAX_BITS, MAX_BITS + 1):
        models.save(tmp_path / str(n_bits), example("linear", n_bits, n_features=1), hasher="LSH", parameters={})
    assert hashgrove.load(tmp_path / str(MAX_BITS)).n_bits == MAX_BITS
    with pytest.raises(ModelFileError, match=f"must have at most {MAX_BITS} bits. Got {MAX_BITS + 1}"):
        hashgrove.load(tmp_path / str(MAX_BITS + 1))


@pytest.mark.parametrize(
    "change", [{"n_bits": 5}, {"n_features": 1}, {"n_bits": None}, {"n_bits": "4"}, {"n_features": 3.5}], ids=str
)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_header_that_contradicts_the_arrays_is_refused(tmp_path, name, change):
    encoder, path = example(name, 4), tmp_path / "model"
    models.save(path, encoder, hasher="FastHash", parameters={})
    header, arrays = modelfile.read(path, kind="encoder")
    modelfile.write(path, kind="encoder", header=header | change, arrays=arrays)
    with pytest.raises(ModelFileError, match=r"its header says \(n_bits, n_features\) = "):
        hashgrove.load(path)


LONG = "line\nbreak\u2028" * 10_000


@pytest.mark.parametrize("encoder", [*ENCODERS, LONG])
def test_names_in_a_model_make_one_short_line(tmp_path, encoder):
    path = tmp_path / "model"
    arrays = {f"{number}.{LONG}": np.zeros(1) for number in range(10)}
    modelfile.write(path, kind="encoder", header={"encoder": encoder, "n_bits": LONG}, arrays=arrays)
    with pytest.raises(ModelFileError) as caught:
        hashgrove.load(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < len(str(path)) + 1000


def test_names_in_an_archive_make_one_short_line(tmp_path):
    path = tmp_path / "X.npz"
    for names in (["line\nbreak.npy"], ["line\nbreak.npy", *(f"{number}{'x' * 5000}" for number in range(20))]):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"no array")
        with pytest.raises(FileError) as caught:
            read_matrix(path)
        assert len(str(caught.value).splitlines()) == 1
        assert len(str(caught.value)) < len(str(path)) + 1500


def test_the_name_of_a_file_makes_one_line(tmp_path):
    path = tmp_path / "line\nbreak.npy"
    path.write_bytes(b"no array")
    with pytest.raises(FileError) as caught:
        read_matrix(path)
    assert str(caught.value).startswith(f"{tmp_path}/line\\nbreak.npy: ")
