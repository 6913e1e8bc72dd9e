"""Twenty seconds of mixed load; `benchmarks/soak_serve.py` runs for ten minutes."""

from __future__ import annotations

import sys

from paths import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

import soak_serve


def test_mixed_load_gives_no_error_and_flat_memory():
    found = soak_serve.soak(20.0)
    assert found["wrong"] == {}
    assert found["requests"] >= 400
    assert found["flat"], found
