"""The pages of the experiments show what was run, beside the paper's figures, and judge its claims."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from experiments import load_tables, plots, report
from experiments.claims import judge, undecided_cells
from experiments.records import Records
from experiments.results import Store
from experiments.specs import Claim
from experiments.tests.small_tables import PAPER, SMALL, write
from paths import DOCS, REPOSITORY

TABLES = load_tables()
CELLS = [cell for experiment in TABLES.experiments.values() for cell in experiment.cells]
RUNS = REPOSITORY / "experiments" / "runs"
TWO_MORE = '{ name = "ITQ", method = "itq", bits = 16, n_train = 200 }, { name = "random"'
OUR_CLAIM = """
[[claims]]
says = "Rotations help"
experiment = "second"
measure = "map"
pairs = [["ITQ", "random"]]
"""


class TestReport:
    def pages(self, small, folder, tmp_path, **settings):
        pages, pictures = report(results=folder, output=tmp_path / "page.md", tables=small, **settings)
        assert [path.relative_to(tmp_path).as_posix() for path in pages] == [
            "page.md",
            "page/first.md",
            "page/second.md",
        ]
        return [path.read_text() for path in pages], pictures

    def test_ours_and_the_papers_and_the_difference(self, small, finished, tmp_path):
        (_, first, second), _ = self.pages(small, finished[0], tmp_path)
        ours = {r["cell"]["method"]: r["measures"]["map"] for r in Store(finished[0])}
        assert f"| ITQ | 200 | 16 | {ours['itq']:.4f} (0.5, {ours['itq'] - 0.5:+.3f}) |" in first
        assert f"| LSH | 200 | 16 | {ours['lsh']:.4f} (0.25) |" in first  # the paper had another number of points
        assert f"| random | 200 | 16 | {ours['lsh']:.4f} |" in second
        by = f"{ours['itq'] - ours['lsh']:+.4f} (digits: ITQ against LSH)"
        assert f"| ITQ beats LSH | MAP | yes | {by} |  |" in first

    def test_figures_of_the_paper_that_are_beside_no_row_are_named_with_the_reason(self, finished, tmp_path):
        more = '[first.LETTERS]\n"ITQ" = { map = 0.5 }\n[first.SIGNS]\n"ITQ" = { map = 0.5 }\n'
        unused = (
            '[[unused]]\nwhy = "Not free."\n[unused.experiments]\nLETTERS = ["first", "second"]\nSIGNS = ["first"]\n'
        )
        (tmp_path / "paper.toml").write_text(PAPER + more + unused)
        tables = load_tables(write(tmp_path, SMALL), paper=tmp_path / "paper.toml")
        (front, *_), _ = self.pages(tables, finished[0], tmp_path)
        assert "- Not free. Left out are:\n  - LETTERS: first, second\n  - SIGNS: first\n" in front

    def test_a_measure_that_an_older_run_lacks_is_not_run(self, finished, tmp_path):
        text = SMALL.replace('measures = ["map", "fit_seconds"]', 'measures = ["map", "paper_map"]')
        (tmp_path / "paper.toml").write_text(PAPER.replace("map =", "paper_map ="))
        tables = load_tables(write(tmp_path, text), paper=tmp_path / "paper.toml")
        ours = {r["cell"]["method"]: r["measures"]["map"] for r in Store(finished[0])}
        (_, now, _), _ = self.pages(tables, finished[0], tmp_path)
        assert f"| ITQ | 200 | 16 | {ours['itq']:.4f} | {ours['itq']:.4f} (0.5, {ours['itq'] - 0.5:+.3f}) |" in now
        for record in Store(finished[0]):
            del record["measures"]["paper_map"]
            Store(tmp_path / "r").write(record, "first")
        (_, before, _), _ = self.pages(tables, tmp_path / "r", tmp_path)
        assert f"| ITQ | 200 | 16 | {ours['itq']:.4f} | not run (0.5) |" in before

    def test_the_front_page_has_ours_the_best_rival_and_the_paper(self, small, finished, tmp_path):
        (front, first, _), _ = self.pages(small, finished[0], tmp_path)
        ours = {r["cell"]["method"]: r["measures"]["map"] for r in Store(finished[0])}
        assert (
            f"| [Random bits](page/first.md) | Digits | MAP | **{ours['itq']:.4f}** (ITQ, 200 points) "
            f"| {ours['lsh']:.4f} (LSH, 200 points) | 0.5 |"
        ) in front
        assert "| [Small](page/first.md) | Table 0 | 2 of 2 | 1 of 1 |" in front
        assert "[All results](../page.md)" in first

    def test_the_front_page_begins_with_the_claims(self, finished, tmp_path):
        text = SMALL.replace('of = "Table 1"', 'of = "not in the paper"').replace('{ name = "random"', TWO_MORE)
        text += OUR_CLAIM
        (front, *_), _ = self.pages(load_tables(write(tmp_path, text)), finished[0], tmp_path)
        headings = re.findall("^## (.*)", front, flags=re.MULTILINE)
        assert headings[:4] == ["What the paper says", "What we say", "Ours and the best rival", "Experiments"]
        theirs, ours = (front.split(f"## {title}")[1] for title in headings[:2])
        assert theirs.index("| [ITQ beats LSH](page/first.md) | MAP | yes | +0.") < theirs.index("## What we say")
        assert "| [Rotations help](page/second.md) | MAP | yes | +0." in ours

    def test_pictures_are_small_valid_and_always_the_same(self, small, finished, tmp_path):
        _, pictures = self.pages(small, finished[0], tmp_path)
        assert [path.name for path in pictures] == ["overview.svg", "first-digits.svg"]
        texts = [path.read_text() for path in pictures]
        for text in texts:
            assert len(text) < 15_000
            values = [value for element in ElementTree.fromstring(text).iter() for value in element.attrib.values()]
            assert not [value for value in values if re.search(r"\d\.\d\d", value)]  # one decimal is enough
        assert "ITQ (0." in texts[1]
        assert [path.read_text() for path in self.pages(small, finished[0], tmp_path)[1]] == texts

    @pytest.mark.parametrize(
        ("same", "figures", "legend"),
        [
            ("DIGITS", "precision = 0.5", ">the paper<"),
            ("DIGITS", "paper_map = 0.5", ">the paper<"),
            ("OTHER", "fit_seconds = 9, paper_map = 0.5", ">the paper, on DIGITS<"),
            ("DIGITS", "pr_area = 0.5", None),
        ],
    )
    def test_the_papers_points_are_beside_ours(self, finished, tmp_path, same, figures, legend):
        text = SMALL.replace('measures = ["map", "fit_seconds"]', 'measures = ["map", "paper_map"]')
        (tmp_path / "paper.toml").write_text(f'[first.DIGITS]\n"ITQ" = {{ {figures} }}\n')
        path = write(tmp_path, text.replace('is = ["DIGITS"]', f'is = ["{same}"]'))
        _, pictures = self.pages(load_tables(path, paper=tmp_path / "paper.toml"), finished[0], tmp_path)
        picture = next(path for path in pictures if path.name == "first-digits.svg").read_text()
        assert re.findall(">the paper[^']*?<", picture) == ([] if legend is None else [legend])
        assert ">the paper's MAP<" in picture

    def test_what_was_not_run_leaves_the_table_and_is_named(self, small, finished, tmp_path):
        [lsh] = [record for record in Store(finished[0]) if record["cell"]["method"] == "lsh"]
        Store(tmp_path / "r").write(lsh, "first")
        (_, first, _), _ = self.pages(small, tmp_path / "r", tmp_path)
        assert "| ITQ |" not in first
        assert "\nNot run: ITQ.\n" in first
        assert "Claims whose rows were not run: ITQ beats LSH." in first

    def test_without_runs_every_page_says_so(self, tmp_path):
        pages, pictures = report(results=tmp_path / "none", output=tmp_path / "page.md")
        assert [path.stem for path in pages[1:]] == list(TABLES.experiments)
        assert pictures == []
        for path, experiment in zip(pages[1:], TABLES.experiments.values(), strict=True):
            assert path.read_text().count("Not run: ") == len(experiment.by_data())

    def test_several_seeds_are_averaged(self, small, finished, tmp_path):
        cell = small.experiments["first"].cells[1]
        [real] = Records(Store(finished[0])).done(cell)
        for seed, value in ((0, 0.5), (1, 0.6)):
            record = json.loads(json.dumps(real)) | {"seed": seed}
            record["measures"]["map"] = value
            Store(tmp_path / "r").write(record, "first")
        (_, first, _), _ = self.pages(small, tmp_path / "r", tmp_path)
        assert "0.5500 ± 0.0707, 2 seeds (0.5, +0.050)" in first

    def test_failures_are_shown(self, small, tmp_path):
        cell = small.experiments["first"].cells[1]
        identity = {"cell": cell.spec.to_dict(), "seed": 0, "fingerprint": ""}
        Store(tmp_path / "r").write({**identity, "status": "failed", "error": "time limit of 9 s"}, "first")
        (_, first, _), _ = self.pages(small, tmp_path / "r", tmp_path)
        assert "Failed (time limit of 9 s): Digits, ITQ." in first


class TestCommittedResults:
    """The stored runs belong to cells, and the pages in docs/ are made from them."""

    def test_every_run_is_that_of_a_cell_and_in_the_file_of_the_first_experiment_that_shows_it(self):
        homes = {}
        for cell in CELLS:
            homes.setdefault(json.dumps(cell.spec.to_dict(), sort_keys=True), cell.experiment)
        n_runs = 0
        for path in sorted(RUNS.iterdir()):
            lines = path.read_text().splitlines()
            for record in map(json.loads, lines):
                assert homes[json.dumps(record["cell"], sort_keys=True)] == path.stem
            n_runs += len(lines)
        assert n_runs == len(list(Store(RUNS))) > 500

    def test_files_are_as_the_store_writes_them(self, tmp_path):
        path = RUNS / "settings.jsonl"
        for record in map(json.loads, reversed(path.read_text().splitlines())):
            Store(tmp_path).write(record, "settings")
        assert (tmp_path / "settings.jsonl").read_bytes() == path.read_bytes()

    def test_the_pages_are_those_that_the_report_writes(self, tmp_path, monkeypatch):
        monkeypatch.setattr(plots, "save_svg", lambda figure, path: None)  # slow, and tested above
        (tmp_path / "results").mkdir()
        shutil.copy(DOCS / "results" / "speed.md", tmp_path / "results")  # the front page links to it
        pages, pictures = report(results=RUNS, output=tmp_path / "results.md")
        for path in pages:
            committed = DOCS / path.relative_to(tmp_path)
            text = committed.read_text()
            assert text == path.read_text(), "run: python -m experiments report"
            assert all((committed.parent / link).exists() for link in re.findall(r"\]\(([^)]+)\)", text))
        committed = {path.name for path in (DOCS / "results").glob("*.svg")} - {"growth.svg"}
        assert committed == {path.name for path in pictures}


class TestClaims:
    """Verdicts on figures made up for them."""

    def judge(self, small, figures, **settings):
        claim = Claim(**{"says": "", "experiment": "first", "measure": "map", "pairs": (("ITQ", "LSH"),)} | settings)
        by_seed = {row: value if isinstance(value, dict) else {0: value} for row, value in figures.items()}
        return judge(claim, small.experiments["first"], lambda cell, measure: by_seed.get(cell.row, {}))

    def test_holds_and_by_how_much(self, small):
        verdict = self.judge(small, {"ITQ": 0.5, "LSH": 0.25})
        assert (verdict.holds, verdict.by) == ("yes", "+0.2500 (digits: ITQ against LSH)")

    def test_does_not_hold(self, small):
        assert self.judge(small, {"ITQ": 0.5, "LSH": 0.6}).exceptions == "-0.1000 (digits: ITQ against LSH)"
        assert self.judge(small, {"ITQ": 0.48, "LSH": 0.5}, slack=0.05).holds == "yes"
        assert self.judge(small, {"ITQ": 0.44, "LSH": 0.5}, slack=0.03).holds == "**no**"

    def test_lower_is_better_for_errors_and_times(self, small):
        assert self.judge(small, {"ITQ": 0.1, "LSH": 0.2}, measure="knn_error").by.startswith("+0.1000")
        fast = self.judge(small, {"ITQ": 2.0, "LSH": 9.0}, measure="fit_seconds")
        assert (fast.holds, fast.by) == ("yes", "4.5 times as fast (digits: ITQ against LSH)")
        assert self.judge(small, {"ITQ": 9.0, "LSH": 2.0}, measure="fit_seconds").holds == "**no**"

    @pytest.mark.parametrize(("seconds", "holds"), [((2, 3), "yes"), ((9, 8), "**no**"), ((1, 8), "even")])
    def test_times_are_even_where_seeds_disagree(self, small, seconds, holds):
        figures = {"ITQ": dict(enumerate(seconds)), "LSH": {0: 4.0, 1: 4.0}}
        assert self.judge(small, figures, measure="fit_seconds").holds == holds

    @pytest.mark.parametrize(
        ("gains", "holds"),
        [
            ([0.01], "not decided (one seed)"),
            ([-0.01], "not decided (one seed)"),
            ([0.021], "yes"),
            ([-0.021], "**no**"),
            ([0.01, 0.01], "not decided (2 seeds)"),
            ([0.01, 0.05], "yes"),
            ([0.01, 0.005, 0.004], "yes"),
            ([-0.01, -0.005, -0.004], "**no**"),
            ([0.01, -0.005, 0.004], "even"),
            ([0.005, -0.02, 0.004], "even"),
            ([0.01, -0.005, 0.1], "even"),
            ([-0.01, 0.1], "not decided (2 seeds)"),
        ],
    )
    def test_a_small_difference_needs_three_seeds(self, small, gains, holds):
        verdict = self.judge(
            small, {"ITQ": {k: 0.5 + gain for k, gain in enumerate(gains)}, "LSH": dict.fromkeys(range(9), 0.5)}
        )
        assert verdict.holds == holds
        assert undecided_cells([verdict]) == (
            {"first / digits / ITQ", "first / digits / LSH"} if "not decided" in holds else set()
        )

    def test_mean_and_spread_of_several_seeds(self, small):
        verdict = self.judge(
            small, {"ITQ": {0: 0.53, 1: 0.6, 2: 0.58, 7: 0.9}, "LSH": {0: 0.5, 1: 0.5, 2: 0.6, 3: 0.1}}
        )
        assert verdict.by == "+0.0367, -0.0200 to +0.1000 with 3 seeds (digits: ITQ against LSH)"
        apart = self.judge(small, {"ITQ": {1: 0.5}, "LSH": {0: 0.2}})
        assert apart.holds == "not run", "seeds are only compared with themselves"

    def test_what_is_not_decided_is_said(self, small):
        verdict = self.judge(small, {"ITQ": 0.5, "LSH": 0.51}, pairs=(("ITQ", "LSH"), ("LSH", "ITQ")))
        assert verdict.holds == "not decided (one seed)"
        assert verdict.exceptions.startswith("not decided: -0.0100 (digits: ITQ against LSH); not decided: +0.0100")
        assert not verdict.failed

    def test_what_is_even_is_said(self, small):
        figures = {"ITQ": {0: 0.51, 1: 0.495, 2: 0.504}, "LSH": dict.fromkeys(range(3), 0.5)}
        verdict = self.judge(small, figures)
        assert verdict.exceptions == "even: +0.0030, -0.0050 to +0.0100 with 3 seeds (digits: ITQ against LSH)"
        assert not verdict.failed
        clear = self.judge(small, {"ITQ": 0.6, "LSH": 0.5})
        both = replace(clear, comparisons=[*clear.comparisons, *verdict.comparisons])
        assert both.holds == "yes (1 even)"

    def test_missing(self, small):
        assert self.judge(small, {"ITQ": 0.5}).holds == "not run"
        both = self.judge(small, {"ITQ": 0.5, "LSH": 0.2}, pairs=(("ITQ", "LSH"), ("LSH", "ITQ")))
        assert both.holds == "**in 1 of 2**"
