"""Stored runs: what identifies a run, and files that processes change at the same time."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import dataclass, replace

import pytest

from experiments import results
from experiments.results import Store, run_key
from experiments.specs import Spec
from hashgrove.storage.formats import FileError

SPEC = Spec("digits", "fasthash", params={"loss": "ksh", "hash_function": {"kind": "trees", "max_depth": 6}})


def key_of(spec, *, fingerprint="ab", seed=0):
    return run_key(spec.to_dict(), fingerprint=fingerprint, seed=seed)


def record(number, **more):
    return {
        "cell": {"dataset": "digits", "method": "lsh"},
        "seed": number,
        "fingerprint": "ab",
        "status": "done",
        **more,
    }


class TestKey:
    def test_the_order_of_settings_does_not_matter(self):
        turned = {"hash_function": {"max_depth": 6, "kind": "trees"}, "loss": "ksh"}
        assert key_of(replace(SPEC, params=turned)) == key_of(SPEC)

    @pytest.mark.parametrize(
        "change", [{"bits": 32}, {"n_train": 5}, {"params": {"loss": "bre"}}, {"pca": 2}, {"database": "seen"}]
    )
    def test_tells_runs_apart(self, change):
        assert key_of(replace(SPEC, **change)) != key_of(SPEC)
        assert key_of(SPEC, fingerprint="ac") != key_of(SPEC)
        assert key_of(SPEC, seed=1) != key_of(SPEC)

    def test_settings_at_their_defaults_may_be_missing(self):
        stored = {"dataset": "digits", "method": "lsh", "bits": 64, "options": {}, "n_train": None, "classify": False}
        assert run_key(stored, fingerprint="ab", seed=0) == key_of(Spec("digits", "lsh"))

    def test_a_new_field_does_not_orphan_stored_runs(self, tmp_path, monkeypatch):
        Store(tmp_path).write(record(0), "first")

        @dataclass(frozen=True)
        class LongerSpec(Spec):
            warm_up: int = 0

        monkeypatch.setattr(results, "Spec", LongerSpec)
        monkeypatch.setattr(results, "KNOWN", {*results.KNOWN, "warm_up"})
        found = Store(tmp_path).read()
        assert key_of(LongerSpec("digits", "lsh")) in found
        assert key_of(LongerSpec("digits", "lsh", warm_up=3)) not in found

    def test_settings_of_another_version_match_no_cell(self):
        cell = {"dataset": "digits", "method": "lsh", "colour": "red"}
        assert run_key(cell, fingerprint="ab", seed=0) != key_of(Spec("digits", "lsh"))


class TestStore:
    def test_a_run_is_a_line_and_lines_are_sorted(self, tmp_path):
        for number in (2, 0, 1):
            Store(tmp_path).write(record(number), "first")
        lines = (tmp_path / "first.jsonl").read_text().splitlines()
        assert [json.loads(line)["seed"] for line in lines] == [0, 1, 2]

    def test_a_repeated_run_takes_the_place_of_the_earlier_one(self, tmp_path):
        for value in (1, 2):
            Store(tmp_path).write(record(0, value=value), "first")
        assert [found["value"] for found in Store(tmp_path)] == [2]

    def test_of_a_run_in_two_files_the_later_one_counts(self, tmp_path):
        Store(tmp_path).write(record(0, finished="2026-02-01"), "first")
        Store(tmp_path).write(record(0, finished="2026-01-01"), "second")
        assert [found["finished"] for found in Store(tmp_path)] == ["2026-02-01"]

    def test_no_folder_is_no_run(self, tmp_path):
        assert not list(Store(tmp_path / "none"))

    def test_processes_lose_no_line(self, tmp_path):
        with multiprocessing.get_context("spawn").Pool(4) as pool:
            pool.starmap(write_some, [(tmp_path, start) for start in range(0, 80, 20)])
        assert [found["seed"] for found in sorted(Store(tmp_path), key=lambda found: found["seed"])] == list(range(80))

    @pytest.mark.parametrize(("line", "match"), [("{", "must be JSON"), ('{"cell": {}}', "must be a stored run")])
    def test_a_line_that_is_no_run_is_named(self, tmp_path, line, match):
        Store(tmp_path).write(record(0), "first")
        with (tmp_path / "first.jsonl").open("a") as file:
            file.write(line + "\n")
        with pytest.raises(FileError, match=rf"first.jsonl, line 2: {match}.* Remove the line"):
            Store(tmp_path).read()


def write_some(folder, start):
    """Store twenty runs; called in several processes."""
    for number in range(start, start + 20):
        Store(folder).write(record(number), "first")
