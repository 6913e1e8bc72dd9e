"""Claims checked against the results: whether each holds, by how much, and where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hashgrove.bench.measures import MEASURES
from hashgrove.bench.specs import Cell, Claim, Experiment

__all__ = ["Comparison", "Verdict", "judge"]

Figure = Callable[[Cell, str], float | None]


class Comparison(NamedTuple):
    """Two rows on one data set; ``gain`` is by how much the first is better, for times how many times as fast."""

    data: str
    better: str
    worse: str
    gain: float


@dataclass(frozen=True)
class Verdict:
    """A claim, the comparisons that were made for it, and how many could not be made because a cell was not run."""

    claim: Claim
    comparisons: list[Comparison]
    n_missing: int

    @property
    def failed(self) -> list[Comparison]:
        """The comparisons in which the claim does not hold, the worst first."""
        least = (1.0 if self._is_ratio else 0.0) - self.claim.slack
        return sorted((c for c in self.comparisons if c.gain <= least), key=lambda c: c.gain)

    @property
    def holds(self) -> str:
        """``yes``, ``no``, the number of comparisons in which it holds, or ``not run``."""
        if not self.comparisons:
            return "not run"
        n_held = len(self.comparisons) - len(self.failed)
        if n_held in (0, len(self.comparisons)):
            answer = "yes" if n_held else "**no**"
        else:
            answer = f"**in {n_held} of {len(self.comparisons)}**"
        return answer + (f" ({self.n_missing} not run)" if self.n_missing else "")

    @property
    def by(self) -> str:
        """The smallest and the largest gain, each with its rows."""
        if not self.comparisons:
            return ""
        ends = [min(self.comparisons, key=lambda c: c.gain), max(self.comparisons, key=lambda c: c.gain)]
        return " to ".join(dict.fromkeys(map(self._text, ends)))

    @property
    def exceptions(self) -> str:
        """All comparisons in which the claim does not hold."""
        return "; ".join(map(self._text, self.failed))

    @property
    def _is_ratio(self) -> bool:
        return MEASURES[self.claim.measure].is_time

    def _text(self, comparison: Comparison) -> str:
        data, better, worse, gain = comparison
        amount = f"{gain:.2g} times as fast" if self._is_ratio else f"{gain:+.4f}"
        return f"{amount} ({data}: {better} against {worse})"


def judge(claim: Claim, experiment: Experiment, figure: Figure) -> Verdict:
    """Compare the rows of a claim on every data set of its experiment.

    Parameters
    ----------
    claim : Claim
    experiment : Experiment
    figure : callable
        Called with a cell and a measure; returns the figure, or None if the cell was not run.
    """
    comparisons, n_missing = [], 0
    for data, cells in experiment.by_data().items():
        by_row = {cell.row: cell for cell in cells}
        for better, worse in claim.pairs:
            if better not in by_row or worse not in by_row:
                continue  # a row that is not meant for this data set
            if by_row[better].spec == by_row[worse].spec:
                continue  # the same run, because the data set has too few rows to tell the two apart
            first, second = (figure(by_row[row], claim.measure) for row in (better, worse))
            if first is None or second is None:
                n_missing += 1
            else:
                comparisons.append(Comparison(data, better, worse, _gain(claim.measure, first, second)))
    return Verdict(claim, comparisons, n_missing)


def _gain(measure: str, first: float, second: float) -> float:
    if MEASURES[measure].is_time:
        return second / max(first, 1e-9)
    return second - first if MEASURES[measure].lower_is_better else first - second
