"""Pictures of the results as small SVG files that do not change unless the results do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.headlines import Standing
from experiments.measures import MEASURES
from experiments.records import Records
from experiments.specs import Cell, Tables
from hashgrove.storage.atomic import atomic_write

__all__ = ["draw_experiments", "draw_headlines", "save_svg"]

COLOURS = (
    "#0b6e4f", "#d1495b", "#3d6fb4", "#e09f3e", "#7a5195", "#7a7a7a", "#17a2b8", "#8c564b", "#b5179e", "#606c38",
)  # fmt: skip
SETTINGS: Any = {
    "svg.hashsalt": "hashgrove",  # the same ids in every file
    "svg.fonttype": "none",  # text as text
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "xtick.minor.size": 0,
}
CURVE_POINTS = 20
TICKS = (0, 0.25, 0.5, 0.75, 1)


def draw_experiments(tables: Tables, records: Records, folder: Path) -> dict[tuple[str, str], Path]:
    """Draw each experiment on each data set with at least two finished rows.

    Returns
    -------
    dict
        The picture by the names of experiment and data set.
    """
    drawn = {}
    for experiment in tables.experiments.values():
        for name, cells in experiment.by_data().items():
            runs = [(cell, records.done(cell)[0]) for cell in cells if records.figures(cell, "map")]
            if len(runs) > 1:
                drawn[experiment.name, name] = folder / f"{experiment.name}-{name}.svg"
                has_papers = any(records.figures(cell, "paper_map") for cell in cells)
                _draw_curves(runs, drawn[experiment.name, name], measure="paper_map" if has_papers else "map")
    return drawn


def _draw_curves(runs: Sequence[tuple[Cell, dict[str, Any]]], path: Path, *, measure: str) -> None:
    """Draw precision at K, precision over recall, and a measure over training time, with the paper's points."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        top, recall, times = figure.subplots(1, 3)
        has_papers = False
        for number, (cell, record) in enumerate(runs):
            curves, measures = record["curves"], record["measures"]
            value = f" ({measures[measure]:.3f})" if measure in measures else ""
            style: dict[str, Any] = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": "-" if number < len(COLOURS) else "--",
                "label": cell.row + value,
            }
            depths, precision = _thinned(np.log(curves["depths"]), curves["precision"])
            top.plot(np.exp(depths), precision, **style)
            recall.plot(*_thinned(curves["recall"], curves["recall_precision"]), **style)
            if "fit_seconds" in measures and value:  # vectors need no training
                times.plot([measures["fit_seconds"]], [measures[measure]], "o", color=style["color"])
            for axes, point in ((top, _papers_precision(cell)), (times, _papers_point(cell, measures, measure))):
                axes.plot(*point, "x", color=style["color"], markersize=7)
                has_papers = has_papers or bool(point[0])
        top.set(xscale="log", xlabel="K, items retrieved", ylabel="precision among the first K")
        recall.set(xlabel="recall", ylabel="precision", xlim=(0, 1), xticks=TICKS)
        times.set(xscale="log", xlabel="training (s)", ylabel=MEASURES[measure].title)
        for axes in (top, recall, times):
            axes.set(ylim=(0, 1), yticks=TICKS)
            axes.minorticks_off()
            axes.grid(axis="y", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in (top, times):
            axes.xaxis.set_major_formatter("{x:g}")  # a plain number instead of a power of ten
        handles, labels = top.get_legend_handles_labels()
        if has_papers:
            cell = runs[0][0]
            handles += times.plot([], [], "x", color="black", markersize=7)
            labels.append("the paper" if cell.is_paper_data else f"the paper, on {cell.paper_data}")
        title = f"({MEASURES[measure].title})"
        figure.legend(handles, labels, loc="outside right upper", frameon=False, title=title)
        save_svg(figure, path)


def _papers_precision(cell: Cell) -> tuple[list[float], list[float]]:
    """Return the paper's precision among the first 100 items, as a point of the curve; empty if it has none."""
    return ([100.0], [cell.paper["precision"]]) if "precision" in cell.paper else ([], [])


def _papers_point(cell: Cell, ours: Mapping[str, float], measure: str) -> tuple[list[float], list[float]]:
    """Return the paper's training time (ours, where it has none) and its figure; empty if it has no figure."""
    seconds = cell.paper.get("fit_seconds", ours.get("fit_seconds"))
    return ([], []) if measure not in cell.paper or seconds is None else ([seconds], [cell.paper[measure]])


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """Return about `CURVE_POINTS` points of a curve, evenly spaced along x, with both ends."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    wanted = np.searchsorted(x, np.linspace(x[0], x[-1], CURVE_POINTS))
    chosen = np.unique(np.concatenate([wanted, [0, len(x) - 1]]))
    return x[chosen], y[chosen]


def draw_headlines(found: Sequence[Standing], folder: Path) -> Path | None:
    """Draw our figure, the best rival's and the paper's for each headline; None if there are no headlines."""
    if not found:
        return None
    path = folder / "overview.svg"
    with rc_context(SETTINGS):
        figure = Figure(figsize=(9, 0.4 * len(found) + 0.9), layout="constrained")
        axes = figure.subplots()
        heights = range(len(found))[::-1]
        axes.hlines(heights, [s.ours for s in found], [s.theirs for s in found], color="#cccccc", zorder=0)
        with_paper = [(s.paper, height) for s, height in zip(found, heights, strict=True) if s.paper is not None]
        axes.plot([s.ours for s in found], heights, "o", color=COLOURS[0], label="ours")
        axes.plot([s.theirs for s in found], heights, "s", color=COLOURS[1], label="best rival")
        axes.plot(
            [x for x, _ in with_paper], [y for _, y in with_paper], "x", color="black", label="the paper's FastHash"
        )
        axes.set(xlim=(0, 1), xticks=TICKS, xlabel=", ".join(dict.fromkeys(s.measure.title for s in found)))
        axes.set_yticks(heights, [f"{s.headline.says}\n{s.headline.ours.data.title}" for s in found])
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper right", ncols=3, frameon=False)
        save_svg(figure, path)
    return path


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as a small SVG file: the same bytes for the same figure, and coordinates of one decimal."""
    with rc_context(SETTINGS):
        FigureCanvasSVG(figure)  # draws without a screen
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    with atomic_write(path) as file:
        file.write(_shrunk(buffer.getvalue()).encode())


def _shrunk(svg: str) -> str:
    """Take out of an SVG file of matplotlib what no reader of the picture sees, and round its coordinates."""
    for pattern, new in (
        (r"<!--.*?-->|<!DOCTYPE.*?>|<metadata>.*?</metadata>", ""),
        (r' id="[a-z0-9.]+_\d+"', ""),  # names of groups; markers and clip paths have hashes as ids
        (r' transform="rotate\(-0 [^"]*"', ""),
        (r"font-size: 9px; font-family: 'DejaVu Sans', sans-serif;? ?", ""),
        (r"(<style[^>]*>)", r"\1text{font: 9px sans-serif} "),
        (r"\s*\n\s*(?=[A-Z\"0-9])", " "),  # a path is one line
        (r"\s*\n\s*", "\n"),
    ):
        svg = re.sub(pattern, new, svg, flags=re.DOTALL)
    for _ in range(3):  # groups of one element, which may be nested
        svg = re.sub(r"<g>\n(<[^\n]*(?:/>|</text>))\n</g>", r"\1", svg)
    return re.sub(r'"[^"]*"', lambda text: re.sub(r"\d+\.\d\d+", lambda n: f"{float(n[0]):.1f}", text[0]), svg)
