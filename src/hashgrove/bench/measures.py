"""What is measured in a run: its heading in a table, its digits, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURES", "Measure"]


@dataclass(frozen=True)
class Measure:
    """How a figure is shown and compared."""

    title: str
    digits: int = 4
    lower_is_better: bool = False


MEASURES = {
    "map": Measure("MAP"),
    "precision": Measure("precision@100"),
    "pr_area": Measure("PR area"),
    "map_by_margins": Measure("MAP by margins"),
    "precision_by_margins": Measure("precision@100 by margins"),
    "knn_error": Measure("50-NN error", lower_is_better=True),
    "svm_error": Measure("SVM error", lower_is_better=True),
    "objective": Measure("objective", lower_is_better=True),
    "training_error": Measure("training error of a bit", lower_is_better=True),
    "fit_seconds": Measure("training (s)", 1, lower_is_better=True),
    "encode_seconds": Measure("encoding (s)", 1, lower_is_better=True),
    "inference_seconds": Measure("step 1 (s)", 1, lower_is_better=True),
    "learning_seconds": Measure("step 2 (s)", 1, lower_is_better=True),
    "peak_memory_gb": Measure("peak memory (GB)", 2, lower_is_better=True),
}
