"""Files that the commands read. They are checked against each other before long work, and errors name the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.cli import options
from hashgrove.features import FeatureExtractor, load_extractor
from hashgrove.runtime.memory import memory_limit
from hashgrove.storage.atomic import check_replaceable
from hashgrove.storage.columns import Columns, read_rows
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import check_finite, read_labels, read_matrix
from hashgrove.storage.stored_rows import StoredRows

__all__ = [
    "check_min_shared",
    "check_output",
    "read_extractor",
    "read_lines",
    "read_rows_labels",
    "read_supervision",
]


def check_output(path: str, *, inputs: Iterable[str | None], outputs: Iterable[str | None] = ()) -> None:
    """Refuse, before any work is done, an output file that cannot be written, or that is an input or another output."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileError(f"{path}: cannot be written: there is no folder {folder}")
    check_replaceable(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{path}: cannot be written: no permission to write in the folder {folder}")
    for what, names in (("input", inputs), ("output", outputs)):
        for name in filter(None, names):
            if _is_same_file(path, re.sub(r"(?i)(\.npz):[^/\\]+$", r"\1", name)):
                raise FileError(f"{path}: must not be the {what} file {name} itself. Give another output.")


def _is_same_file(path: str, other: str) -> bool:
    """Whether two names mean one file, which need not exist yet."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def check_min_shared(settings: Mapping[str, Any], labels: NDArray[Any] | None) -> None:
    """Refuse --min-shared for anything but a tag matrix, where it would have no effect."""
    no_tags = labels is None or labels.ndim == 1
    options.refuse(no_tags and "min_shared" in settings, "--min-shared is for tags only.")


def read_supervision(
    features: str,
    *,
    labels: str | None,
    label_column: str | None,
    id_column: str | None,
    feature_columns: str | None,
    pairs: str | None,
    triplets: str | None,
    unlabelled: str | None,
    sample_weight: str | None,
    cache: str | None,
) -> tuple[NDArray[Any] | StoredRows, dict[str, Any]]:
    """Features, and the arguments of `FastHash.fit` that say which of their rows are similar.

    Features stay on the disk if ``cache`` is given, if they are a folder of shards, or if a .npy file is larger than
    half of the memory. The arguments are only those that were given, of ``y``, ``affinity``, ``triplets``,
    ``unlabelled`` and ``sample_weight``.
    """
    columns = Columns.of(label_column, id_column, feature_columns)
    X: NDArray[Any] | StoredRows
    y: NDArray[Any] | None = None
    if cache is not None or os.path.isdir(features) or _is_large(features):
        if columns.any_named:
            raise FileError(f"{features}: must be read as a whole to choose columns. Leave --cache out.")
        X = StoredRows(features, cache=cache)
    else:
        X, y, _ = read_rows(features, columns)
        check_finite(features, X)
    found: dict[str, Any] = {}
    if labels is not None:
        y = read_rows_labels(labels, rows=len(X), of=features, may_be_missing=True)
    elif y is not None:
        check_finite(features, y, allow_nan=True)
    if y is not None:
        found["y"] = y
    if unlabelled is not None and y is not None:
        found["unlabelled"] = _as_label(unlabelled, y)
    for argument, path in (("affinity", pairs), ("triplets", triplets)):
        if path is not None:
            found[argument] = read_matrix(path)
            check_finite(path, found[argument])
    if sample_weight is not None:
        found["sample_weight"] = _read_weights(sample_weight, rows=len(X), of=features)
    return X, found


def _is_large(features: str) -> bool:
    is_npy = features.lower().endswith(".npy") and os.path.isfile(features)
    return is_npy and os.path.getsize(features) > memory_limit() / 2


def _as_label(text: str, labels: NDArray[Any]) -> Any:
    """The value of --unlabelled as a value of the type that the labels have."""
    if labels.dtype == object:  # some are missing
        labels = np.array([label for label in labels.tolist() if label is not None])
    if labels.dtype.kind not in "iuf":
        return text
    try:
        return float(text) if labels.dtype.kind == "f" else int(text)
    except ValueError:
        options.refuse(True, f"--unlabelled must be a number, as the labels are {labels.dtype}. Got {text!r}.")


def _read_weights(path: str, *, rows: int, of: str) -> NDArray[Any]:
    weights = read_rows_labels(path, rows=rows, of=of)
    if weights.ndim != 1 or weights.dtype.kind not in "iuf":
        raise FileError(f"{path}: must be one number per row. Got {weights.dtype} of shape {weights.shape}.")
    return weights


def read_rows_labels(path: str, *, rows: int, of: str, may_be_missing: bool = False) -> NDArray[Any]:
    """Class labels, shape (rows,), or tags, shape (rows, tags), of the rows of the file ``of``.

    With ``may_be_missing`` a class label may be NaN, which marks a row without a label.
    """
    labels = read_labels(path)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if len(labels) != rows:
        raise FileError(f"{path}: must have {rows} rows, one for each row of {of}. Got {len(labels)} instead.")
    check_finite(path, labels, allow_nan=may_be_missing and labels.ndim == 1)
    return labels


def read_lines(path: str) -> list[str]:
    """The lines of a text file."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: must be a text file in UTF-8 with one id per line. It cannot be read.") from error


def read_extractor(path: str | None, *, n_features: int, of: str) -> FeatureExtractor | None:
    """The extractor in a file, if one is given; it must give as many features as the file ``of`` has per row."""
    if path is None:
        return None
    extractor = load_extractor(path)
    if extractor.n_features_ != n_features:
        raise FileError(
            f"{path}: must give {n_features} features, as {of} has per row. Got {extractor.n_features_} instead."
        )
    return extractor
