"""The work of ``hashgrove demo``: four methods on handwritten digits at 64 bits, or an index of digits to be served.

FastHash learns from the labels. ITQ, LSH and the sign of the centred features do not; the last one takes one bit per
feature, which is what vector databases offer as "binary quantisation".
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from hashgrove.baselines import ITQ, LSH, SignThreshold
from hashgrove.cli.output import format_table
from hashgrove.fasthash import FastHash
from hashgrove.features import Gist
from hashgrove.features.images import resize_images
from hashgrove.hasher import Hasher
from hashgrove.index import FlatIndex
from hashgrove.metrics import Report, evaluate
from hashgrove.runtime.progress import show_step
from hashgrove.storage.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["IMAGES", "INDEX", "Digits", "Result", "compare", "draw", "format_results", "index_digits"]

N_DATABASE = 1200
N_BITS = 64
DEPTH = 100  # k of precision@k; a digit has about 120 images in the database
SHOWN_RANKS = (1, 20, 40, 60, 80, 100)
COLOURS = ("#0b6e4f", "#d1495b", "#7a7a7a", "#3d6fb4")
RIGHT, WRONG = "#2a9d5c", "#d62839"
INDEX, IMAGES, MODEL = "digits.hgi", "images", "model.hashgrove"
N_TRAINED = 600  # of the digits to be served; the rest is indexed, as codes of trained items hardly differ in a class
IMAGE_SIDE = 32  # pixels of an image that is served


@dataclass(frozen=True)
class Digits:
    """Handwritten digits: a database, which is also the training set, and queries."""

    X_database: NDArray[np.float64]
    y_database: NDArray[np.int64]
    X_query: NDArray[np.float64]
    y_query: NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """The measurements of one method.

    Attributes
    ----------
    method : str
    report : Report
        Measures of the queries on the database.
    unseen_map : float
        MAP when each query searches the other queries, none of which any method saw in training.
    ids : int64 array of shape (n_queries, DEPTH)
        Nearest items of the database per query, nearest first.
    n_bytes : int
        Size of a code.
    fit_seconds, search_seconds : float
        Time to learn, and time to search for all queries.
    """

    method: str
    report: Report
    unseen_map: float
    ids: NDArray[np.int64]
    n_bytes: int
    fit_seconds: float
    search_seconds: float


def compare(*, seed: int = 0) -> tuple[Digits, list[Result]]:
    """Train, search and evaluate every method on a seeded split of the digits."""
    digits = _split(seed)
    methods = {
        "FastHash": FastHash(N_BITS, random_state=seed),
        "ITQ": ITQ(N_BITS, random_state=seed),
        "sign threshold": SignThreshold(N_BITS),
        "LSH": LSH(N_BITS, random_state=seed),
    }
    # Threads of BLAS spin while they wait. With matrices this small that takes seconds on a busy machine.
    with threadpool_limits(1, user_api="blas"), show_step("compiling kernels") as say:
        _compile(digits)
        results = []
        for name, hasher in methods.items():
            say(f"learning and searching codes of {name}")
            results.append(_measure(name, hasher, digits))
    return digits, results


def _split(seed: int) -> Digits:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    database, queries = order[:N_DATABASE], order[N_DATABASE:]
    return Digits(X[database], y[database], X[queries], y[queries])


def _compile(digits: Digits) -> None:
    """Run every kernel once, so that the times in the table do not include compilation."""
    X, y = digits.X_database[:100], digits.y_database[:100]
    _measure("", FastHash(2, random_state=0).fit(X, y), Digits(X, y, X, y))


def _measure(method: str, hasher: Hasher, digits: Digits) -> Result:
    started = time.perf_counter()
    hasher.fit(digits.X_database, digits.y_database)
    fitted = time.perf_counter()
    index, queries = FlatIndex(hasher.transform(digits.X_database)), hasher.transform(digits.X_query)
    encoded = time.perf_counter()
    _, ids = index.search(queries, DEPTH)
    searched = time.perf_counter()
    report = evaluate(index, queries, y_queries=digits.y_query, y_database=digits.y_database, k=DEPTH)
    unseen = evaluate(
        FlatIndex(queries), queries, y_queries=digits.y_query, y_database=digits.y_query, k=DEPTH, exclude_self=True
    )
    return Result(method, report, unseen.map, ids, queries.shape[1], fitted - started, searched - encoded)


def format_results(digits: Digits, results: Sequence[Result]) -> str:
    """The comparison as a table."""
    columns = ("method", "MAP", f"precision@{DEPTH}", "MAP unseen", "bytes/item", "fit s", "search s")
    rows = [
        (
            result.method,
            f"{result.report.map:.3f}",
            f"{result.report.precision_at_k:.3f}",
            f"{result.unseen_map:.3f}",
            str(result.n_bytes),
            f"{result.fit_seconds:.2f}",
            f"{result.search_seconds:.4f}",
        )
        for result in results
    ]
    n_queries, n_database = len(digits.X_query), len(digits.X_database)
    return (
        f"{n_queries} queries on {n_database:,} handwritten digits, the training set; {N_BITS} bits.\n"
        f"MAP unseen: each query searches the other {n_queries - 1}, none of which was seen in training.\n"
        f"Features take {4 * digits.X_query.shape[1]} bytes per item as float32.\n\n"
        f"{format_table(columns, rows)}\n"
    )


def draw(digits: Digits, results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Draw retrieved images and precision curves into a PNG file; raises ImportError if matplotlib is missing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(14, 6.6), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    FigureCanvasAgg(figure)  # draws without a screen
    images, curves = figure.subplots(1, 2, width_ratios=(1.2, 1))
    learned, threshold = (result for result in results if result.method in ("FastHash", "sign threshold"))
    _draw_images(images, digits, (learned, threshold))
    _draw_curves(curves, results)
    with atomic_write(path) as file:
        figure.savefig(file, format="png")


def _draw_images(ax: Axes, digits: Digits, results: Sequence[Result]) -> None:
    """The first query of each digit and the items that each method has at some ranks, framed green or red."""
    queries = [int(np.flatnonzero(digits.y_query == digit)[0]) for digit in range(10)]
    starts = [1.5 + number * (len(SHOWN_RANKS) + 0.5) for number in range(len(results))]
    ax.text(0, -0.7, "query", ha="center")
    for start, result in zip(starts, results, strict=True):
        centre = start + (len(SHOWN_RANKS) - 1) / 2
        ax.text(centre, -1.4, f"{result.method}, item at rank", ha="center", weight="bold")
        for place, rank in enumerate(SHOWN_RANKS):
            ax.text(start + place, -0.7, str(rank), ha="center")
    for row, query in enumerate(queries):
        _draw_image(ax, digits.X_query[query], 0, row, "#222222")
        for start, result in zip(starts, results, strict=True):
            for place, rank in enumerate(SHOWN_RANKS):
                item = result.ids[query, rank - 1]
                right = digits.y_database[item] == digits.y_query[query]
                _draw_image(ax, digits.X_database[item], start + place, row, RIGHT if right else WRONG)
    ax.set(xlim=(-0.6, starts[-1] + len(SHOWN_RANKS) - 0.4), ylim=(len(queries) - 0.4, -2), aspect="equal")
    ax.set_axis_off()
    ax.set_title("Retrieved images: the same digit in green, another one in red", fontsize=13)


def _draw_image(ax: Axes, pixels: NDArray[np.float64], x: float, y: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    half = 0.41
    ax.imshow(pixels.reshape(8, 8), cmap="gray_r", extent=(x - half, x + half, y + half, y - half))
    ax.add_patch(Rectangle((x - half, y - half), 2 * half, 2 * half, fill=False, color=colour, linewidth=2.5))


def _draw_curves(ax: Axes, results: Sequence[Result]) -> None:
    """Precision against the number of retrieved items."""
    for result, colour in zip(results, COLOURS, strict=True):
        report = result.report
        shown = report.precision_depths <= 2 * DEPTH
        label = f"{result.method} (MAP {report.map:.3f})"
        x, y = report.precision_depths[shown], report.precision_curve[shown]
        ax.plot(x, y, "o-", color=colour, label=label, linewidth=2)
    ax.axvline(N_DATABASE / 10, color="#999999", linestyle=":")
    ax.text(N_DATABASE / 10 * 0.94, 0.03, "images of one digit\nin the database", ha="right", color="#666666")
    ax.set_xscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("K, items retrieved", fontsize=11)
    ax.set_ylabel("precision among the first K", fontsize=11)
    ax.set_title(f"Precision at K, {N_BITS} bits ({results[0].n_bytes} bytes) per item", fontsize=13)
    ax.grid(alpha=0.3)
    ax.legend(loc="lower left", frameon=False, fontsize=11)


def index_digits(folder: str, *, seed: int) -> None:
    """Learn codes from some digits; write the others as image files, and an index of them with its model.

    Parameters
    ----------
    folder : str
        An empty folder; it gets the index ``digits.hgi`` and the folder ``images``.
    seed : int
        Seed of the split and of the model.
    """
    from PIL import Image

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    pixels, labels = digits.images[order], digits.target[order]
    images = resize_images((255 - pixels * 15.9).astype(np.uint8), IMAGE_SIDE, resampling="bicubic")
    # Threads of BLAS spin while they wait, which takes seconds on a busy machine with matrices this small.
    with threadpool_limits(1, user_api="blas"):
        extractor = Gist(image_size=IMAGE_SIDE).fit(images[:N_TRAINED])
        X = extractor.transform(images)
        hasher = FastHash(N_BITS, hash_function="posterior", random_state=seed).fit(X[:N_TRAINED], labels[:N_TRAINED])
        codes = hasher.transform(X[N_TRAINED:])
    names = [f"{label}/{number:04}.png" for number, label in zip(order[N_TRAINED:], labels[N_TRAINED:], strict=True)]
    for image, name in zip(images[N_TRAINED:], names, strict=True):
        path = os.path.join(folder, IMAGES, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with atomic_write(path) as file:
            Image.fromarray(image).save(file, "PNG")
    index = FlatIndex(codes, ids=names, model=hasher.encoder_)
    index.keep_features(X[N_TRAINED:], ids=names)
    index.save(os.path.join(folder, INDEX))
    hasher.save(os.path.join(folder, INDEX, MODEL), features=extractor)
