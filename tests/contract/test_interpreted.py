"""Kernels give the same when Python interprets them: compiled code hides an index out of bounds, Python does not."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import interpreted


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What a process with interpreted kernels gives."""
    path = tmp_path_factory.mktemp("interpreted") / "results.npz"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, interpreted.__file__, path], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize("name", interpreted.COMPUTATIONS)
def test_interpreted_equals_compiled(name, results):
    for place, array in enumerate(interpreted.COMPUTATIONS[name]()):
        expected, found = np.asarray(array), results[f"{name}/{place}"]
        assert found.dtype == expected.dtype
        if expected.dtype.kind == "f":  # the mathematical functions of LLVM and of numpy differ in their last bits
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, expected)
