from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from hashgrove.runtime import compiling
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.progress import COMPILING
from hashgrove.runtime.rounding import marks_of
from hashgrove.runtime.sharing import shared, sharing
from hashgrove.runtime.threads import available_threads, beside, chunks, in_order, run_tasks


def test_results_are_in_the_order_of_the_tasks():
    def slow_first(k):
        time.sleep(0.02 if k == 0 else 0)
        return k * k

    for n_jobs in (1, 2, 5, None):
        assert run_tasks(slow_first, [(k,) for k in range(20)], n_jobs=n_jobs) == [k * k for k in range(20)]
    assert run_tasks(slow_first, []) == []


def test_several_threads_work():
    barrier = threading.Barrier(3, timeout=300)  # breaks unless three tasks run at once
    run_tasks(barrier.wait, [()] * 3, n_jobs=3)


def test_an_error_in_any_task_is_raised():
    def fail(k):
        if k == 7:
            raise ValueError("task 7")

    for n_jobs in (1, 2, 4):
        with pytest.raises(ValueError, match="task 7"):
            run_tasks(fail, [(k,) for k in range(20)], n_jobs=n_jobs)


def test_a_task_may_run_tasks():
    def outer(k):
        return sum(run_tasks(pow, [(k, 2), (k, 3), (k, 4)], n_jobs=2))

    assert run_tasks(outer, [(k,) for k in range(8)], n_jobs=2) == [k**2 + k**3 + k**4 for k in range(8)]


FORKED = """
import os, time
from hashgrove.runtime.threads import run_tasks

run_tasks(time.sleep, [(0,)] * 4, n_jobs=2)  # the pool is there
child = os.fork()
if child == 0:
    os._exit(0 if run_tasks(pow, [(2, 3)] * 4, n_jobs=2) == [8] * 4 else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_threads_of_its_own():
    """In a new process: other tests load libraries with threads, and a fork copies the locks that these hold."""
    assert subprocess.run([sys.executable, "-c", FORKED], check=False, timeout=300).returncode == 0


def blas_threads():
    """Of numpy and scipy; other libraries may bring a BLAS of their own."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return [pool["num_threads"] for pool in pools if re.search("numpy|scipy", pool["filepath"])]


def test_blas_has_one_thread_until_the_last_block_ends():
    before = blas_threads()
    with single_threaded_blas():
        with single_threaded_blas():
            pass
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before


def test_blas_has_one_thread_in_any_thread():
    """threadpoolctl heeds the first thread that limits BLAS, and ignores all others."""

    def in_another_thread():
        with single_threaded_blas():
            return blas_threads()

    before = blas_threads()
    with single_threaded_blas():
        pass
    with ThreadPoolExecutor(1) as other:
        assert set(other.submit(in_another_thread).result()) <= {1}
    assert blas_threads() == before


def test_the_thread_that_lifts_the_limit_of_blas_may_be_another_one():
    before, block = blas_threads(), single_threaded_blas()
    with ThreadPoolExecutor(1) as other:
        other.submit(block.__enter__).result()
        with single_threaded_blas():
            other.submit(block.__exit__, None, None, None).result()
            assert set(blas_threads()) <= {1}
    assert blas_threads() == before


LATE_SCIPY = """
import numpy
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.progress import COMPILING
from hashgrove.runtime.sharing import shared, sharing
from threadpoolctl import threadpool_info

with single_threaded_blas():
    pass
import scipy.linalg
with single_threaded_blas():
    print([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"])
"""


def test_blas_that_is_loaded_later_has_one_thread_too():
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", LATE_SCIPY], capture_output=True, text=True, env=environment, timeout=300
    )
    assert set(json.loads(done.stdout)) == {1}, done.stderr


def test_chunks_cover_everything_once():
    assert [k for a, b in chunks(1000, 7) for k in range(a, b)] == list(range(1000))


def test_number_of_threads():
    assert available_threads() == available_threads(-1) >= 1
    assert available_threads(np.int64(3)) == 3
    for bad in (0, 1.5, "2", True):
        with pytest.raises(ValueError, match="'n_jobs'"):
            available_threads(bad)


def test_cached_code_is_stale_when_a_source_that_it_imports_has_changed(tmp_path, monkeypatch):
    """numba alone would run the old code of a kernel that is called from an unchanged file."""
    (tmp_path / "twice.py").write_text(
        "from hashgrove.runtime.compiling import kernel\n\n@kernel\ndef twice(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    hits = []
    for digest in ("old", "old", "new", "new"):
        monkeypatch.setattr("hashgrove.runtime.compiling.source_digest", lambda path, digest=digest: digest)
        sys.modules.pop("twice", None)
        twice = import_module("twice").twice
        assert twice(21) == 42
        hits.append(sum(twice.stats.cache_hits.values()))
    assert hits == [0, 1, 0, 1]


def test_the_digest_covers_what_is_imported_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    for cached in (compiling.source_digest, compiling._imported, compiling._text):
        monkeypatch.setattr(compiling, cached.__name__, cached.__wrapped__)
    (tmp_path / "room").mkdir()
    sources = {"room/__init__": "", "room/a": "from hashgrove.room import (\n    b,\n)\n", "room/b": "", "c": ""}
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
    before = compiling.source_digest(tmp_path / "room/a.py")
    (tmp_path / "c.py").write_text("changed")
    assert compiling.source_digest(tmp_path / "room/a.py") == before
    for name in ("room/__init__", "room/b"):
        (tmp_path / f"{name}.py").write_text("changed")
        assert compiling.source_digest(tmp_path / "room/a.py") != before
        (tmp_path / f"{name}.py").write_text("")


@pytest.mark.skipif(os.name != "posix", reason="RLIMIT_FSIZE")
def test_a_full_disk_of_the_cache_is_no_reason_not_to_run(tmp_path):
    """A limit of the size of files stands for a full disk: no machine code fits into it."""
    (tmp_path / "fourfold.py").write_text(
        "import resource\nfrom hashgrove.runtime.compiling import kernel\n\n"
        "@kernel\ndef fourfold(x):\n    return 4 * x\n\n"
        "limits = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))\nprint(fourfold(10), fourfold(10.5))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n"  # coverage writes its file when Python exits
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "fourfold.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr, done.returncode) == ("40 42.0\n", "", 0)


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_person_at_a_terminal_is_told_once_why_there_is_a_wait(tmp_path):
    code = "import numpy as np; from hashgrove.codes import hamming\nhamming(*np.zeros((2, 3, 8), np.uint8))"
    said = {}
    for terminal in (True, False):
        leader, follower = os.openpty()
        cache = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / f"{terminal}")}
        error = follower if terminal else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", code], env=cache, stderr=error, check=False)
        os.write(follower, b"end\n")
        screen = b""
        while not screen.endswith(b"end\r\n"):  # what is there may come in parts
            screen += os.read(leader, 4096)
        said[terminal] = screen.decode(), done.stderr
        os.close(leader)
        os.close(follower)
    assert said == {True: (f"{COMPILING}\r\nend\r\n", None), False: ("end\r\n", b"")}


def test_a_damaged_cache_is_compiled_anew(tmp_path, monkeypatch):
    (tmp_path / "thrice.py").write_text(
        "from hashgrove.runtime.compiling import kernel\n\n@kernel\ndef thrice(x):\n    return 3 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(3):
        sys.modules.pop("thrice", None)
        assert import_module("thrice").thrice(14) == 42
        for file in (tmp_path / "__pycache__").glob("thrice*.nb?"):
            file.write_bytes(file.read_bytes()[:-20])


def test_an_error_in_a_kernel_that_a_kernel_calls_reaches_the_caller(tmp_path, monkeypatch):
    (tmp_path / "halves.py").write_text(
        "from hashgrove.runtime.compiling import kernel\n\n"
        "@kernel\ndef half(x):\n    if x % 2:\n        raise ValueError('odd')\n    return x // 2\n\n"
        "@kernel\ndef quarter(x):\n    return half(half(x))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):  # the second time from the cache
        sys.modules.pop("halves", None)
        halves = import_module("halves")
        assert halves.quarter(12) == 3
        with pytest.raises(ValueError, match="odd"):
            halves.quarter(10)
        assert halves.half(10) == 5


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def test_a_kernel_that_calls_itself_is_refused():
    with pytest.raises(TypeError, match="factorial calls itself"):
        compiling.kernel(factorial)


class TestInOrder:
    def test_results_are_in_the_order_of_the_pieces(self):
        def slow_first(number):
            time.sleep(0.02 if number == 0 else 0)
            return number

        assert list(in_order(slow_first, range(9), n_jobs=3)) == list(range(9))

    def test_pieces_are_taken_while_results_are_consumed(self):
        taken = []
        pieces = (taken.append(number) or number for number in range(100))
        results = in_order(str, pieces, n_jobs=2)
        assert next(results) == "0"
        assert len(taken) <= 4
        results.close()
        assert len(taken) <= 4

    def test_more_pieces_are_taken_while_the_first_one_waits(self):
        all_taken = threading.Event()

        def pieces():
            yield from range(20)
            all_taken.set()

        def piece(number):
            return number if all_taken.wait(timeout=60) else None

        assert list(in_order(piece, pieces(), n_jobs=2, ahead=50)) == list(range(20))

    def test_an_error_of_the_first_piece_ends_the_taking_of_others(self):
        def pieces():
            yield 0
            time.sleep(0.2)
            yield from range(1, 1_000)

        def piece(_):
            taken.append(_)
            raise ValueError("no")

        taken = []
        with pytest.raises(ValueError, match="no"):
            next(in_order(piece, pieces(), n_jobs=2, ahead=1_000))
        assert len(taken) < 10

    def test_several_threads_work_and_each_has_no_others(self):
        together = threading.Barrier(2, timeout=60)  # breaks unless two pieces run at the same time

        def piece(_):
            together.wait()
            return available_threads(8), run_tasks(threading.get_ident, [()] * 3, n_jobs=8)

        for n_threads, idents in in_order(piece, range(4), n_jobs=2):
            assert n_threads == 1
            assert len(set(idents)) == 1
        assert available_threads(8) == 8

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_an_error_is_raised_in_its_place_and_ends_the_work(self, n_jobs):
        done = []

        def piece(number):
            if number == 2:
                raise ValueError("number 2")
            return done.append(number) or number

        results = in_order(piece, range(50), n_jobs=n_jobs)
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="number 2"):
            next(results)
        assert len(done) < 10


class TestBeside:
    """Calls that run beside a block."""

    def test_calls_run_at_the_same_time_as_the_block_and_as_each_other(self):
        together = threading.Barrier(3, timeout=60)  # breaks unless all three are there
        with beside(n_jobs=2) as start:
            calls = [start(together.wait) for _ in range(2)]
            together.wait()
            assert all(call() is not None for call in calls)

    def test_with_one_thread_a_call_is_made_once_when_its_result_is_asked_for(self):
        made = []
        with beside(n_jobs=1) as start:
            call = start(lambda: made.append(threading.get_ident()) or "done")
            assert not made
            assert (call(), call()) == ("done", "done")
        assert made == [threading.get_ident()]

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_errors_reach_whoever_asks_for_the_result(self, n_jobs):
        with beside(n_jobs=n_jobs) as start:
            call = start(int, "no number")
            with pytest.raises(ValueError, match="no number"):
                call()

    def test_calls_begin_no_other_piece_after_the_block_has_failed(self):
        begun, failed = [], threading.Event()

        def piece(number):
            begun.append(number)
            if number == 2:
                failed.wait(60)

        def work():
            return list(in_order(piece, range(1_000), n_jobs=1))

        def fail_in_piece_two(start):
            call = start(work)
            while 2 not in begun:
                time.sleep(0.001)
            threading.Timer(0.2, failed.set).start()  # when the block has failed
            raise KeyboardInterrupt(call)

        with pytest.raises(KeyboardInterrupt) as caught, beside(n_jobs=2) as start:
            fail_in_piece_two(start)
        assert begun == [0, 1, 2]
        with pytest.raises(CancelledError):
            caught.value.args[0]()

    def test_a_result_that_two_calls_need_is_made_once(self):
        made, together = [], threading.Barrier(2, timeout=60)

        @shared
        def slow(rng):
            made.append(time.sleep(0.05))
            return rng.random()

        def ask(rng):
            together.wait()
            return slow(rng), rng.random()

        with sharing(), beside(n_jobs=2) as start:
            calls = [start(ask, np.random.default_rng(5)) for _ in range(2)]
            assert calls[0]() == calls[1](), "the generators are left in the same state, too"
        assert len(made) == 1

    def test_shared_results_are_shared_with_the_calls(self):
        made = []

        @shared
        def noted(x):
            made.append(x)
            return [x]

        with sharing(), beside(n_jobs=2) as start:
            assert start(noted, 1)() is noted(1)
        assert made == [1]


class TestSharing:
    """Marked functions are called once per block for the same arguments."""

    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    def noise(self, calls):
        @shared
        def noise(rows, rng, *, scale=1.0, n_jobs=None):
            calls.append((len(rows), scale))
            return rng.normal(size=len(rows)) * scale

        return noise

    def test_the_same_arguments_give_the_same_object_and_leave_the_generator_in_the_same_state(self, noise, calls):
        rows, first, second = np.zeros(4), np.random.default_rng(0), np.random.default_rng(0)
        with sharing():
            assert noise(rows, first, scale=2.0) is noise(rows, second, n_jobs=3, scale=2.0)
        assert calls == [(4, 2.0)]
        after = np.random.default_rng(0)
        after.normal(size=4)
        assert first.random() == second.random() == after.random()

    def test_a_default_and_the_same_value_by_name_are_the_same(self, noise, calls):
        rows = np.zeros(4)
        with sharing():
            first = noise(rows, np.random.default_rng(0))
            assert noise(rng=np.random.default_rng(0), rows=rows, scale=1.0) is first
        assert len(calls) == 1

    def test_other_rows_settings_or_states_are_other_calls(self, noise, calls):
        rows, rng = np.zeros(4), np.random.default_rng(0)
        with sharing():
            results = [noise(rows, rng), noise(rows, rng), noise(rows.copy(), np.random.default_rng(0))]
            results.append(noise(rows, np.random.default_rng(0), scale=3.0))
        assert len(calls) == 4
        assert not np.array_equal(results[0], results[1])

    def test_arguments_are_kept_so_that_no_new_array_can_be_taken_for_an_old_one(self, noise, calls):
        with sharing():
            for n in range(1, 50):
                noise(np.zeros(n), np.random.default_rng(0))  # without keeping it, the next array has its address
        assert [n for n, _ in calls] == list(range(1, 50))

    def test_nothing_is_shared_between_or_outside_blocks(self, noise, calls):
        rows = np.zeros(4)
        for _ in range(2):
            with sharing():
                noise(rows, np.random.default_rng(0))
            noise(rows, np.random.default_rng(0))
        assert len(calls) == 4

    def test_a_call_that_fails_is_made_again(self, calls):
        @shared
        def fail_once(rows):
            calls.append(rows)
            if len(calls) == 1:
                raise OSError("once")
            return "done"

        rows = np.zeros(1)
        with sharing():
            with pytest.raises(OSError, match="once"):
                fail_once(rows)
            assert fail_once(rows) == "done"


@pytest.mark.filterwarnings("error")
def test_rows_beyond_float32_have_marks_as_others():
    rows = np.array([[1.0, -2.0, 0.25], [0.0, 0.0, 0.0]])
    assert marks_of(rows * 1e300) == marks_of(rows)
