"""Opening what is served, and taking in what other processes have changed since."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hashgrove import index as indexes
from hashgrove.index.engines import Engine
from hashgrove.web.additions import Additions
from hashgrove.web.collection import Collection

if TYPE_CHECKING:
    from hashgrove.encoders import Encoder
    from hashgrove.features import ImageEncoder
    from hashgrove.storage.models import Learned

__all__ = ["open_index", "refresh"]


def open_index(place: str, *, model: str | None = None, read_only: bool = False) -> Collection:
    """Open an index by its folder or the URL of its engine, and its model.

    Parameters
    ----------
    place : str
        A folder, or a URL such as ``sqlite:///codes.db``.
    model : str, optional
        The file of the model; by default the one in the folder.
    read_only : bool
    """
    is_url = "://" in place
    index = indexes.connect(place, create=False) if is_url else indexes.load_index(place, writable=not read_only)
    own = os.path.join(place, "model.hashgrove")
    file = model or (own if os.path.exists(own) else None)
    try:
        name = _name_of(index.place) if isinstance(index, Engine) else os.path.basename(os.path.normpath(place))
        collection = Collection(index, name, read_only=read_only, additions=None)
        if not is_url:
            has = None if read_only else collection.which
            collection = replace(collection, additions=Additions(place, has=has))
        if file is None:
            return collection
        return replace(collection, model=_load(file), learned=_learned(file))
    except BaseException:
        index.close()
        raise


def refresh(collection: Collection) -> bool:
    """Take in what other processes have changed, where they can; return whether there was anything.

    An index with codes of another model is a `ParameterError`; it has to be opened anew, with its model.
    """
    if isinstance(collection.index, Engine):
        return collection.read_again()
    if not collection.read_only or collection.additions is None or collection.additions.folder is None:
        return False  # nobody else can change it
    is_new = collection.index.refresh(same_model=True)  # type: ignore[attr-defined]
    if is_new:
        collection.changed()
    are_new = collection.additions.refresh()
    if is_new and collection.look_up is not None:
        collection.details, collection.find_image = collection.look_up(collection)
    collection.describe_added()
    if is_new:
        collection.read()  # here, and not when a request needs it
    return is_new or are_new


def _name_of(place: str) -> str:
    """The name of a collection in an engine: the last part of its path, or its server.

    >>> _name_of("sqlite:///data/codes.db"), _name_of("milvus://ann@db.example:19530")
    ('codes.db', 'db.example:19530')
    """
    parts = urlsplit(place)
    return os.path.basename(parts.path.rstrip("/")) or parts.netloc.rpartition("@")[2]


def _learned(file: str) -> Learned:
    from hashgrove.storage.models import read_learned

    return read_learned(file)


def _load(file: str) -> Encoder | ImageEncoder:
    from hashgrove.storage.models import load

    return load(file)
