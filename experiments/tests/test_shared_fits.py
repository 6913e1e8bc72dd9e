"""Runs that share a fit: what they measure is what they would measure by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from experiments import load_tables, run
from experiments.datasets import load_dataset
from experiments.fits import Fit, has_prefixes, shared_fit
from experiments.methods import FASTHASH, PAPER
from experiments.results import Store
from experiments.runner import core_seconds, plan
from experiments.specs import Spec
from experiments.splits import split
from experiments.worker import measure
from hashgrove.codes import unpack
from processes import unmeasured

TREES = {"kind": "trees", "n_trees": 3, "max_depth": 3}
NOT_RESULTS = {"fit_seconds", "encode_seconds", "inference_seconds", "learning_seconds", "peak_memory_gb"}
TABLES = """
[datasets.digits]
load = "digits"
title = "Digits"

[experiments.lengths]
title = "Lengths"
of = "not in the paper"
measures = ["map", "fit_seconds"]
on = { digits = "" }
rows = [
    { name = "12 bits", PAPER, bits = 12, database = "held-out", params = { TREES } },
    { name = "20 bits", PAPER, bits = 20, database = "seen", classify = true, params = { TREES } },
    { name = "another loss", PAPER, bits = 12, params = { loss = "bre", TREES } },
    { name = "ITQ, seen", method = "itq", bits = 12, n_train = 200, database = "seen" },
    { name = "ITQ, held out", method = "itq", bits = 12, n_train = 200, database = "held-out" },
]
"""
for short, long in {
    "PAPER": 'method = "fasthash-paper", n_train = 200',
    "TREES": 'hash_function = { kind = "trees", n_trees = 3, max_depth = 3 }',
}.items():
    TABLES = TABLES.replace(short, long)


def paper(bits, *, dataset="digits", **settings):
    params = {"loss": "ksh", "hash_function": TREES}
    return Spec(dataset, PAPER, bits=bits, n_train=150, n_query=50, params=params | settings)


def fit_of(spec):
    data = split(load_dataset(spec.dataset), spec, seed=3)
    return Fit(spec, data, seed=3, n_jobs=1), data


@pytest.mark.parametrize(
    ("lengths", "settings"),
    [
        ((7, 12, 20), {}),
        ((7, 12, 20), {"loss": "hinge", "stagewise": False, "weighted": False}),
        ((8, 12), {"dataset": "digits-tags"}),
        ((12, 260), {}),  # distances above 255 have another type
    ],
    ids=str,
)
def test_the_first_bits_of_a_long_fit_are_a_short_fit(lengths, settings):
    long, data = fit_of(paper(lengths[-1], **settings))
    for bits in lengths:
        short, _ = fit_of(paper(bits, **settings))
        assert has_prefixes(paper(bits, **settings))
        for rows in (data.database, data.query):
            found, expected = (fit.codes(data, rows, bits)[0] for fit in (long, short))
            np.testing.assert_array_equal(found, expected)
            assert unpack(found, n_bits=bits).shape == (len(rows), bits)
        np.testing.assert_array_equal(long.margins(data, data.query, bits), short.margins(data, data.query, bits))
        assert [bit.objective for bit in long.history(bits)] == [bit.objective for bit in short.history(bits)]
        words = [fit.codewords(bits, data.y_train) for fit in (long, short)]
        if data.has_tags:
            assert words == [None, None]
        else:
            np.testing.assert_array_equal(words[0].codes, words[1].codes)
    seconds = [long.seconds(bits) for bits in range(1, long.bits + 1)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


@pytest.mark.parametrize(
    "spec",
    [
        paper(8, loss_length="final"),
        paper(8, generic_bits=2),
        paper(8, hash_function="linear-svm"),
        paper(8, hash_function={"kind": "kernel-svm", "n_support": 10}),
        paper(8, hash_function={"kind": "trees", "start": "linear"}),
        Spec("digits", FASTHASH, bits=8),
        Spec("digits", "itq", bits=8),
    ],
    ids=lambda spec: f"{spec.method} {spec.params}",
)
def test_other_methods_have_a_fit_for_each_length(spec):
    assert not has_prefixes(spec)
    assert shared_fit(spec) != shared_fit(replace(spec, bits=16))
    assert shared_fit(spec) == shared_fit(replace(spec, database="seen", classify=True))


@pytest.mark.parametrize(
    "change",
    [{"n_train": 100}, {"n_query": 10}, {"unseen": 0.3}, {"pca": 5}, {"params": {}}, {"dataset": "digits-tags"}],
)
def test_what_decides_the_fit_is_not_shared(change):
    assert shared_fit(paper(8)) != shared_fit(replace(paper(8), **change))


def test_vectors_and_quantisers_share_nothing():
    spec = Spec("digits", "pq", n_train=100)
    assert shared_fit(spec) != shared_fit(replace(spec, database="seen"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "t.toml"
    path.write_text(TABLES)
    return load_tables(path)


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def records(request, tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    jobs = run(["all"], tables=tables, results=folder, n_workers=request.param)
    assert {job.state for job in jobs} == {"done"}
    assert not [path for path in folder.iterdir() if path.suffix != ".jsonl"]
    found = Store(folder).read()
    return {job.cells[0].row: found[job.key] for job in jobs}


class TestRun:
    def test_records_are_those_of_separate_runs(self, records):
        for record in records.values():
            spec = Spec(**record["cell"])
            alone = measure(spec, split(load_dataset("digits"), spec, seed=0), seed=0, n_jobs=1, slow=record["slow"])
            assert record["measures"].keys() == alone["measures"].keys()
            for name in record["measures"].keys() - NOT_RESULTS:
                assert record["measures"][name] == alone["measures"][name], name
            assert record["curves"] == alone["curves"]
            assert record["data"] == alone["data"]

    def test_only_what_is_measured_on_the_first_bits_says_so(self, records):
        assert {row: record.get("fit_of") for row, record in records.items()} == {
            "12 bits": 20, "20 bits": None, "another loss": None, "ITQ, seen": None, "ITQ, held out": None,
        }  # fmt: skip

    def test_runs_of_one_fit_have_its_time(self, records):
        seconds = {row: record["measures"]["fit_seconds"] for row, record in records.items()}
        assert seconds["ITQ, seen"] == seconds["ITQ, held out"]
        assert 0 < seconds["12 bits"] < seconds["20 bits"]


def test_a_shared_fit_counts_once_in_the_time_of_all_runs(tables, tmp_path):
    store, seconds = (
        Store(tmp_path),
        {"12 bits": 3, "20 bits": 5, "another loss": 7, "ITQ, seen": 11, "ITQ, held out": 9},
    )
    for job in plan(["all"], store=store, tables=tables):
        measures = {"map": 0.5, "fit_seconds": seconds[job.cells[0].row] - 1.0, "encode_seconds": 1.0}
        record = {"cell": job.spec.to_dict(), "seed": 0, "fingerprint": job.fingerprint, "status": "done"}
        store.write(record | {"measures": measures, "threads": 2}, job.home)
    assert core_seconds(plan(["all"], store=store, tables=tables), store=store) == 2 * (5 + 7 + 11)
    assert core_seconds(plan(["all"], store=Store(tmp_path / "none"), tables=tables), store=store) == 0


def test_workers_share_the_cores(tables, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.runner.available_threads", lambda n_jobs: 6)
    run(["all"], tables=tables, results=tmp_path, only="itq", n_workers=4)
    assert {record["threads"] for record in Store(tmp_path)} == {1}


def test_a_failing_fit_does_not_take_shorter_ones_with_it(tmp_path):
    (tmp_path / "t.toml").write_text(TABLES.replace("bits = 20", "bits = 65536"))  # more than a code may have
    jobs = run(["all"], tables=load_tables(tmp_path / "t.toml"), results=tmp_path / "r", only="fasthash-paper")
    assert [(job.cells[0].row, job.state) for job in jobs] == [
        ("12 bits", "done"), ("20 bits", "failed"), ("another loss", "done"),
    ]  # fmt: skip


def test_ctrl_c_stops_all_workers_and_leaves_nothing_half_written(tmp_path):
    (tmp_path / "t.toml").write_text(TABLES.replace("bits = 20", "bits = 20000").replace("bits = 12", "bits = 19999"))
    results = tmp_path / "results"
    command = [sys.executable, "-m", "experiments", "run", "all", "--workers", "2", "--results", str(results)]
    command += ["--tables", str(tmp_path / "t.toml")]
    suite = subprocess.Popen(command, stderr=subprocess.PIPE, env=unmeasured())
    deadline = time.monotonic() + 600
    while len(children := _children(suite.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    suite.send_signal(signal.SIGINT)
    suite.communicate(timeout=120)
    assert suite.returncode == 130
    assert not any(os.path.exists(f"/proc/{child}") for child in children)
    assert not results.exists() or not list(results.iterdir())


def _children(pid):
    """The processes that a process has started."""
    found = []
    for folder in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{folder}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        found += [int(folder)] if parent == pid else []
    return found
