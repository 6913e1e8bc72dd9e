"""What the commands about an index share: items from files and images, their ids, and the model in the index."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from hashgrove import ITQ, FastHash, OnnxFeatures, load
from hashgrove import index as indexes
from hashgrove.cli.images import names_file, read_image_input
from hashgrove.cli.inputs import encode_file, read_packed
from hashgrove.cli.output import file_size, format_pairs, printable
from hashgrove.encoders import Encoder
from hashgrove.features import FeatureExtractor, ImageEncoder
from hashgrove.hasher import Hasher
from hashgrove.index.folder import MODEL
from hashgrove.index.manifest import is_index_folder
from hashgrove.index.memory import MemoryIndex
from hashgrove.metrics import describe_codes
from hashgrove.runtime.progress import show_count
from hashgrove.storage.formats import FileError
from hashgrove.storage.matrices import read_matrix
from hashgrove.web.images import remember_images

__all__ = [
    "Found",
    "add_items",
    "as_ids",
    "learn_from_images",
    "open_for_queries",
    "read_items",
    "read_lines",
    "say_what_was_indexed",
    "stored_model",
    "write_index",
    "write_info",
]


@dataclass(frozen=True, eq=False)
class Found:
    """Items that a command was given: codes, and where known their ids, features and model."""

    codes: NDArray[np.uint8]
    ids: list[str] | None = None
    features: NDArray[Any] | None = None
    encoder: Encoder | ImageEncoder | None = None
    model: str | None = None  # the file of the model
    hasher: Hasher | None = None  # what was learned from the images
    extractor: FeatureExtractor | None = None


def read_lines(path: str) -> list[str]:
    """The lines of a text file."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: must be a text file in UTF-8 with one id per line. It cannot be read.") from error


def stored_model(folder: str) -> str | None:
    """The file of the model that an index holds; None if it holds none."""
    path = os.path.join(folder, MODEL)
    return path if os.path.exists(path) else None


def read_items(path: str, model: str | None, *, ids: str | None, n_jobs: int | None) -> Found:
    """Items of a command's argument: packed codes without a model, otherwise features or images."""
    if model is None:
        found = Found(read_packed(path, advice="give --model"))
    else:
        encoder = load(model)
        found = _encoded(encoder, path, model, n_jobs)
    names = found.ids
    if ids is not None:
        names = read_lines(ids)
    elif names is None and os.path.isfile(names_file(path)):
        names = read_lines(names_file(path))
    if names is not None and len(names) != len(found.codes):
        raise FileError(
            f"{ids or names_file(path)}: must have {len(found.codes)} lines, one for each row of {path}. "
            f"Got {len(names)}."
        )
    return replace(found, ids=names)


def _encoded(encoder: Encoder | ImageEncoder, path: str, model: str, n_jobs: int | None) -> Found:
    if isinstance(encoder, ImageEncoder):
        images = read_image_input(path, or_matrix=True)
        if isinstance(images, list) or images.ndim > 2:
            features = _image_features(encoder.features, images, n_jobs)
            names = images if isinstance(images, list) else None
            return Found(encoder.encoder.encode(features, n_jobs=n_jobs), names, features, encoder, model)
    codes, _ = encode_file(encoder, path, model=model, n_jobs=n_jobs)
    return Found(codes, None, read_matrix(path), encoder, model)


def _image_features(extractor: FeatureExtractor, images: Any, n_jobs: int | None) -> NDArray[Any]:
    parts = []
    with show_count("images", len(images)) as show:
        for done, _, features in extractor.batches(images, n_jobs=n_jobs):
            parts.append(features)
            show(done)
    return np.concatenate(parts)


def open_for_queries(folder: str, queries: str, model: str | None, *, n_jobs: int | None) -> tuple[MemoryIndex, Found]:
    """An index, and queries that fit it: encoded by ``model``, or else by the model in the index."""
    opened = indexes.load(folder)
    found = read_items(queries, model or stored_model(folder), ids=None, n_jobs=n_jobs)
    opened.search(found.codes[:0], 1, model=found.encoder)  # refuses wrong codes before anything is printed
    return opened, found


def learn_from_images(
    path: str,
    network: str,
    settings: Mapping[str, Any],
    *,
    n_bits: int,
    by_folder: bool,
    seed: int,
    n_jobs: int | None,
) -> Found:
    """Features of images by a network, and codes that are learned from them: from their folders, or without labels."""
    images = read_image_input(path)
    if not isinstance(images, list):
        raise FileError(f"{path}: must be a folder or a list of images for --network. Got an array.")
    extractor = OnnxFeatures(network, **settings, n_jobs=n_jobs).fit(images)
    X = _image_features(extractor, images, n_jobs)
    if by_folder:
        folders = [os.path.dirname(image) for image in images]
        if len(set(folders)) < 2:
            raise FileError(f"{path}: must have images in at least two folders for --labels-from-folders.")
        hasher: Hasher = FastHash(n_bits, random_state=seed, n_jobs=n_jobs).fit(X, np.array(folders))
    else:
        n_bits = min(n_bits, ITQ(n_bits).max_bits(n_samples=len(X), n_features=X.shape[1]))
        hasher = ITQ(n_bits, random_state=seed).fit(X)
    codes = hasher.transform(X)
    return Found(codes, images, X, hasher.encoder_, hasher=hasher, extractor=extractor)


def write_index(output: str, found: Found, *, keep: bool) -> None:
    """Write an index with the items, and the model and the features beside it."""
    if os.path.exists(output) and not is_index_folder(output):
        raise FileError(f"{output}: must be an index, or not exist. Got something else.")
    built = indexes.build(found.codes, ids=found.ids, model=found.encoder)
    if keep and found.features is not None:
        built.keep_features(found.features, ids=np.arange(len(built)) if found.ids is None else found.ids)
    built.save(output)
    remember_images(output, found.ids or ())
    target = os.path.join(output, MODEL)
    if found.hasher is not None:
        found.hasher.save(target, features=found.extractor)
    elif found.model is not None and os.path.realpath(found.model) != os.path.realpath(target):
        shutil.copyfile(found.model, target)


def add_items(folder: str, found: Found, *, replace: bool) -> int:
    """Add items to an index; return how many it has then."""
    with indexes.load(folder, writable=True) as opened:
        before = opened.ids
        if replace:
            if found.ids is None:
                raise FileError(f"{folder}: items must have ids to be replaced. Give --ids.")
            opened.update(found.codes, ids=as_ids(found.ids, opened), insert=True, model=found.encoder)
            added: Any = as_ids(found.ids, opened)
        else:
            ids = None if found.ids is None else as_ids(found.ids, opened)
            opened.add(found.codes, ids=ids, model=found.encoder)
            added = ids if ids is not None else np.setdiff1d(opened.ids, before)
        if opened.features is not None and found.features is not None:
            opened.keep_features(found.features, ids=added)
        remember_images(folder, found.ids or (), keep_old=True)
        return len(opened)


def as_ids(names: list[str], index: MemoryIndex) -> Any:
    """Ids from the command line, of the type that the index has."""
    if len(index) == 0 or index.ids.dtype.kind == "U":
        return names
    try:
        return [int(name) for name in names]
    except ValueError:
        raise FileError("the ids of the index are integers. Got text instead.") from None


def say_what_was_indexed(found: Found, output: str) -> None:
    """Print how many items there are and how many codes are distinct, and warn if these have collapsed."""
    distinct, warning = describe_codes(found.codes)
    click.echo(f"Wrote {len(found.codes):,} items of {found.codes.shape[1]} bytes to {output}; {distinct}", err=True)
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)


def write_info(folder: str, *, style: str | None) -> None:
    """Print what an index holds."""
    opened = indexes.load(folder)
    kept = opened.features
    distinct, warning = describe_codes(opened.codes) if len(opened) else ("none", None)
    size = sum(path.stat().st_size for path in Path(folder).iterdir()) if os.path.isdir(folder) else 0
    rows: dict[str, Any] = {
        "index": folder,
        "type": type(opened).__name__,
        "items": len(opened),
        "bytes per code": opened.n_bytes,
        "codes": distinct,
        "ids": {"U": "texts", "i": "integers"}[opened.ids.dtype.kind] if len(opened) else None,
        "model": opened.model,
        "model file": stored_model(folder),
        "features kept": None if kept is None else f"{len(kept.ids)} rows of {kept.X.shape[1]}",
        "size on disk": file_size(size),
        "warning": warning,
    }
    if style == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo(format_pairs((name, printable(value)) for name, value in rows.items() if value is not None))
