"""Files that the commands read. They are checked against each other before long work, and errors name the file."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import load
from hashgrove.cli import options
from hashgrove.cli.images import encode_images, read_image_input
from hashgrove.encoders import Encoder
from hashgrove.features import FeatureExtractor, ImageEncoder
from hashgrove.features import load as load_extractor
from hashgrove.runtime.threads import chunks
from hashgrove.storage.atomic import check_replaceable
from hashgrove.storage.formats import FileError
from hashgrove.storage.matrices import read_codes, read_labels, read_matrix, read_table

__all__ = [
    "check_min_shared",
    "check_output",
    "encode_file",
    "read_database",
    "read_extractor",
    "read_packed",
    "read_rows_labels",
    "read_supervision",
]

CHUNK_BYTES = 2**26  # of features that are read and encoded at a time


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
    pairs: str | None,
    triplets: str | None,
    unlabelled: str | None,
    sample_weight: str | None,
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Features, and the arguments of `FastHash.fit` that say which of their rows are similar.

    The arguments are only those that were given, of ``y``, ``affinity``, ``triplets``, ``unlabelled`` and
    ``sample_weight``.
    """
    X, y = read_table(features, label_column=label_column)
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


def _as_label(text: str, labels: NDArray[Any]) -> Any:
    """The value of --unlabelled as a value of the type that the labels have."""
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


def read_database(
    codes: str, queries: str, model: str | None, *, n_jobs: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes of the database and codes of the queries; with a model, ``queries`` holds features to encode."""
    database = read_packed(codes, advice="encode them first")
    if model is None:
        found = read_packed(queries, advice="give --model")
        if found.shape[1] != database.shape[1]:
            raise FileError(
                f"{queries}: codes must have {database.shape[1]} bytes per row, as {codes} has. "
                f"Got {found.shape[1]} instead; if they are features, give --model."
            )
        return database, found
    encoder = load(model)
    width = (encoder.n_bits + 7) // 8
    if database.shape[1] != width:
        raise FileError(
            f"{codes}: codes must have {width} bytes per row, for the {encoder.n_bits} bits of {model}. "
            f"Got {database.shape[1]} instead."
        )
    return database, encode_file(encoder, queries, model=model, n_jobs=n_jobs)[0]


def read_packed(path: str, *, advice: str) -> NDArray[np.uint8]:
    """Packed codes; any type but uint8 is refused, even whole numbers, because such a matrix holds features."""
    if not path.lower().endswith(".csv"):
        matrix = read_matrix(path)
        if matrix.dtype != np.uint8:
            raise FileError(
                f"{path}: must be packed codes, a 2-D array of uint8. Got {matrix.dtype} instead; "
                f"if they are features, {advice}."
            )
    return read_codes(path)


def encode_file(
    encoder: Encoder | ImageEncoder, path: str, *, model: str, n_jobs: int | None
) -> tuple[NDArray[np.uint8], list[str] | None]:
    """Codes of the features in a file or, with an `ImageEncoder`, of images; and the names of image files."""
    if isinstance(encoder, ImageEncoder):
        images = read_image_input(path, or_matrix=True)
        if isinstance(images, list) or images.ndim > 2:
            return encode_images(encoder, images, n_jobs), images if isinstance(images, list) else None
        encoder = encoder.encoder
    return _encode_features(encoder, path, model, n_jobs), None


def _encode_features(encoder: Encoder, path: str, model: str, n_jobs: int | None) -> NDArray[np.uint8]:
    """Codes of a matrix that is read chunk by chunk, with a progress bar if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import track

    X = read_matrix(path)
    if X.shape[1] != encoder.n_features:
        raise FileError(
            f"{path}: must have {encoder.n_features} features per row, as {model} was trained on. "
            f"Got {X.shape[1]} instead."
        )
    codes = np.empty((len(X), (encoder.n_bits + 7) // 8), np.uint8)
    parts = chunks(len(X), _rows_per_chunk(X))
    quiet = len(parts) < 2 or not sys.stderr.isatty()
    for start, stop in track(parts, "encoding", console=Console(stderr=True), disable=quiet):
        check_finite(path, X[start:stop], first_row=start)
        codes[start:stop] = encoder.encode(X[start:stop], n_jobs=n_jobs)
    return codes


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


def _rows_per_chunk(X: NDArray[Any]) -> int:
    return max(1, CHUNK_BYTES // (8 * max(1, math.prod(X.shape[1:]))))


def check_finite(path: str, array: NDArray[Any], *, first_row: int = 0, allow_nan: bool = False) -> None:
    """Refuse infinity and, unless allowed, NaN, and say where the first one is."""
    if array.dtype.kind != "f":
        return
    for start, stop in chunks(len(array), _rows_per_chunk(array)):
        part = array[start:stop]
        wrong = np.argwhere(np.isinf(part) if allow_nan else ~np.isfinite(part))
        if len(wrong):
            value = part[tuple(wrong[0])]
            row = first_row + start + wrong[0][0]
            column = f", column {wrong[0][1]}" if array.ndim == 2 else ""
            raise FileError(f"{path}: must hold finite numbers. Got {value} in row {row}{column}, counted from 0.")
