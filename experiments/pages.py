"""The page of one experiment: claims, then one table per data set with our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.claims import Verdict
from experiments.measures import MEASURES
from experiments.records import Records
from experiments.specs import Cell, Experiment, Spec

__all__ = ["experiment_page"]


def experiment_page(
    experiment: Experiment, verdicts: Sequence[Verdict], records: Records, pictures: Mapping[str, str], *, front: str
) -> list[str]:
    """Return the lines of the page.

    Parameters
    ----------
    experiment : Experiment
    verdicts : sequence of Verdict
        Those of the claims about this experiment.
    records : Records
    pictures : dict
        Link to the picture of each data set, by its name.
    front : str
        Link to the front page of the results.
    """
    lines = [
        f"# {experiment.title}",
        "",
        f"[All results]({front}) · experiment `{experiment.name}` · {experiment.of}",
        "",
    ]
    if experiment.note:
        lines += [experiment.note, ""]
    lines += _claims(verdicts)
    not_run = []
    for name, cells in experiment.by_data().items():
        if any(records.done(cell) for cell in cells):
            lines += [f"## {cells[0].data.title}", "", *_role(cells[0]), *_table(experiment, cells, records)]
            if name in pictures:
                lines += [f"![{experiment.title}: {cells[0].data.title}]({pictures[name]})", ""]
        else:
            not_run.append(_absent(cells, records, title=cells[0].data.title))
    lines += [" ".join(not_run), ""] if not_run else []
    machines = records.machines(experiment.cells)
    return [*lines, f"Machine: {machines}."] if machines else lines[:-1]


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    checked = [verdict for verdict in verdicts if verdict.comparisons]
    lines = []
    if checked:
        lines += ["## Claims", "", "| claim | measure | holds? | by how much | where not |", "|---|---|---|---|---|"]
        for v in checked:
            measure = MEASURES[v.claim.measure].title + (f", within {v.claim.slack:g}" if v.claim.slack else "")
            lines.append(f"| {v.claim.says} | {measure} | {v.holds} | {v.by} | {v.exceptions} |")
        lines.append("")
        for v in checked:
            if (v.failed or v.even) and v.claim.why:
                lines += [f'The exceptions to "{v.claim.says}": {v.claim.why}', ""]
    unchecked = [verdict.claim.says for verdict in verdicts if not verdict.comparisons]
    return [*lines, f"Claims whose rows were not run: {'; '.join(unchecked)}.", ""] if unchecked else lines


def _role(cell: Cell) -> list[str]:
    """Say which of the paper's data sets the figures in brackets are from."""
    if not cell.paper_data:
        return []
    if cell.is_paper_data:
        return [f"The paper's {cell.paper_data}.", ""]
    return [f"It takes the place of the paper's {cell.paper_data}. The data differ, so no differences are shown.", ""]


def _table(experiment: Experiment, cells: Sequence[Cell], records: Records) -> list[str]:
    """Return the table of what was run, and a line with what was not."""
    shown = [cell for cell in cells if records.done(cell)]
    measures = [m for m in experiment.measures if any(records.entry(cell, m) for cell in shown)]
    titles = " | ".join(MEASURES[measure].title for measure in measures)
    lines = [f"| | points | bits | {titles} |", "|---" * (3 + len(measures)) + "|"]
    for cell in shown:
        run = records.done(cell)[0]
        sizes = f"{run['data']['n_train']:,} | {Spec(**run['cell']).bits}"
        lines.append(f"| {cell.row} | {sizes} | {' | '.join(records.entry(cell, measure) for measure in measures)} |")
    absent = [cell for cell in cells if not records.done(cell)]
    return [*lines, "", *([_absent(absent, records), ""] if absent else [])]


def _absent(cells: Sequence[Cell], records: Records, *, title: str = "") -> str:
    """Say which cells have no result and why; with a title, that it is the whole data set."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        reasons.setdefault(records.why_absent(cell), []).append(cell.row)
    if title and len(reasons) == 1:
        return f"{next(iter(reasons))}: {title}, all {len(cells)} rows."
    prefix = f"{title}, " if title else ""
    return " ".join(f"{reason}: {prefix}{'; '.join(rows)}." for reason, rows in reasons.items())
