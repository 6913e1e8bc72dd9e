"""Pictures of an experiment on a data set: precision at K, precision against recall, training time against MAP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from hashgrove.bench.tables import Cell, Tables
from hashgrove.storage.atomic import atomic_write

if TYPE_CHECKING:
    from hashgrove.bench.report import Records

__all__ = ["draw_all"]

COLOURS = (
    "#0b6e4f", "#d1495b", "#3d6fb4", "#e09f3e", "#7a5195", "#7a7a7a", "#17a2b8", "#8c564b", "#b5179e", "#606c38",
)  # fmt: skip
SETTINGS: Any = {
    "svg.hashsalt": "hashgrove",
    "svg.fonttype": "none",
    "font.size": 9,
}  # the same file from the same results


def draw_all(tables: Tables, records: Records, folder: Path) -> dict[tuple[str, str], Path]:
    """Draw each experiment on each data set that has two finished rows or more; paths by experiment and data set."""
    drawn = {}
    for experiment in tables.experiments.values():
        if "map" not in experiment.measures:
            continue
        for name in dict.fromkeys(cell.data.name for cell in experiment.cells):
            cells = [
                cell
                for cell in experiment.cells
                if cell.data.name == name and "map" in cell.measures and records.done(cell)
            ]
            if len(cells) > 1:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"bench-{experiment.name}-{name}.svg"
                _draw([(cell, records.done(cell)[0]) for cell in cells], path)
                drawn[experiment.name, name] = path
    return drawn


def _draw(runs: list[tuple[Cell, dict[str, Any]]], path: Path) -> None:
    with rc_context(SETTINGS):
        figure = Figure(figsize=(13, 4.2), layout="constrained")
        FigureCanvasSVG(figure)  # draws without a screen
        top, recall, times = figure.subplots(1, 3)
        for number, (cell, record) in enumerate(runs):
            curves, measures = record["curves"], record["measures"]
            style: dict[str, Any] = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": "-" if number < len(COLOURS) else "--",
                "label": f"{cell.row} ({measures['map']:.3f})",
            }
            top.plot(curves["depths"], curves["precision"], linewidth=1.5, **style)
            recall.plot(curves["recall"], curves["recall_precision"], linewidth=1.5, **style)
            times.plot([measures["fit_seconds"]], [measures["map"]], "o", color=style["color"], label=style["label"])
        top.set(xscale="log", xlabel="K, items retrieved", ylabel="precision among the first K", ylim=(0, 1))
        recall.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1))
        times.set(xscale="log", xlabel="training (s)", ylabel="MAP", ylim=(0, 1))
        for axes in (top, recall, times):
            axes.grid(alpha=0.3)
        figure.legend(*top.get_legend_handles_labels(), loc="outside right upper", frameon=False, title="(MAP)")
        with atomic_write(path) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
