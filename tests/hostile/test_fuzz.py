"""A short run of tests/hostile/fuzz.py for each reader, and the fuzz loop itself: it must notice what goes wrong."""

from __future__ import annotations

import os

import fuzz
import fuzz_harm
import pytest
from fuzz_readers import READERS

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs RLIMIT_AS and /proc")
NEEDS = {"parquet": "pyarrow", "faiss": "faiss", "image": "PIL", "image-sandbox": "PIL"}
NEEDS |= dict.fromkeys(("onnx", "onnx-operators"), "onnxruntime")
NEEDS |= dict.fromkeys(("http-json", "http-form", "http-binary"), "fastapi")
FILES = {"folder": 150, "onnx": 300, "image-sandbox": 200, "onnx-operators": 40} | dict.fromkeys(
    ("http-json", "http-form", "http-binary", "faiss"), 200
)  # the others get 600


@pytest.mark.parametrize("name", READERS)
def test_no_mutated_file_does_harm(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    n_files = FILES.get(name, 600)
    counts, failures = fuzz.fuzz(name, READERS[name], files=n_files, seed=1, folder=tmp_path)
    assert not failures
    assert counts["read"] + counts["refused"] == n_files
    assert min(counts["read"], counts["refused"]) > 0


@pytest.mark.parametrize("harm", fuzz_harm.WRONG, ids=lambda harm: harm.__name__)
def test_harm_is_noticed(tmp_path, harm):
    _, [failure] = fuzz.fuzz("harm", fuzz_harm.harmful(harm), files=1, seed=0, folder=tmp_path)
    assert fuzz_harm.WRONG[harm] in failure["wrong"]
    assert (tmp_path / "failure-0").exists()
