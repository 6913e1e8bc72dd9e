"""Experiments as data: tables are checked, and stored runs are found again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import experiments.tables as tables_module
from experiments import list_experiments, load_tables, report, run
from experiments.datasets import load_dataset
from experiments.measures import MEASURES, Measure
from experiments.methods import QUANTISER, REAL_VALUED, build
from experiments.quick import quick_spec
from experiments.records import Records
from experiments.results import Store
from experiments.runner import plan
from experiments.specs import Spec
from experiments.splits import split
from experiments.tests.command import call
from experiments.tests.small_tables import PAPER, SMALL, write
from experiments.worker import measure
from hashgrove.storage.formats import FileError

TABLES = load_tables()
CELLS = [cell for experiment in TABLES.experiments.values() for cell in experiment.cells]


class TestTables:
    @pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
    def test_every_cell_can_be_built(self, cell):
        for spec in (cell.spec, quick_spec(cell.spec)):
            hasher = build(spec.method, spec.bits, spec.params, seed=0, n_jobs=1)
            assert (hasher is None) == (spec.method in REAL_VALUED)
            assert hasher is None or hasher.get_params(deep=False)["n_bits"] == spec.bits
            assert json.loads(json.dumps(spec.to_dict())) == spec.to_dict()  # the record of a run equals its spec

    def test_every_table_of_the_paper_is_an_experiment(self):
        places = " ".join(of for _, _, of, _ in list_experiments())
        assert {int(number) for number in re.findall(r"Table (\d+)", places)} == set(range(1, 11))
        assert {int(number) for number in re.findall(r"Figure (\d+)", places)} == set(range(2, 9))  # 1 has photographs

    def test_what_the_paper_says_is_checked_by_its_own_measures(self):
        of_paper = [claim for claim in TABLES.claims if TABLES.experiments[claim.experiment].is_in_paper]
        assert len(of_paper) > 15
        assert not [claim.says for claim in of_paper if f"paper_{claim.measure}" in MEASURES]

    @pytest.mark.parametrize(
        ("method", "row", "settings"),
        [
            ("bre", "BREs", {"n_labelled": 2000}),
            ("splh", "SPLH", {"update": "author"}),
            ("mlh", "MLH", {"n_iter": 50, "n_pairs": 100_000, "rho": 64 // 8, "normalise": True}),
            ("ksh", "100 + 100 pairs", {"n_similar": 100, "n_dissimilar": 100}),
            ("fasthash-paper", "TSH", {"stagewise": False, "weighted": False, "loss_length": "final"}),
        ],
    )
    def test_rivals_have_the_settings_of_their_authors(self, method, row, settings):
        found = [cell.spec for cell in CELLS if cell.spec.method == method and row in cell.row]
        assert found
        for spec in found:
            assert settings.items() <= build(method, spec.bits, spec.params, seed=0, n_jobs=1).get_params(False).items()
            assert spec.n_train is None or spec.n_train >= settings.get("n_labelled", 0)

    def test_figures_of_the_paper_stand_beside_their_rows(self):
        cell = next(c for c in CELLS if c.name == "features / cifar10-gist / FastH-Full")
        assert cell.paper == {
            "n_train": 50000, "fit_seconds": 1681, "encode_seconds": 21,
            "precision": 0.649, "paper_map": 0.653, "paper_pr_area": 0.45,
        }  # fmt: skip
        assert sum(bool(cell.paper) for cell in CELLS) > 140

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            ("bits = 16, n_train = 200 },\n    { name", 'colour = "red" },\n    { name', "unknown key 'colour'"),
            ('method = "itq"', 'method = "nonsense"', "'method' must be one of"),
            ('load = "digits"', 'load = "nonsense"', "'load' must be one of"),
            ('is = ["DIGITS"]', "options = { features = 1 }", "an option of digits must be one of .*Got 'features'"),
            ('measures = ["map"]', 'measures = ["mapp"]', "a measure must be one of"),
            ('name = "ITQ"', 'name = "LSH"', "a name of its own"),
            ('method = "itq", bits = 16', 'method = "itq", params = { n_atoms = 1 }', "of itq must be one of"),
            ('method = "itq", bits = 16', 'method = "itq", bits = 0', "'bits' must be a positive integer"),
            ('method = "itq", bits = 16', 'method = "itq", database = "old"', "'database' must be one of"),
            ('bits = 16, n_train = 200 }]', 'database = "held-out" }]', "a held-out database needs"),
            ('load = "digits"', 'load = "digits-tags"', None),
            ('[["ITQ", "LSH"]]', '[["ITQ", "nobody"]]', "a row of 'first' must be one of .*Got 'nobody'"),
            ('rivals = ["LSH"]', 'rivals = ["nobody"]', "a row of 'first' must be one of .*Got 'nobody'"),
            ('[experiments.second]\ntitle = "Smaller"', "[experiments.second]", "the key 'title' is missing"),
            ("[datasets.digits]", "[datasets.digits", "must be TOML"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_run_is_refused_at_once(self, tmp_path, old, new, match):
        assert old in SMALL
        path = write(tmp_path, SMALL.replace(old, new, 1))
        if match is None:
            assert load_tables(path).experiments["first"].cells[0].spec.dataset == "digits-tags"
            return
        with pytest.raises(FileError, match=match):
            load_tables(path)

    def test_classes_only(self, tmp_path):
        text = SMALL.replace('load = "digits"', 'load = "digits-tags"').replace('"itq",', '"itq", unseen = 0.3,')
        with pytest.raises(FileError, match="'unseen' and 'classify' need a data set with classes"):
            load_tables(write(tmp_path, text))

    def test_a_figure_that_no_row_stands_beside_is_refused(self, tmp_path):
        path = write(tmp_path, SMALL)
        (tmp_path / "paper.toml").write_text(PAPER.replace('"ITQ"', '"ITQ-2"'))
        with pytest.raises(FileError, match=r"first / DIGITS / ITQ-2: no row of tables\.toml is beside it"):
            load_tables(path, paper=tmp_path / "paper.toml")
        (tmp_path / "paper.toml").write_text(PAPER.replace("map = 0.5", "mapp = 0.5"))
        with pytest.raises(FileError, match="unknown key 'mapp'"):
            load_tables(path, paper=tmp_path / "paper.toml")

    def test_more_training_rows_than_there_are_is_all_of_them(self, tmp_path):
        path = write(tmp_path, SMALL.replace("n_train = 200", "n_train = 5000"))
        assert load_tables(path).experiments["first"].cells[0].spec.n_train is None

    def test_files_are_in_the_package(self):
        folder = Path(tables_module.__file__).parent
        assert (folder / "tables.toml").is_file()
        assert (folder / "paper.toml").is_file()


class TestSplit:
    data = load_dataset("digits")

    def test_fewer_training_rows_leave_the_database(self):
        part = split(self.data, Spec("digits", "lsh", n_train=50, n_query=20), seed=0)
        assert (len(part.train), len(part.database), len(part.query)) == (50, 1200, 20)
        assert np.isin(part.train, self.data.train).all()

    def test_seen_and_held_out_are_the_two_halves(self):
        seen, other = (
            split(self.data, Spec("digits", "lsh", n_train=600, database=which), seed=3)
            for which in ("seen", "held-out")
        )
        np.testing.assert_array_equal(seen.train, other.train)
        np.testing.assert_array_equal(seen.database, seen.train)
        np.testing.assert_array_equal(np.union1d(other.database, other.train), self.data.train)
        assert not np.isin(other.database, other.train).any()

    def test_unseen_classes_are_searched_and_not_trained_on(self):
        part = split(self.data, Spec("digits", "lsh", unseen=0.3), seed=0)
        unseen = set(part.y_query)
        assert len(unseen) == 3
        assert unseen == set(part.y_database)
        assert set(part.y_train) == set(range(10)) - unseen

    def test_seed(self):
        first, same, other = (split(self.data, Spec("digits", "lsh", n_train=50), seed=s).train for s in (0, 0, 1))
        np.testing.assert_array_equal(first, same)
        assert not np.array_equal(first, other)


class TestRun:
    def test_cells_that_are_the_same_share_a_run(self, finished):
        folder, jobs = finished
        assert [(job.name, job.state) for job in jobs] == [
            ("first / digits / LSH (+1)", "done"),
            ("first / digits / ITQ", "done"),
        ]
        assert [path.name for path in folder.iterdir()] == ["first.jsonl"]
        assert len(list(Store(folder))) == 2

    def test_what_a_record_holds(self, finished):
        record = next(r for r in Store(finished[0]) if r["cell"]["method"] == "itq")
        assert record["status"] == "done"
        assert record["fingerprint"] == load_dataset("digits").fingerprint()
        assert record["data"] == {"n_train": 200, "n_database": 1200, "n_query": 597, "n_features": 64}
        assert set(record["measures"]) <= set(MEASURES)
        assert 0.3 < record["measures"]["map"] < 1
        assert record["measures"]["peak_memory_gb"] > 0.05
        assert record["threads"] == 1
        assert set(record["versions"]) == {"hashgrove", "numpy", "scipy", "scikit-learn", "numba"}
        curves = record["curves"]
        assert len(curves["depths"]) == len(curves["precision"])
        assert max(curves["depths"]) == 1200
        assert curves["recall"][-1] == 1.0

    def test_a_record_has_the_measures_of_the_paper_too(self, finished):
        for record in Store(finished[0]):
            measures = record["measures"]
            assert measures["paper_map"] == pytest.approx(measures["map"]), "all 1,200 items are among the first 10,000"
            assert measures["paper_pr_area"] != measures["pr_area"], "over ranks, not over radii"

    def test_a_run_that_lacks_a_measure_of_the_paper_is_repeated(self, finished, tmp_path):
        tables = load_tables(write(tmp_path, SMALL.replace('measures = ["map"]', 'measures = ["map", "paper_map"]')))
        for record in Store(finished[0]):
            del record["measures"]["paper_map"]
            Store(tmp_path / "r").write(record, "first")
        states = {job.spec.method: job.state for job in plan(["all"], store=Store(tmp_path / "r"), tables=tables)}
        assert states == {"lsh": "to do", "itq": "kept"}  # only the row with LSH shows the measure

    def test_a_slow_measure_is_only_computed_where_it_is_shown(self, finished, tmp_path):
        slow = {"map_by_margins", "precision_by_margins", "labelled_map"}
        text = SMALL.replace('measures = ["map"]', 'measures = ["map_by_margins"]')
        tables, store = load_tables(write(tmp_path, text)), Store(tmp_path / "r")
        for record in Store(finished[0]):
            assert not slow & record["measures"].keys()
            store.write(record, "first")
        states = {job.spec.method: job.state for job in plan(["all"], store=store, tables=tables)}
        assert states == {"lsh": "to do", "itq": "kept"}
        assert {job.state for job in plan(["first"], store=store, tables=tables)} == {"kept"}, "it is not shown there"
        run(["second"], tables=tables, results=tmp_path / "r", n_jobs=1)
        [record] = [record for record in store if record["cell"]["method"] == "lsh"]
        assert slow & record["measures"].keys() == {"map_by_margins"}
        assert {job.state for job in plan(["all"], store=store, tables=tables)} == {"kept"}
        del record["slow"], record["measures"]["map_by_margins"]  # an older run, which has all measures that apply
        store.write(record, "first")
        assert {job.state for job in plan(["all"], store=store, tables=tables)} == {"kept"}

    def test_a_run_computes_what_any_experiment_shows_of_it(self, tmp_path):
        text = SMALL.replace('measures = ["map"]', 'measures = ["map_by_margins"]')
        run(["first"], tables=load_tables(write(tmp_path, text)), results=tmp_path / "r", n_jobs=1)
        found = {record["cell"]["method"]: record for record in Store(tmp_path / "r")}
        assert {method: record["slow"] for method, record in found.items()} == {"lsh": ["map_by_margins"], "itq": []}

    def test_a_finished_run_is_never_repeated(self, finished, small):
        folder, _ = finished
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert {job.state for job in run(["all"], tables=small, results=folder)} == {"kept"}
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        assert {j.state for j in plan(["first"], store=Store(folder), tables=small, seed=1)} == {"to do"}

    def test_a_killed_suite_goes_on_where_it_stopped(self, small, tmp_path):
        tables, results = write(tmp_path, SMALL), tmp_path / "results"
        command = [sys.executable, "-m", "experiments", "run", "all", "--tables", str(tables)]
        suite = subprocess.Popen(
            [*command, "--results", str(results)], stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 1200
        while not list(results.glob("*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(suite.pid, signal.SIGKILL)  # the suite and the run that it waits for
        suite.wait()
        assert len(list(Store(results))) == 1
        states = [job.state for job in run(["all"], tables=small, results=results)]
        assert states == ["kept", "done"]
        assert not list(results.glob(".*"))

    def test_a_failure_is_kept_and_tried_again_only_when_asked(self, tmp_path):
        text = SMALL.replace('method = "itq", bits = 16', 'method = "itq", bits = 65')  # more bits than features
        tables = load_tables(write(tmp_path, text))
        jobs = run(["first"], tables=tables, results=tmp_path / "r", n_jobs=1)
        assert [job.state for job in jobs] == ["done", "failed"]
        assert re.search(r"^hashgrove.ParameterError: The 'n_bits' parameter must be at most", jobs[1].reason)
        [record] = [record for record in Store(tmp_path / "r") if record["status"] == "failed"]
        assert record["error"] == jobs[1].reason
        path = tmp_path / "r" / "first.jsonl"
        written = path.stat().st_mtime_ns
        again = run(["first"], tables=tables, results=tmp_path / "r", n_jobs=1)
        assert [job.state for job in again] == ["kept", "failed"]
        assert path.stat().st_mtime_ns == written
        run(["first"], tables=tables, results=tmp_path / "r", n_jobs=1, retry=True)
        assert path.stat().st_mtime_ns > written

    def test_time_limit(self, small, tmp_path):
        [job] = run(["second"], tables=small, results=tmp_path, timeout=0.01)
        assert (job.state, job.reason) == ("failed", "time limit of 0.01 s")

    def test_in_a_batch_a_failure_loses_one_run_only(self, tmp_path):
        text = SMALL.replace('method = "lsh", bits = 16', 'method = "itq", bits = 16, params = { n_iter = -1 }')
        jobs = run(["first"], tables=load_tables(write(tmp_path, text)), results=tmp_path / "r", quick=True)
        assert [job.state for job in jobs] == ["failed", "done"]

    def test_cells_without_data_are_said_not_to_run(self, tmp_path):
        jobs = run(["ksh"], results=tmp_path / "r", root=tmp_path)
        assert {(job.state, job.reason) for job in jobs} == {("not run", "its data are missing")}
        assert sum(len(job.cells) for job in jobs) == len(TABLES.experiments["ksh"].cells)

    def test_unknown_names(self, tmp_path):
        with pytest.raises(ValueError, match=r"must name some of .*Got 'tabel1' instead"):
            run(["tabel1"], results=tmp_path)

    def test_a_damaged_result_is_named(self, small, finished, tmp_path):
        lines = (finished[0] / "first.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "first.jsonl").write_text(lines[0] + lines[1][:50])
        with pytest.raises(FileError, match=r"first.jsonl, line 2: must be JSON. Remove the line"):
            run(["all"], tables=small, results=tmp_path)

    @pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is not installed")
    def test_quantiser(self, tmp_path):
        [job] = run(["later"], quick=True, only=QUANTISER, dataset="cifar10-gist", results=tmp_path)
        assert job.state == "done", job.reason
        [record] = Store(tmp_path)
        assert 0.2 < record["measures"]["map"] < 1


class TestQuick:
    def test_a_pca_cell_tags_and_a_classifier_run(self, tmp_path):
        wanted = {
            "pca / corel5k-effnet / PCA+SPLH", "classification / tinyimagenet100 / CCA+ITQ, 64 bits",
            "inference / cifar10-gist / Block-GC", "unseen / cifar10-gist / FastH",
        }  # fmt: skip
        experiments = {
            name: replace(e, cells=tuple(cell for cell in e.cells if cell.name in wanted))
            for name, e in TABLES.experiments.items()
        }
        jobs = run(["all"], tables=replace(TABLES, experiments=experiments), quick=True, results=tmp_path, n_jobs=1)
        assert {job.name: job.state for job in jobs} == dict.fromkeys(wanted, "done"), [job.reason for job in jobs]
        records = {record["cell"]["method"]: record for record in Store(tmp_path)}
        assert 0 < records["cca-itq"]["measures"]["svm_error"] < 0.9
        assert records["splh"]["cell"]["dataset"] == "digits-tags"
        assert records["splh"]["protocol"]["min_shared"] == 2

    def test_never_among_real_results(self, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for arguments in (
            ["run", "ksh", "--quick", "--results", "experiments/runs"],
            ["report", "--quick"],
        ):
            status, _, err = call(capsys, *arguments)
            assert status == 2
            assert "--quick needs" in err


class TestMeasures:
    def test_a_new_measure_is_one_entry(self, monkeypatch, tmp_path):
        bits_set = Measure("share of ones", lambda o: float(np.bitwise_count(o.codes).sum() / (8 * o.codes.size)))
        monkeypatch.setitem(MEASURES, "ones", bits_set)
        text = SMALL.replace('measures = ["map"]', 'measures = ["ones"]')
        tables = load_tables(write(tmp_path, text))
        cell = tables.experiments["second"].cells[0]
        found = measure(cell.spec, split(load_dataset("digits"), cell.spec, seed=0), seed=0, n_jobs=1)
        assert 0.2 < found["measures"]["ones"] < 0.8
        identity = {"cell": cell.spec.to_dict(), "seed": 0, "fingerprint": ""}
        about = {"status": "done", "finished": "", "threads": 1, "machine": "here"}
        Store(tmp_path / "r").write({**identity, **about, **found}, "second")
        pages, _ = report(results=tmp_path / "r", output=tmp_path / "page.md", tables=tables)
        assert f"| random | 200 | 16 | {found['measures']['ones']:.4f} |" in pages[-1].read_text()

    def test_a_measure_that_does_not_apply_is_left_out(self, finished):
        for record in Store(finished[0]):
            assert not {"svm_error", "objective", "inference_seconds"} & record["measures"].keys()


class TestCommands:
    def test_list(self, capsys):
        status, out, _ = call(capsys, "list")
        assert status == 0
        assert [line.split()[0] for line in out.splitlines()[1:]] == list(TABLES.experiments)

    def test_dry_run(self, capsys, finished, tmp_path):
        tables = write(tmp_path, SMALL)
        status, out, err = call(
            capsys, "run", "all", "--dry-run", "--tables", str(tables), "--results", str(finished[0])
        )
        assert status == 0
        assert re.search(r"first / digits / LSH +kept", out)
        assert err == "3 cells, 2 runs: 2 kept; to train and encode what is kept took 0.0 core hours\n"

    def test_claims_run_two_more_seeds_of_what_is_close(self, capsys, small, finished, tmp_path):
        for record in Store(finished[0]):
            record["measures"]["map"] = {"lsh": 0.5, "itq": 0.51}[record["cell"]["method"]]
            Store(tmp_path / "r").write(record, "first")
        arguments = "run", "all", "--claims", "--tables", str(write(tmp_path, SMALL)), "--results", str(tmp_path / "r")
        _, out, err = call(capsys, *arguments, "--dry-run")
        assert [line.split("  ")[0] for line in out.splitlines()[1:]] == 2 * [
            "first / digits / LSH",
            "first / digits / ITQ",
        ]
        assert "4 cells, 4 runs: 4 to do" in err
        status, out, _ = call(capsys, *arguments, "--n-jobs", "1")
        assert (status, out.split(";")[0]) == (0, "4 done")
        records = Records(Store(tmp_path / "r"))
        assert [len(records.figures(cell, "map")) for cell in small.experiments["first"].cells] == [3, 3]
        assert "not decided" not in records.verdicts(small)["first"][0].holds
        _, out, _ = call(capsys, *arguments)
        assert out.startswith("nothing"), "three seeds are enough"

    def test_failed_runs_give_exit_code_1(self, capsys, tmp_path):
        tables = write(tmp_path, SMALL)
        status, out, err = call(
            capsys, "run", "second", "--tables", str(tables), "--results", str(tmp_path / "r"), "--timeout", "0.01"
        )
        assert status == 1
        assert out.startswith("1 failed; results in ")
        assert "1 of 1  second / digits / random: time limit of 0.01 s  0 s left" in err
        assert err.endswith("Error: some runs failed; --retry repeats them\n")

    def test_report(self, capsys, finished, tmp_path):
        tables = write(tmp_path, SMALL)
        status, _, err = call(
            capsys, "report", "--tables", str(tables), "--results", str(finished[0]), "-o", str(tmp_path / "p.md")
        )
        assert status == 0
        assert err.endswith("p.md, 2 pages of experiments and 2 pictures\n")
