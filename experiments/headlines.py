"""The rows that matter most: one of our figures beside the best rival's and the paper's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.measures import MEASURES, Measure
from experiments.records import Records
from experiments.specs import Cell, Headline

__all__ = ["Standing", "headline_table", "standings"]


@dataclass(frozen=True)
class Standing:
    """A headline with its figures.

    ``paper`` is None unless the paper used the same data and as many training points; ``n_train`` are our training
    points and the rival's.
    """

    headline: Headline
    ours: float
    rival: Cell
    theirs: float
    paper: float | None
    n_train: tuple[int, int]

    @property
    def measure(self) -> Measure:
        """The measure that is compared."""
        return MEASURES[self.headline.measure]

    @property
    def is_ahead(self) -> bool:
        """Whether our figure is better than the best rival's."""
        return self.ours < self.theirs if self.measure.lower_is_better else self.ours > self.theirs


def standings(headlines: Iterable[Headline], records: Records) -> list[Standing]:
    """Return the headlines for which our row and at least one rival were run."""
    found = []
    for headline in headlines:
        ours = records.figure(headline.ours, headline.measure)
        figures = ((records.figure(cell, headline.measure), cell) for cell in headline.rivals)
        rivals = [(figure, cell) for figure, cell in figures if figure is not None]
        if ours is None or not rivals:
            continue
        choose = min if MEASURES[headline.measure].lower_is_better else max
        theirs, rival = choose(rivals, key=lambda pair: pair[0])
        paper = headline.ours.paper.get(headline.measure) if records.is_comparable(headline.ours) else None
        n_ours, n_theirs = (records.done(cell)[0]["data"]["n_train"] for cell in (headline.ours, rival))
        found.append(Standing(headline, ours, rival, theirs, paper, (n_ours, n_theirs)))
    return found


def headline_table(found: Iterable[Standing], folder: str) -> list[str]:
    """Return the table of the front page, with links to the pages of the experiments in ``folder``."""
    lines = ["| | data | measure | ours | best rival | the paper's FastHash |", "|---|---|---|---|---|---|"]
    for s in found:
        cell, digits = s.headline.ours, s.measure.digits
        ours, theirs = f"{s.ours:.{digits}f}", f"{s.theirs:.{digits}f}"
        ours, theirs = (f"**{ours}**", theirs) if s.is_ahead else (ours, f"**{theirs}**")
        lines.append(
            f"| [{s.headline.says}]({folder}/{cell.experiment}.md) | {cell.data.title} | {s.measure.title} "
            f"| {ours} ({cell.row}, {s.n_train[0]:,} points) | {theirs} ({s.rival.row}, {s.n_train[1]:,} points) "
            f"| {'' if s.paper is None else f'{s.paper:g}'} |"
        )
    return lines
