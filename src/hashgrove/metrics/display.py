"""Pictures of an evaluation, drawn with matplotlib, which is imported when something is drawn.

To add a picture, write a function that draws a report into axes, and add it to `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hashgrove.runtime.parameters import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hashgrove.metrics.report import Report

__all__ = ["KINDS", "ReportDisplay", "new_axes"]

MANY_CLASSES = 30  # more are drawn without their names


@dataclass(frozen=True)
class ReportDisplay:
    """A picture that `Report.plot` has drawn.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : dict of matplotlib Axes
        By the kind of the picture.
    """

    figure_: Figure
    axes_: dict[str, Axes]

    @classmethod
    def of(cls, report: Report, kind: str | None, ax: Axes | None, name: str | None) -> ReportDisplay:
        """Draw one picture, or all that the report has figures for."""
        possible = {each: draw for each, draw in KINDS.items() if _has(report, each)}
        if kind is not None and kind not in possible:
            allowed = ", ".join(map(repr, possible))
            raise ParameterError("kind", f"must be one of {allowed} for this report. Got {kind!r} instead.")
        if ax is not None and kind is None:
            raise ParameterError("kind", "must be given with 'ax', which has room for one picture. Got None.")
        kinds = list(possible) if kind is None else [kind]
        axes = [ax] if ax is not None else new_axes(len(kinds))
        for each, place in zip(kinds, axes, strict=True):
            possible[each](report, place, name)
            if name is not None:
                place.legend()
        return cls(axes[0].figure, dict(zip(kinds, axes, strict=True)))  # type: ignore[arg-type]


def new_axes(count: int) -> list[Any]:
    """Axes side by side in a new figure of pyplot, so that a notebook shows it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hashgrove[plot]'") from error
    columns = min(count, 2)
    rows = -(-count // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(5.5 * columns, 4 * rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat[count:]:
        figure.delaxes(ax)
    return list(axes.flat[:count])


def _has(report: Report, kind: str) -> bool:
    if kind == "classes":
        return report.class_map is not None
    return kind != "distances" or report.similar_distances is not None


def _precision(report: Report, ax: Axes, name: str | None) -> None:
    """Precision among the first K items, below the best value that is possible."""
    depths = report.precision_depths
    (line,) = ax.plot(depths, report.precision_curve, "o-", label=name)
    best = None if name is None else f"best possible for {name}"
    ax.plot(depths, report.best_precision_curve, ":", color=line.get_color(), label=best)
    ax.set(xscale="log", xlabel="K, items retrieved", ylabel="precision among the first K", ylim=(0, 1.02))
    ax.set_title("Precision at K (dotted: the best that is possible)")


def _precision_recall(report: Report, ax: Axes, name: str | None) -> None:
    """Precision against recall."""
    ax.plot(report.recall, report.precision, "o-" if len(report.recall) < 200 else "-", markersize=3, label=name)
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    ax.set_title(f"Precision and recall, area {report.pr_area:.3f}")


def _distances(report: Report, ax: Axes, name: str | None) -> None:
    """Distances of the queries to relevant and to other items."""
    assert report.similar_distances is not None
    assert report.dissimilar_distances is not None
    for counts, kind in ((report.similar_distances, "relevant"), (report.dissimilar_distances, "other")):
        share = counts / max(counts.sum(), 1)
        label = f"{kind} items" if name is None else f"{name}, {kind} items"
        ax.fill_between(np.arange(len(counts)), share, step="mid", alpha=0.5, label=label)
    ax.set(xlabel="Hamming distance from the query", ylabel="share of the items", ylim=(0, None))
    ax.set_title("Distances")
    ax.legend()


def _classes(report: Report, ax: Axes, name: str | None) -> None:
    """Mean average precision of each class, the best first."""
    assert report.classes is not None
    assert report.class_map is not None
    order = np.argsort(-report.class_map, kind="stable")
    ax.bar(np.arange(len(order)), report.class_map[order], label=name, alpha=0.7)
    if len(order) <= MANY_CLASSES:
        long = max(len(str(report.classes[place])) for place in order) > 3
        ax.set_xticks(
            np.arange(len(order)), [str(report.classes[place]) for place in order], rotation=90 if long else 0
        )
    ax.set(xlabel="class", ylabel="mean average precision", ylim=(0, 1.02))
    ax.set_title(f"MAP per class, mean {report.class_map.mean():.3f}")


KINDS: dict[str, Callable[[Report, Axes, str | None], None]] = {
    "precision": _precision,
    "precision-recall": _precision_recall,
    "distances": _distances,
    "classes": _classes,
}
