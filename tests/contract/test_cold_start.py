"""Processes that find nothing compiled: they may start at the same time, and later ones use what they compiled."""

from __future__ import annotations

import os
import subprocess
import sys

COUNT = """
import numpy as np
from hashgrove import codes
print(codes.hamming(np.array([[3]], np.uint8), np.array([[0]], np.uint8)).tolist(), codes._hamming.stats.cache_hits)
"""


def start(cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", COUNT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_may_compile_the_same_kernel_at_the_same_time(tmp_path):
    for process in [start(tmp_path) for _ in range(2)]:
        said, errors = process.communicate()
        assert said.startswith("[[2]]"), errors
    said, errors = start(tmp_path).communicate()
    assert said.startswith("[[2]] Counter({("), errors  # found in the cache
