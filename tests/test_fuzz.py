"""A short run of tests/fuzz.py for each reader, and the fuzz loop itself: it must notice what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import fuzz
from fuzz_readers import READERS

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs RLIMIT_AS and /proc")
NEEDS = {"parquet": "pyarrow", "onnx": "onnxruntime", "image": "PIL", "image-apart": "PIL"}
FILES = {
    "model": 150,
    "index": 100,
    "folder": 60,
    "onnx": 100,
    "image": 150,
    "image-apart": 10,
}  # the others get 300


@pytest.mark.parametrize("name", READERS)
def test_no_mutated_file_does_harm(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    n_files = FILES.get(name, 300)
    counts, failures = fuzz.fuzz(name, files=n_files, seed=1, folder=tmp_path)
    assert not failures
    assert counts["read"] + counts["refused"] == n_files
    assert min(counts["read"], counts["refused"]) > 0


@pytest.mark.parametrize(
    ("harm", "wrong"),
    [
        ("raise KeyError(1)", "KeyError"),
        ("error = FileError(''); error.args = (f'{path}: two\\nlines',); raise error", "not one line"),
        ("raise FileError('no path')", "not one line"),
        ("bytearray(2**27)", "MemoryError"),
        ("os.abort()", "ended with -6"),
        ("fuzz.limit_time(20, 1); time.sleep(600)", "took too long"),
        ("fuzz.limit_time(1, 200)\n        while True: pass", "took too long"),
    ],
)
def test_harm_is_noticed(tmp_path, harm, wrong):
    """A reader of its own, which does harm as soon as a file differs from its seed."""
    code = f"""
import os, sys, time
from pathlib import Path
import fuzz, fuzz_readers
from hashgrove.storage.formats import FileError

def read(path):
    if path.read_bytes() != b"seed":
        {harm}

fuzz.READERS["harm"] = fuzz_readers.Reader(lambda: [fuzz_readers.Seed(b"seed")], ".x", (read,))
fuzz.__file__ = __file__
if sys.argv[1:2] == ["--child"]:
    fuzz.child(sys.argv[2], *map(int, sys.argv[3:6]), Path(sys.argv[6]))
else:
    print(fuzz.fuzz("harm", files=1, seed=0, folder=Path(sys.argv[1]))[1])
"""
    (tmp_path / "harm.py").write_text(code)
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "harm.py", str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert wrong in done.stdout
    assert (tmp_path / "failure-0").exists()
