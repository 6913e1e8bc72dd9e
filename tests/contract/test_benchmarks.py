"""Every bench runs with tiny sizes and the installed peers, and the page is made from what it stores."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from importlib import import_module

import pytest

from paths import BENCHMARKS, REPOSITORY

sys.path.insert(0, str(BENCHMARKS))

import compare_commits
import contest
import environment
import speed_tables


def run_tiny(bench, folder, *arguments):
    module = import_module(f"bench_{bench}")
    return contest.main(bench, module.contests, ["--tiny", "--results", str(folder), *arguments])


def test_every_bench_is_in_the_suite():
    assert {path.stem.removeprefix("bench_") for path in BENCHMARKS.glob("bench_*.py")} == set(contest.BENCHES)


@pytest.mark.parametrize("bench", contest.BENCHES)
def test_tiny(bench, tmp_path, capsys):
    records = run_tiny(bench, tmp_path)
    assert records == json.loads((tmp_path / f"{bench}.json").read_text())
    for record in records.values():
        assert record["entries"]
        assert all(0 < entry["seconds"] < math.inf for entry in record["entries"])
        assert "Python" in record["machine"]
    said = capsys.readouterr().out
    for name in records:
        assert name in said
    for module, package in contest.PACKAGES.items():
        assert contest.installed(module) or package in said


def test_profiles_add_up(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["profiles.py", "--tiny"])
    import_module("profiles").main()
    profiles = json.loads(capsys.readouterr().out)
    for name, parts in profiles.items():
        if name.startswith("training"):
            times = [seconds for part, seconds in parts.items() if part not in ("all", "ns per addition")]
            assert sum(times) == pytest.approx(parts["all"], abs=0.01)
    assert any(name.startswith("encoding") for name in profiles)


@pytest.mark.parametrize("name", compare_commits.jobs(tiny=True, data=None))
def test_every_job_of_the_comparison_of_commits_gives_the_same_answer_again(name):
    job = compare_commits.jobs(tiny=True, data=None)[name]()
    assert len({compare_commits.checksum(job.parts(job.run())) for _ in range(2)}) == 1


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a clone: there are no commits to compare")
def test_two_commits_are_compared_and_the_worktree_is_removed(capsys):
    rows = compare_commits.main(["--tiny", "--base", "HEAD", "--only", "scan, 64 bits"])
    assert [row["name"] for row in rows] == ["scan, 64 bits, one query", "scan, 64 bits, batch of 64"]
    assert all(0 < row[side] < math.inf for row in rows for side in ("base", "now"))
    said = capsys.readouterr().out
    assert all(f"| {row['name']} |" in said for row in rows)
    assert "hashgrove-base-" not in compare_commits.git("worktree", "list")


def test_the_committed_page_is_made_from_the_committed_files(tmp_path, monkeypatch):
    docs = BENCHMARKS.parent / "docs" / "results"
    shutil.copytree(docs / "speed", tmp_path / "speed")
    monkeypatch.setattr(contest, "is_fresh", lambda record: True)  # the code may have changed since
    contest.report(tmp_path / "speed")
    committed = (docs / "speed.md").read_text().replace(" **The code has changed since.**", "")
    assert committed == (tmp_path / "speed.md").read_text(), "run: python benchmarks/contest.py --report"
    assert (tmp_path / "growth.svg").stat().st_size < 30_000


def test_a_stopped_suite_goes_on_and_the_page_has_everything(tmp_path, capsys):
    folder = tmp_path / "speed"
    first = run_tiny("evaluation", folder)
    capsys.readouterr()
    assert run_tiny("evaluation", folder, "--resume") == first
    assert "evaluation" not in capsys.readouterr().out
    run_tiny("search", folder, "--only", "128 bits")
    contest.report(folder)
    page = (tmp_path / "speed.md").read_text()
    results = {bench: json.loads((folder / f"{bench}.json").read_text()) for bench in ("search", "evaluation")}
    for bench, records in results.items():
        for name, record in records.items():
            assert f"### {name}\n" in page
            assert all(f"| {bench} | {name} | {target['what']} |" in page for target in record["targets"])
            assert all(f"| {entry['name']} | {entry['threads']} |" in page for entry in record["entries"])


def test_contests_that_are_gone_leave_the_results_and_none_begins_after_its_minutes(tmp_path):
    path = tmp_path / "evaluation.json"
    found = run_tiny("evaluation", tmp_path)
    path.write_text(json.dumps({"of old": {**found[next(iter(found))], "source": ""}}))
    assert run_tiny("evaluation", tmp_path, "--resume", "--minutes", "-1") == {}
    assert run_tiny("evaluation", tmp_path, "--resume").keys() == found.keys() == json.loads(path.read_text()).keys()


def test_the_bench_with_the_oldest_figures_of_other_code_is_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(contest, "DOCS", tmp_path)
    monkeypatch.setattr(contest, "is_fresh", lambda record: record.get("fresh", False))
    (tmp_path / "speed").mkdir()
    for bench, records in {
        "fit": [{"fresh": False, "date": "2026-02"}],
        "serve": [{"fresh": True, "date": "2026-01"}],
        "search": [{"fresh": False, "date": "2026-03"}, {"fresh": False, "date": "2026-01"}],
    }.items():
        (tmp_path / "speed" / f"{bench}.json").write_text(json.dumps(dict(enumerate(records))))
    assert sorted(["serve", "fit", "search", "growth"], key=contest._oldest) == ["growth", "search", "fit", "serve"]


def test_comments_and_docstrings_are_no_change_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setattr(environment.hashgrove, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "module.py").write_text('"""One."""\n\ndef f():\n    """Add."""\n    return 1 + 1\n')
    before = environment.source(["module.py"])
    (tmp_path / "module.py").write_text('"""Other."""\ndef f():\n    return 1 + 1  # two\n')
    assert environment.source(["module.py"]) == before
    (tmp_path / "module.py").write_text("def f():\n    return 1 + 2\n")
    assert environment.source(["module.py"]) != before


def test_the_best_turn_counts_and_who_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(contest, "SHORTEST_TURN", 0.0)
    turns = []
    contenders = [
        contest.Contender(name="ours", prepare=lambda: 1, run=lambda x: turns.append("ours") or x + 1),
        contest.Contender(name="half", run=lambda _: turns.append("half"), share=0.5),
        contest.Contender(name="absent", run=lambda _: turns.append("absent"), needs="no_such_module"),
    ]
    ours, half = contest.race(contenders, rounds=2)
    assert turns == ["ours", "half"] * 2
    assert ours.answer == 2
    assert (ours.rounds, half.rounds) == (2, 2)
    steady = contest.race([contest.Contender(name="steady", run=lambda _: time.sleep(0.01))], rounds=100)
    assert steady[0].rounds < 20, "a best time that is stable ends the turns"
    slow = contest.race([contest.Contender(name="slow", run=lambda _: None)], rounds=3, patience=-1.0)
    assert slow[0].rounds == 1


@pytest.mark.parametrize(
    ("target", "met", "verdict"),
    [
        (contest.Target("", 4, 5.0), True, "yes"),
        (contest.Target("", 4, 2.0), False, "**no**, by a factor of 2.00"),
        (contest.Target("", 0.5, 0.75, at_most=True), False, "**no**, by a factor of 1.50"),
        (contest.Target("", 4, None), None, "not measured"),
    ],
)
def test_verdicts(target, met, verdict):
    assert (target.met, target.verdict) == (met, verdict)


@pytest.mark.parametrize(("seconds", "text"), [(12.34, "12.3 s"), (0.00123, "1.23 ms"), (2e-9, "0.002 us")])
def test_durations(seconds, text):
    assert speed_tables.duration(seconds) == text


def test_rows_larger_than_memory_in_small(tmp_path, monkeypatch, capsys):
    bench = import_module("larger_than_memory")
    sizes = {"rows": 2000, "features": 16, "classes": 5, "bits": 4, "trees": 2, "folder": tmp_path}
    given = [f"--{name}={value}" for name, value in sizes.items()]
    for job in ("posterior", "memory", "warm"):
        bench.main([*given, "--run", job])
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert found["n_learned"] == (3 if job == "posterior" else 4)
        assert 0 < found["private_before"] <= found["private"]
    monkeypatch.setattr(bench, "measure", lambda name, options, limit: {"seconds": 1.0, "limit": limit})
    assert bench.main([*given, "--jobs", "memory", "larger", "--remove"])["larger"]["limit"] > 0
    assert not list(tmp_path.iterdir())
