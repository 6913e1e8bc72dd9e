"""The results in a folder, looked up by cell, and each figure of ours beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from experiments.claims import Verdict, judge
from experiments.measures import MEASURES, lacking
from experiments.quick import quick_spec
from experiments.results import Store
from experiments.specs import Cell, Tables

__all__ = ["Records"]

SAME_N_TRAIN = 0.02  # training sets whose sizes differ by less count as equally large


@dataclass
class Records:
    """The results in a folder.

    Parameters
    ----------
    store : Store
    quick : bool
        Whether the results are those of quick runs.
    """

    store: Store
    quick: bool = False
    by_spec: dict[str, list[dict[str, Any]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for key, record in self.store.read().items():
            cell, *_ = json.loads(key)
            self.by_spec.setdefault(_as_text(cell), []).append(record)

    def done(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the finished runs of a cell, one per seed: the latest one if the data have changed in between."""
        found = [record for record in self._all(cell) if record["status"] == "done"]
        latest = {record["seed"]: record for record in sorted(found, key=lambda record: record["finished"])}
        return [latest[seed] for seed in sorted(latest)]

    def figures(self, cell: Cell, measure: str) -> dict[int, float]:
        """Return the value of a measure for each seed that was run; empty if the cell does not show the measure."""
        shown = self.done(cell) if measure in cell.measures else []
        return {record["seed"]: record["measures"][measure] for record in shown if measure in record["measures"]}

    def figure(self, cell: Cell, measure: str) -> float | None:
        """Return the mean of these values; None if there are none."""
        values = self.figures(cell, measure).values()
        return mean(values) if values else None

    def verdicts(self, tables: Tables) -> dict[str, list[Verdict]]:
        """Judge all claims; return the verdicts by experiment."""
        found: dict[str, list[Verdict]] = {name: [] for name in tables.experiments}
        for claim in tables.claims:
            found[claim.experiment].append(judge(claim, tables.experiments[claim.experiment], self.figures))
        return found

    def entry(self, cell: Cell, measure: str) -> str:
        """Return our figure with the paper's in brackets, and the difference if the two can be compared."""
        digits, paper = MEASURES[measure].digits, cell.paper.get(measure)
        values = list(self.figures(cell, measure).values())
        if not values:
            ours = "not run" if measure in lacking(cell.measures, {}) else ""
            return f"{ours} ({paper:g})" if ours and paper is not None else ours
        ours = f"{mean(values):.{digits}f}"
        if len(values) > 1:
            ours += f" ± {stdev(values):.{digits}f}, {len(values)} seeds"
        if paper is None:
            return ours
        if not self.is_comparable(cell):
            return f"{ours} ({paper:g})"
        if MEASURES[measure].is_time:
            return f"{ours} ({paper:g}, {paper / max(mean(values), 1e-9):.1f} times)"
        return f"{ours} ({paper:g}, {mean(values) - paper:+.3f})"

    def is_comparable(self, cell: Cell) -> bool:
        """Say whether the paper used the same data and as many training points."""
        theirs, ours = cell.paper.get("n_train"), self.done(cell)[0]["data"]["n_train"]
        is_same_size = theirs is None or abs(ours - theirs) <= SAME_N_TRAIN * theirs
        return is_same_size and cell.is_paper_data

    def why_absent(self, cell: Cell) -> str:
        """Say why a cell has no result."""
        failed = [record for record in self._all(cell) if record["status"] == "failed"]
        return f"Failed ({failed[-1]['error']})" if failed else "Not run"

    def machines(self, cells: Iterable[Cell]) -> str:
        """Name the machines that the results of some cells come from."""
        done = [record for cell in cells for record in self.done(cell)]
        names = {f"{r['machine']}, {r['threads']} thread{'s' * (r['threads'] > 1)}" for r in done}
        return "; ".join(sorted(names))

    def _all(self, cell: Cell) -> list[dict[str, Any]]:
        spec = quick_spec(cell.spec) if self.quick else cell.spec
        return self.by_spec.get(_as_text(spec.to_dict()), [])


def _as_text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, sort_keys=True)
