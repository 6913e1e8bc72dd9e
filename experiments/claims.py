"""Claims checked against the results: whether each holds, by how much, and where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean

from experiments.measures import MEASURES
from experiments.specs import Cell, Claim, Experiment

__all__ = ["CLOSE", "ENOUGH_SEEDS", "Comparison", "Verdict", "judge", "undecided_cells"]

CLOSE, ENOUGH_SEEDS = 0.02, 3  # a difference smaller than this is only believed if this many seeds agree

Figures = Callable[[Cell, str], Mapping[int, float]]


@dataclass(frozen=True)
class Comparison:
    """Two rows on one data set.

    ``gains`` say for each seed by how much the first row is better, for times how many times as fast it is; ``least``
    is what the gain must be above for the claim to hold.
    """

    first: Cell
    second: Cell
    gains: tuple[float, ...]
    least: float
    is_ratio: bool = False

    @property
    def gain(self) -> float:
        """The mean over the seeds."""
        return mean(self.gains)

    @property
    def is_clear(self) -> bool:
        """Whether all seeds agree about the winner, and the difference is large or of enough seeds; times need one."""
        return self._seeds_agree and (self.is_ratio or self._is_large or self._has_enough_seeds)

    @property
    def is_even(self) -> bool:
        """Whether seeds disagree about the winner: enough of them, or any two that compare times."""
        return not self._seeds_agree and (self.is_ratio or self._has_enough_seeds)

    @property
    def _seeds_agree(self) -> bool:
        return min(self.gains) > self.least or max(self.gains) <= self.least

    @property
    def _is_large(self) -> bool:
        return abs(self.gain - self.least) >= CLOSE

    @property
    def _has_enough_seeds(self) -> bool:
        return len(self.gains) >= ENOUGH_SEEDS

    @property
    def holds(self) -> bool:
        """Whether the first row is better."""
        return self.gain > self.least

    def __str__(self) -> str:
        amount = f"{self.gain:.2g} times as fast" if self.is_ratio else f"{self.gain:+.4f}"
        if len(self.gains) > 1:
            low, high = (f"{end:.2g}" if self.is_ratio else f"{end:+.4f}" for end in (min(self.gains), max(self.gains)))
            amount += f", {low} to {high} with {len(self.gains)} seeds"
        return f"{amount} ({self.first.data.name}: {self.first.row} against {self.second.row})"


@dataclass(frozen=True)
class Verdict:
    """A claim, the comparisons that were made for it, and how many could not be made because a cell was not run."""

    claim: Claim
    comparisons: list[Comparison]
    n_missing: int

    @property
    def failed(self) -> list[Comparison]:
        """The comparisons in which the claim does not hold, the worst first."""
        return sorted((c for c in self.comparisons if c.is_clear and not c.holds), key=lambda c: c.gain)

    @property
    def even(self) -> list[Comparison]:
        """The comparisons without a clear winner, the worst first."""
        return sorted((c for c in self.comparisons if c.is_even), key=lambda c: c.gain)

    @property
    def undecided(self) -> list[Comparison]:
        """The comparisons with too small a difference for so few seeds, the worst first."""
        return sorted((c for c in self.comparisons if not c.is_clear and not c.is_even), key=lambda c: c.gain)

    @property
    def holds(self) -> str:
        """``yes``, ``no``, the number of comparisons in which it holds, ``even``, ``not decided`` or ``not run``."""
        if not self.comparisons:
            return "not run"
        n_clear = len(self.comparisons) - len(self.undecided) - len(self.even)
        n_held = n_clear - len(self.failed)
        if not n_clear:
            answer = "not decided" if self.undecided else "even"
        elif n_held in (0, n_clear):
            answer = "yes" if n_held else "**no**"
        else:
            answer = f"**in {n_held} of {n_clear}**"
        n_seeds = min((len(c.gains) for c in self.undecided), default=0)
        seeds = "one seed" if n_seeds == 1 else f"{n_seeds} seeds"
        notes = [f"{len(self.undecided)} not decided, {seeds}" if n_clear else seeds] if self.undecided else []
        notes += [f"{len(self.even)} even"] if self.even and answer != "even" else []
        notes += [f"{self.n_missing} not run"] if self.n_missing else []
        return answer + (f" ({'; '.join(notes)})" if notes else "")

    @property
    def by(self) -> str:
        """The smallest and the largest gain, each with its rows."""
        if not self.comparisons:
            return ""
        ends = [min(self.comparisons, key=lambda c: c.gain), max(self.comparisons, key=lambda c: c.gain)]
        return " to ".join(dict.fromkeys(map(str, ends)))

    @property
    def exceptions(self) -> str:
        """All comparisons in which the claim does not hold, those that are even, and those that are not decided."""
        even = [f"even: {comparison}" for comparison in self.even]
        undecided = [f"not decided: {comparison}" for comparison in self.undecided]
        return "; ".join([*map(str, self.failed), *even, *undecided])


def judge(claim: Claim, experiment: Experiment, figures: Figures) -> Verdict:
    """Compare the rows of a claim on every data set of its experiment, each seed by itself.

    Parameters
    ----------
    claim : Claim
    experiment : Experiment
    figures : callable
        Called with a cell and a measure; returns the figure of each seed that was run.
    """
    comparisons, n_missing = [], 0
    is_ratio = MEASURES[claim.measure].is_time
    least = (1.0 if is_ratio else 0.0) - claim.slack
    for cells in experiment.by_data().values():
        by_row = {cell.row: cell for cell in cells}
        for pair in claim.pairs:
            if not by_row.keys() >= set(pair):
                continue  # a row that is not meant for this data set
            first, second = (by_row[row] for row in pair)
            if first.spec == second.spec:
                continue  # the same run, because the data set has too few rows to tell the two apart
            ours, theirs = (figures(cell, claim.measure) for cell in (first, second))
            gains = [_gain(claim.measure, ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
            if gains:
                comparisons.append(Comparison(first, second, tuple(gains), least, is_ratio))
            else:
                n_missing += 1
    return Verdict(claim, comparisons, n_missing)


def undecided_cells(verdicts: Iterable[Verdict]) -> set[str]:
    """Return the names of the cells that need more seeds before the claims about them are decided."""
    open_ones = (comparison for verdict in verdicts for comparison in verdict.undecided)
    return {cell.name for comparison in open_ones for cell in (comparison.first, comparison.second)}


def _gain(measure: str, first: float, second: float) -> float:
    if MEASURES[measure].is_time:
        return second / max(first, 1e-9)
    return second - first if MEASURES[measure].lower_is_better else first - second
