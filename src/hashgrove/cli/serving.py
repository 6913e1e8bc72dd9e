"""What the commands ``serve`` and ``demo --serve`` serve: an index with its model, labels, fields and images."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details, read_fields
from hashgrove.web.images import images_in_folder, remembered_images

__all__ = ["check_installed", "open_collection"]


def open_collection(
    place: str,
    *,
    model: str | None = None,
    labels: str | None = None,
    labels_from_folders: bool = False,
    fields: str | None = None,
    images: str | None = None,
    read_only: bool = False,
) -> Collection:
    """Open an index and everything that is known about its items.

    Parameters
    ----------
    place : str
        The folder of an index, or the URL of an engine.
    model : str, optional
        File of the model, if the index holds none.
    labels : str, optional
        File with one label per item, in ascending order of the ids.
    labels_from_folders : bool
        Whether the name of the folder in an image's path is its label.
    fields : str, optional
        File in which the column "id" says whose fields these are; "label" and "name" may be among them.
    images : str, optional
        Folder with an image per item; without it, those that the index was built from.
    read_only : bool
    """
    check_installed()
    collection = Collection.open(place, model=model, read_only=read_only)
    try:
        needs_ids = labels is not None or labels_from_folders or fields is not None
        if needs_ids:
            ids = collection.contents()[0]
            columns = {} if fields is None else read_fields(fields, ids)
            found = columns.pop("label", None)
            known = _labels(ids, labels, labels_from_folders, of=place)
            if known is None and found is not None:
                known = np.array(found, np.str_)
            collection = replace(collection, details=Details(ids, labels=known, columns=columns))
        find = images_in_folder(images) if images is not None else remembered_images(place)
        return replace(collection, find_image=find)
    except BaseException:
        collection.index.close()
        raise


def _labels(ids: NDArray[Any], file: str | None, from_folders: bool, *, of: str) -> NDArray[np.str_] | None:
    if from_folders:
        names = [os.path.basename(os.path.dirname(str(id_))) for id_ in ids.tolist()]
        if not any(names):
            raise FileError(f"{of}: must have paths of images as ids for --labels-from-folders. It has none.")
        return np.array(names, np.str_)
    if file is None:
        return None
    from hashgrove.cli.inputs import read_rows_labels  # it loads everything that a model needs

    labels = read_rows_labels(file, rows=len(ids), of=of, may_be_missing=True)
    if labels.ndim != 1:
        raise FileError(f"{file}: must have one label per item. Got tags of shape {labels.shape}.")
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), np.bool_)
    whole = labels.dtype.kind == "f" and bool((labels[~missing] == np.trunc(labels[~missing])).all())
    texts = [str(int(label)) if whole else str(label) for label in labels[~missing].tolist()]
    shown = np.full(len(labels), "", np.array(texts, np.str_).dtype if texts else "<U1")
    shown[~missing] = texts
    return shown


def check_installed() -> None:
    """Refuse early, in one line, where the packages of the service are missing."""
    if not all(find_spec(name) for name in ("fastapi", "httptools", "python_multipart", "uvicorn")):
        raise FileError("The service needs more packages: pip install 'hashgrove[serve]'")
