"""Items of the commands' arguments: packed codes, features or images from files, with their ids and their model.

Files of codes do not say which model made them. `--model` says it: it encodes features and images, and it is the model
of packed codes.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import load
from hashgrove.cli.images import names_file, read_image_input
from hashgrove.cli.inputs import read_lines
from hashgrove.encoders import Encoder
from hashgrove.features import FeatureExtractor, ImageEncoder
from hashgrove.index import FlatIndex, Index, connect, load_index
from hashgrove.index.folder import MODEL
from hashgrove.runtime.credentials import hide_credentials
from hashgrove.runtime.progress import show_count, show_step
from hashgrove.runtime.threads import chunks
from hashgrove.storage.columns import Columns, read_rows
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import check_finite, read, read_codes, read_matrix, rows_per_chunk

__all__ = [
    "InputItems",
    "as_ids",
    "check_known_model",
    "encode_file",
    "encode_images",
    "extract_features",
    "is_url",
    "open_database",
    "read_items",
    "stored_model",
]

ALL_COLUMNS = Columns()  # none is named: all of them are features
MATRIX = re.compile(r"(?i)\.(npy|csv|parquet|npz(:[^/\\]+)?)$")  # names of files that hold a matrix


@dataclass(frozen=True, eq=False)
class InputItems:
    """Items that a command was given: codes and, where known, ids, features and the model that made the codes."""

    codes: NDArray[np.uint8]
    ids: list[str] | None = None
    features: NDArray[Any] | None = None
    encoder: Encoder | ImageEncoder | None = None
    model_file: str | None = None


def is_url(place: str) -> bool:
    """Whether a place is the URL of an engine, such as sqlite:///codes.db."""
    return "://" in place


def stored_model(folder: str) -> str | None:
    """The file of the model that an index holds; None if it holds none."""
    path = os.path.join(folder, MODEL)
    return path if os.path.exists(path) else None


def read_items(
    path: str,
    model: str | None,
    *,
    stored: str | None = None,
    ids: str | None = None,
    columns: Columns = ALL_COLUMNS,
    n_jobs: int | None = None,
) -> InputItems:
    """Read items: packed codes without a model, otherwise features or images to encode, or codes of the model.

    Parameters
    ----------
    path : str
        A file of codes or features, or images as `read_image_input` takes them.
    model : str, optional
        File of the model that the caller named.
    stored : str, optional
        File of the model that encodes features and images if the caller named none. Codes may be of another model, so
        they are refused.
    ids : str, optional
        File of ids; by default the file of names beside ``path``, if there is one.
    columns : Columns
        Columns of a table with features.
    n_jobs : int, optional
    """
    file = model or stored
    if columns.id is not None and ids is not None:
        raise FileError(f"{path}: must have ids in a file or in a column, not both. Give --ids or --id-column.")
    if columns.any_named and file is None:
        raise FileError(f"{path}: must be features if columns are named. Give --model to encode them.")
    if file is None:
        items = InputItems(_read_packed(path, advice="give --model"))
    else:
        encoder = load(file)
        codes = None if columns.any_named else _packed_codes(path, encoder)
        if codes is not None and model is None:
            raise FileError(
                f"{path}: must be features or images. Got packed codes; say which model made them by --model."
            )
        items = (
            InputItems(codes)
            if codes is not None
            else encode_file(encoder, path, model=file, columns=columns, n_jobs=n_jobs)
        )
        items = replace(items, encoder=encoder, model_file=file)
    return replace(items, ids=_read_ids(ids, path, items))


def _read_ids(ids: str | None, path: str, items: InputItems) -> list[str] | None:
    if ids is None and (items.ids is not None or not os.path.isfile(names_file(path))):
        return items.ids
    file = ids or names_file(path)
    names = read_lines(file)
    if len(names) != len(items.codes):
        raise FileError(f"{file}: must have {len(items.codes)} lines, one for each row of {path}. Got {len(names)}.")
    return names


def _packed_codes(path: str, encoder: Encoder | ImageEncoder) -> NDArray[np.uint8] | None:
    """Codes in a file that has their type and as many bytes per row as the model; None for anything else.

    Features are never taken for codes: a model with as many features as its codes have bytes encodes the file.
    """
    if not MATRIX.search(path):
        return None
    n_features = encoder.n_features if isinstance(encoder, Encoder) else encoder.encoder.n_features
    array, _ = read(path, None)
    may_be_codes = array.dtype == np.uint8 or _is_csv(path)
    is_packed = array.ndim == 2 and array.shape[1] == _n_bytes(encoder) != n_features and may_be_codes
    return read_codes(path) if is_packed else None


def extract_features(extractor: FeatureExtractor, images: Any, n_jobs: int | None) -> NDArray[Any]:
    """Features of images, with a progress bar if stderr is a terminal."""
    with show_count("images", len(images)) as show:
        parts = []
        for done, _, features in extractor.batches(images, n_jobs=n_jobs):
            parts.append(features)
            show(done)
    return np.concatenate(parts)


def encode_file(
    encoder: Encoder | ImageEncoder, path: str, *, model: str, columns: Columns = ALL_COLUMNS, n_jobs: int | None
) -> InputItems:
    """Encode the features in a file, or images, and keep the features; `hashgrove.streaming` keeps none."""
    if isinstance(encoder, ImageEncoder) and not columns.any_named:
        images = read_image_input(path, or_matrix=True)
        if isinstance(images, list) or images.ndim > 2:
            codes, features = encode_images(encoder, images, n_jobs, keep_features=True)
            return InputItems(codes, images if isinstance(images, list) else None, features)
    rows_encoder: Any = getattr(encoder, "encoder", encoder)  # the part of an ImageEncoder that takes features
    rows = read_rows(path, columns)
    ids = None if rows.ids is None else [str(id_) for id_ in rows.ids.tolist()]
    return InputItems(_encode_features(rows_encoder, rows.X, path, model, n_jobs), ids, features=rows.X)


def encode_images(
    encoder: ImageEncoder, images: NDArray[Any] | list[str], n_jobs: int | None, *, keep_features: bool
) -> tuple[NDArray[np.uint8], NDArray[Any] | None]:
    """The codes of images and, if wanted, their features, with a progress bar if stderr is a terminal."""
    codes, kept = [], []
    with show_count("images", len(images)) as show:
        for done, _, features in encoder.features.batches(images, n_jobs=n_jobs):
            codes.append(encoder.encoder.encode(features, n_jobs=n_jobs))
            if keep_features:
                kept.append(features)
            show(done)
    return np.concatenate(codes), np.concatenate(kept) if keep_features else None


def _encode_features(encoder: Encoder, X: NDArray[Any], path: str, model: str, n_jobs: int | None) -> NDArray[np.uint8]:
    if X.shape[1] != encoder.n_features:
        raise FileError(
            f"{path}: must have {encoder.n_features} features per row, as {model} was trained on. "
            f"Got {X.shape[1]} instead."
        )
    codes = np.empty((len(X), _n_bytes(encoder)), np.uint8)
    with show_step(f"encoding {path}") as say:
        for start, stop in chunks(len(X), rows_per_chunk(X)):
            check_finite(path, X[start:stop], first_row=start)
            codes[start:stop] = encoder.encode(X[start:stop], n_jobs=n_jobs)
            say(f"encoding {path}: {stop:,} of {len(X):,} rows")
    return codes


def open_database(
    path: str, queries: str, model: str | None, *, columns: Columns = ALL_COLUMNS, n_jobs: int | None
) -> tuple[Index, InputItems]:
    """Open an index or an engine, or make an index from a file of codes, and read the queries, which must fit it."""
    if is_url(path):
        engine = connect(path, create=False)
        items = read_items(queries, model, columns=columns, n_jobs=n_jobs)
        check_known_model(engine, items, hide_credentials(path), queries)
        engine.search(items.codes[:0], 1, model=items.encoder)
        return engine, items
    if not MATRIX.search(path) and not os.path.exists(path):
        raise MissingFileError(f"{path}: no such file or folder")
    if os.path.isdir(path):
        index = load_index(path)
        items = read_items(queries, model, stored=stored_model(path), columns=columns, n_jobs=n_jobs)
        check_known_model(index, items, path, queries)
        index.search(items.codes[:0], 1, model=items.encoder)  # refuses wrong codes before anything is printed
        return index, items
    codes = _read_packed(path, advice="encode them first")
    items = read_items(queries, model, columns=columns, n_jobs=n_jobs)
    if codes.shape[1] != items.codes.shape[1]:
        raise FileError(_width_error(path, codes, queries, items))
    return FlatIndex(codes, model=items.encoder), items


def _width_error(path: str, codes: NDArray[np.uint8], queries: str, items: InputItems) -> str:
    n_database, n_queries = codes.shape[1], items.codes.shape[1]
    if items.encoder is not None:
        bits = f"the {items.encoder.n_bits} bits of {items.model_file}"
        return f"{path}: codes must have {n_queries} bytes per row, for {bits}. Got {n_database} instead."
    return (
        f"{queries}: codes must have {n_database} bytes per row, as {path} has. "
        f"Got {n_queries} instead; if they are features, give --model."
    )


def check_known_model(index: Any, items: InputItems, place: str, path: str) -> None:
    """Refuse codes of an unknown model where the index at ``place`` knows its own."""
    if index.model is not None and items.encoder is None:
        raise FileError(f"{path}: must be codes of the model of {place}. Say which model made them by --model.")


def as_ids(names: list[str], index: Any) -> Any:
    """Ids from the command line, of the type that the index has."""
    if len(index) == 0 or index.ids.dtype.kind == "U":
        return names
    try:
        return [int(name) for name in names]
    except ValueError:
        raise FileError("the ids of the index are integers. Got text instead.") from None


def _read_packed(path: str, *, advice: str) -> NDArray[np.uint8]:
    """Packed codes; any type but uint8 is refused, even whole numbers, because such a matrix holds features."""
    if not _is_csv(path):
        matrix = read_matrix(path)
        if matrix.dtype != np.uint8:
            raise FileError(
                f"{path}: must be packed codes, a 2-D array of uint8. Got {matrix.dtype} instead; "
                f"if they are features, {advice}."
            )
    return read_codes(path)


def _is_csv(path: str) -> bool:
    return path.lower().endswith(".csv")


def _n_bytes(encoder: Encoder | ImageEncoder) -> int:
    return math.ceil(encoder.n_bits / 8)
