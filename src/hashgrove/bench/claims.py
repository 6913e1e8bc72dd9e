"""What the paper says, held against the results: each claim with whether it holds, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hashgrove.bench.measures import MEASURES
from hashgrove.bench.tables import Cell, Claim, Tables

__all__ = ["Verdict", "judge"]

Figure = Callable[[Cell, str], float | None]


@dataclass(frozen=True)
class Verdict:
    """A claim and the comparisons that were made for it.

    Attributes
    ----------
    claim : Claim
    gains : list of (data set, better row, worse row, gain)
        By how much the first row is better; for seconds, how many times as fast.
    n_missing : int
        Comparisons of which a cell was not run.
    """

    claim: Claim
    gains: list[tuple[str, str, str, float]]
    n_missing: int

    @property
    def is_ratio(self) -> bool:
        """Whether gains are ratios of times and not differences."""
        return self.claim.measure.endswith("_seconds")

    @property
    def failed(self) -> list[tuple[str, str, str, float]]:
        """The comparisons in which the claim does not hold, the worst first."""
        least = (1.0 if self.is_ratio else 0.0) - self.claim.slack
        return sorted((gain for gain in self.gains if gain[3] <= least), key=lambda gain: gain[3])

    @property
    def holds(self) -> str:
        """``yes``, ``no``, in how many comparisons, or ``not run``."""
        if not self.gains:
            return "not run"
        n_held = len(self.gains) - len(self.failed)
        if n_held in (0, len(self.gains)):
            answer = "yes" if n_held else "**no**"
        else:
            answer = f"**in {n_held} of {len(self.gains)}**"
        return answer + (f" ({self.n_missing} not run)" if self.n_missing else "")

    @property
    def by(self) -> str:
        """The smallest and the largest gain, each with its cells."""
        if not self.gains:
            return ""
        ends = [min(self.gains, key=lambda g: g[3]), max(self.gains, key=lambda g: g[3])]
        return " to ".join(dict.fromkeys(map(self._text, ends)))

    @property
    def exceptions(self) -> str:
        """Each comparison in which it does not hold."""
        return "; ".join(map(self._text, self.failed))

    def _text(self, comparison: tuple[str, str, str, float]) -> str:
        data, better, worse, gain = comparison
        return f"{self._amount(gain)} ({data}: {better} - {worse})"

    def _amount(self, gain: float) -> str:
        return f"{gain:.2g} times as fast" if self.is_ratio else f"{gain:+.4f}"


def judge(claim: Claim, tables: Tables, figure: Figure) -> Verdict:
    """Compare the rows of a claim on every data set of its experiment.

    Parameters
    ----------
    claim : Claim
    tables : Tables
    figure : callable
        Given a cell and a measure, the figure or None.
    """
    cells = {(cell.data.name, cell.row): cell for cell in tables.experiments[claim.experiment].cells}
    gains, n_missing = [], 0
    for data in dict.fromkeys(name for name, _ in cells):
        for better, worse in claim.pairs:
            if (data, better) not in cells or (data, worse) not in cells:
                continue  # a row that is not meant for this data set
            if cells[data, better].spec == cells[data, worse].spec:
                continue  # one run: 5,000 rows of a data set that has no more
            first, second = (figure(cells[data, row], claim.measure) for row in (better, worse))
            if first is None or second is None:
                n_missing += 1
            else:
                gains.append((data, better, worse, _gain(claim.measure, first, second)))
    return Verdict(claim, gains, n_missing)


def _gain(measure: str, first: float, second: float) -> float:
    if measure.endswith("_seconds"):
        return second / max(first, 1e-9)
    return second - first if MEASURES[measure].lower_is_better else first - second
