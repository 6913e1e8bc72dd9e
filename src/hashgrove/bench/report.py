"""The page of results: claims, then each table with our figures beside the paper's, made from the files of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hashgrove.bench.claims import judge
from hashgrove.bench.measures import MEASURES
from hashgrove.bench.quick import quick_spec
from hashgrove.bench.results import Store
from hashgrove.bench.runner import why_not
from hashgrove.bench.tables import Cell, Experiment, Spec, Tables, load_tables
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import PathLike

__all__ = ["Records", "report"]

PARTS = ("claims", "bench")  # each between its two marks in the page
SAME_N_TRAIN = 0.02  # two training sets of sizes this near are the same for a comparison


@dataclass
class Records:
    """The results in a folder, by what was run."""

    store: Store
    quick: bool = False
    root: PathLike | None = None
    by_cell: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.store:
            self.by_cell.setdefault(_name(record["cell"]), []).append(record)

    def done(self, cell: Cell) -> list[dict[str, Any]]:
        """Finished runs of a cell, one a seed: the latest where data have changed in between."""
        found = [record for record in self._all(cell) if record["status"] == "done"]
        latest = {record["seed"]: record for record in sorted(found, key=lambda record: record["finished"])}
        return [latest[seed] for seed in sorted(latest)]

    def figures(self, cell: Cell, measure: str) -> list[float]:
        """The measure in each of these runs."""
        values = (record["measures"].get(measure) for record in self.done(cell))
        return [value for value in values if value is not None]

    def figure(self, cell: Cell, measure: str) -> float | None:
        """Their mean; None if there is none."""
        values = self.figures(cell, measure)
        return mean(values) if values else None

    def absence(self, cell: Cell) -> str:
        """Why there is no result."""
        failed = [record for record in self._all(cell) if record["status"] == "failed"]
        if failed:
            return f"failed: {failed[-1]['error']}"
        reason = why_not(self._spec(cell), self.root)
        return f"not run: {reason}" if reason else "not run"

    def _spec(self, cell: Cell) -> Spec:
        return quick_spec(cell.spec) if self.quick else cell.spec

    def _all(self, cell: Cell) -> list[dict[str, Any]]:
        return self.by_cell.get(_name(self._spec(cell).to_dict()), [])


def _name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def report(
    *,
    results: PathLike,
    output: PathLike,
    tables: Tables | None = None,
    root: PathLike | None = None,
    quick: bool = False,
) -> list[Path]:
    """Write the parts of a page between its marks ``claims`` and ``bench``, and pictures; the rest of the page stays.

    Parameters
    ----------
    results : path
        Folder of results.
    output : path
        The page; it is made if it is not there. Pictures go to the folder ``results`` beside it.
    tables : Tables, optional
        As in `run`.
    root : path, optional
        Folder of data sets: cells without a result say whether their data are there.
    quick : bool
        Whether the results are those of quick runs.

    Returns
    -------
    list of Path
        The pictures; none without matplotlib (extra ``plot``).
    """
    tables = tables or load_tables()
    page, records = Path(output), Records(Store(Path(results)), quick=quick, root=root)
    try:
        from hashgrove.bench.plots import draw_all

        pictures = draw_all(tables, records, page.parent / "results")
    except ImportError:
        pictures = {}
    links = {what: path.relative_to(page.parent).as_posix() for what, path in pictures.items()}
    text = page.read_text(encoding="utf-8") if page.exists() else "# Results\n"
    for part, lines in zip(PARTS, (_claims(tables, records), _lines(tables, records, links)), strict=True):
        text = _put(text, part, "\n".join(lines))
    with atomic_write(page) as file:
        file.write(text.encode())
    return list(pictures.values())


def _put(page: str, part: str, lines: str) -> str:
    """The page with ``lines`` between the marks of ``part``; a page without them gets them at its end."""
    start, end = f"<!-- {part} -->", f"<!-- /{part} -->"
    if start not in page or end not in page:
        page = f"{page.rstrip()}\n\n{start}\n{end}\n"
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{lines}\n{end}{rest.partition(end)[2]}"


def _lines(tables: Tables, records: Records, links: Mapping[tuple[str, str], str]) -> list[str]:
    cells = [cell for experiment in tables.experiments.values() for cell in experiment.cells]
    done = [record for cell in cells for record in records.done(cell)]
    n_done = sum(bool(records.done(cell)) for cell in cells)
    lines = ["## The paper's experiments", ""]
    if records.quick:
        lines += ["**Quick runs on handwritten digits: they show that everything runs, and say nothing else.**", ""]
    lines += [
        f"Made by `hashgrove bench report` from {n_done} of {len(cells)} cells, which `hashgrove bench run` runs. "
        "MAP is over the full ranking; ties count by their expectation. A figure in brackets is the paper's; where "
        "data and number of training points are the same, it is followed by the difference (for times, by the ratio). "
        "'points' are training points; encoding is of database and queries together. Times are of one thread or two, "
        "as the file of the run says, on a machine that other runs shared.",
        "",
    ]
    for experiment in tables.experiments.values():
        lines += _experiment(experiment, records, links)
    lines += ["### Figures of the paper that no row stands beside", ""]
    lines += [f"- {experiment}, {block}: {why}" for (experiment, block), why in tables.unused.items()] or ["None."]
    machines = sorted({f"{record['machine']}, {record['threads']} threads" for record in done})
    return [*lines, "", f"Machine: {'; '.join(machines) or 'no runs'}."]


def _claims(tables: Tables, records: Records) -> list[str]:
    lines = ["## Claims", "", "Each compares rows of an experiment below, on every data set that it was run on.", ""]
    lines += ["| claim | holds? | by how much | where not | compared |", "|---|---|---|---|---|"]
    for claim in tables.claims:
        verdict = judge(claim, tables, records.figure)
        against: dict[str, list[str]] = {}
        for better, worse in claim.pairs:
            against.setdefault(better, []).append(worse)
        rows = "; ".join(f"{better} against {' / '.join(worse)}" for better, worse in against.items())
        slack = f", but for {claim.slack:g}" if claim.slack else ""
        what = f"{MEASURES[claim.measure].title}{slack} in `{claim.experiment}`: {rows}"
        lines.append(f"| {claim.says} | {verdict.holds} | {verdict.by} | {verdict.exceptions} | {what} |")
    return lines


def _experiment(experiment: Experiment, records: Records, links: Mapping[tuple[str, str], str]) -> list[str]:
    lines = [f"### {experiment.name}: {experiment.title}", "", f"{experiment.of[0].upper()}{experiment.of[1:]}."]
    if experiment.note:
        lines[-1] += f" {experiment.note}"
    for name in dict.fromkeys(cell.data.name for cell in experiment.cells):
        cells = [cell for cell in experiment.cells if cell.data.name == name]
        lines += ["", f"**{cells[0].data.title}**{_role(cells[0])}", ""]
        lines += _table(experiment, cells, records)
        if (experiment.name, name) in links:
            lines += ["", f"![{experiment.name} on {cells[0].data.title}]({links[experiment.name, name]})"]
    return [*lines, ""]


def _role(cell: Cell) -> str:
    """What the paper has in this place."""
    if not cell.block:
        return ""
    if cell.block in cell.data.same_as:
        return f" (the paper's {cell.block})"
    return f" (in the role of the paper's {cell.block}: other data, so there is no difference to take)"


def _table(experiment: Experiment, cells: list[Cell], records: Records) -> list[str]:
    absent = {cell.row: records.absence(cell) for cell in cells if not records.done(cell)}
    lines = []
    if len(absent) < len(cells) or any(cell.paper for cell in cells):
        titles = [MEASURES[measure].title for measure in experiment.measures]
        lines = [f"| | points | bits | {' | '.join(titles)} |", "|---" * (3 + len(titles)) + "|"]
        for cell in cells:
            figures = " | ".join(_entry(cell, measure, records) for measure in experiment.measures)
            lines.append(f"| {cell.row} | {_sizes(cell, records)} | {figures} |")
    reasons: dict[str, list[str]] = {}
    for row, reason in absent.items():
        reasons.setdefault(reason, []).append(row)
    missing = [f"{reason[0].upper()}{reason[1:]}: {'; '.join(rows)}." for reason, rows in reasons.items()]
    return lines + ([""] if lines and missing else []) + missing


def _sizes(cell: Cell, records: Records) -> str:
    """Training points and bits, in two columns."""
    done = records.done(cell)
    return f"{done[0]['data']['n_train']:,} | {done[0]['cell']['bits']}" if done else f"- | {cell.spec.bits}"


def _entry(cell: Cell, measure: str, records: Records) -> str:
    """Our figure, the paper's and the difference."""
    kind, values = MEASURES[measure], records.figures(cell, measure) if measure in cell.measures else []
    digits = kind.digits
    paper = cell.paper.get(measure)
    ours = "-"
    if values:
        ours = f"{mean(values):.{digits}f}"
        if len(values) > 1:
            ours += f" ± {stdev(values):.{digits}f}, {len(values)} seeds"
    if paper is None:
        return ours
    if not values or not _comparable(cell, records):
        return f"{ours} ({paper:g})"
    if measure.endswith("_seconds"):
        return f"{ours} ({paper:g}, {paper / max(mean(values), 1e-9):.1f} times)"
    return f"{ours} ({paper:g}, {mean(values) - paper:+.3f})"


def _comparable(cell: Cell, records: Records) -> bool:
    """Whether the paper has the same data and as many training points."""
    theirs, ours = cell.paper.get("n_train"), records.done(cell)[0]["data"]["n_train"]
    is_same_size = theirs is None or abs(ours - theirs) <= SAME_N_TRAIN * theirs
    return is_same_size and cell.block in cell.data.same_as
