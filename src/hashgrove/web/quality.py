"""Report of retrieval quality by label, computed once, in the background."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np

from hashgrove.index.distinct import group_equal
from hashgrove.runtime.rounding import share_seen
from hashgrove.runtime.threads import chunks
from hashgrove.storage.formats import one_line
from hashgrove.web.collection import Collection

__all__ = ["Quality", "measure"]

log = logging.getLogger("hashgrove")

ALL = 5000  # items up to which each item is a query
N_QUERIES = 2000  # of a larger collection
DEPTH = 100
ROWS_PER_PIECE = 4096  # stored features that are in memory at a time


def measure(collection: Collection) -> dict[str, Any]:
    """Measure how often items of a label find each other.

    In a collection of at most 5,000 labelled items each searches the others. In a larger one, 2,000 items drawn
    by seed search the rest.
    """
    from hashgrove.metrics import evaluate

    ids, labels = collection.details.labelled
    codes, known = collection.codes_of(ids)
    codes, labels = codes[known], labels[known]
    n_items = len(codes)
    if n_items <= ALL:
        queries = np.arange(n_items)
        report = evaluate(codes, codes, y_queries=labels, y_database=labels, k=DEPTH, exclude_self=True, knn=None)
        protocol = "Each item searches all others."
    else:
        drawn = np.random.default_rng(0).permutation(n_items)
        queries, rest = drawn[:N_QUERIES], drawn[N_QUERIES:]
        report = evaluate(
            codes[rest], codes[queries], y_queries=labels[queries], y_database=labels[rest], k=DEPTH, knn=None
        )
        protocol = f"{N_QUERIES:,} items, drawn by seed, search the {len(rest):,} others."
    values = report.to_dict()
    counts = dict(zip(*(part.tolist() for part in np.unique(labels, return_counts=True)), strict=True))
    sizes = np.diff(group_equal(codes)[1])  # how many items share each code
    return {
        "n_items": n_items,
        "n_queries": len(queries),
        "n_bits": collection.n_bits,
        "precision": [
            [depth, round(value, 4)]
            for depth, value in zip(values["precision_depths"], values["precision_curve"], strict=True)
            if depth <= DEPTH
        ],
        "map": round(report.map, 4),
        "per_class": [
            {"label": str(label), "items": counts[str(label)], "map": round(value, 4)}
            for label, value in zip(values["classes"], values["class_map"], strict=True)
        ],
        "distinct": {"codes": len(sizes), "share": round(len(sizes) / n_items, 4), "largest": int(sizes.max())},
        "protocol": f"{protocol} Relevant: the same label. Ties: expected over their orders.",
        **_about_training(collection),
    }


def _about_training(collection: Collection) -> dict[str, Any]:
    """Whether the model was trained on the items, as far as that is known, and how good it was on held-out rows."""
    learned, stored = collection.learned, collection.stored_features
    if learned is None:
        return {"trained_share": None, "validation": None}
    share = None
    if stored is not None and learned.trained_on and collection.can_rerank:
        ids = stored.ids
        pieces = (stored.of(ids[start:stop]) for start, stop in chunks(len(ids), ROWS_PER_PIECE))
        share = share_seen(learned.trained_on, pieces)
    names = ("method", "n_bytes", "map", "precision_at_10")
    rows = [dict(zip(names, row, strict=True)) for row in learned.validation]
    return {
        "trained_share": share if share is None else round(share, 4),
        "validation": {"n_held_out": learned.n_held_out, "rows": rows} if rows else None,
    }


class Quality:
    """The report of a collection. `state` starts the computation where there is none, or where items have changed."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._starting = threading.Lock()
        self._state: dict[str, Any] | None = None
        self._of: object = None  # version of the collection

    def state(self) -> dict[str, Any]:
        """Status, with the report when it is ready, or the reason why there is none."""
        with self._starting:
            if self._state is not None and self._state["status"] == "running":
                return self._state
            now = self._collection.read()
            if self._of is not now:
                self._state, self._of = None, now
            if self._state is None and not self._collection.details.have_labels:
                self._state = {"status": "none", "reason": "Items have no labels."}
            elif self._state is None:
                self._state = {"status": "running"}
                threading.Thread(target=self._compute, name="hashgrove-report", daemon=True).start()
            return self._state

    def _compute(self) -> None:
        try:
            self._state = {"status": "ready", "report": measure(self._collection)}
        except (ValueError, MemoryError) as error:  # such as one class for each item
            self._state = {"status": "failed", "reason": one_line(error)}
        except Exception:
            log.exception("The report failed")
            self._state = {"status": "failed", "reason": "There was an error inside the service; its log says more."}
