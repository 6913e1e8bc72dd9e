from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module

import pytest

from hashgrove.jit import available_threads, chunks, package_digest, run


def test_results_are_in_the_order_of_the_tasks():
    def slow_first(k):
        time.sleep(0.02 if k == 0 else 0)
        return k * k

    for n_jobs in (1, 2, 5, None):
        assert run(slow_first, [(k,) for k in range(20)], n_jobs=n_jobs) == [k * k for k in range(20)]
    assert run(slow_first, []) == []


def test_several_threads_work():
    barrier = threading.Barrier(3, timeout=20)  # breaks unless three tasks run at once
    run(barrier.wait, [()] * 3, n_jobs=3)


def test_an_error_in_any_task_is_raised():
    def fail(k):
        if k == 7:
            raise ValueError("task 7")

    for n_jobs in (1, 2, 4):
        with pytest.raises(ValueError, match="task 7"):
            run(fail, [(k,) for k in range(20)], n_jobs=n_jobs)


def test_a_task_may_run_tasks():
    def outer(k):
        return sum(run(pow, [(k, 2), (k, 3), (k, 4)], n_jobs=2))

    assert run(outer, [(k,) for k in range(8)], n_jobs=2) == [k**2 + k**3 + k**4 for k in range(8)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_threads_of_its_own():
    run(time.sleep, [(0,)] * 4, n_jobs=2)  # the pool is there
    child = os.fork()
    if child == 0:
        os._exit(0 if run(pow, [(2, 3)] * 4, n_jobs=2) == [8] * 4 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_chunks_cover_everything_once():
    assert [k for a, b in chunks(1000, 7) for k in range(a, b)] == list(range(1000))


def test_number_of_threads():
    assert available_threads() == available_threads(-1) >= 1
    for bad in (0, 1.5, "2"):
        with pytest.raises(ValueError, match="'n_jobs'"):
            available_threads(bad)


def test_cached_code_is_stale_when_any_source_of_the_package_has_changed(tmp_path, monkeypatch):
    """numba alone would run the old code of a kernel that is called from an unchanged file."""
    (tmp_path / "twice.py").write_text("from hashgrove.jit import kernel\n\n@kernel\ndef twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    hits = []
    for digest in ("old", "old", "new", "new"):
        monkeypatch.setattr("hashgrove.jit.package_digest", lambda digest=digest: digest)
        sys.modules.pop("twice", None)
        twice = import_module("twice").twice
        assert twice(21) == 42
        hits.append(sum(twice.stats.cache_hits.values()))
    assert hits == [0, 1, 0, 1]
    assert len(package_digest()) == 64
