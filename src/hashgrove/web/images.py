"""Images of items. The files that may be shown are known when the service starts; no path of a client is ever opened.

``hashgrove index build`` and ``index add`` of images write ``images.json`` into the folder of the index: the folders
that the images came from. An item has an image if its id is the path of a file in one of exactly these folders. With
``--images FOLDER`` an item has the image of that folder whose path in it, with or without its ending, is the id.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable
from functools import lru_cache

from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError

__all__ = ["FindImage", "images_in_folder", "large_image", "remember_images", "remembered_images", "thumbnail"]

FOLDERS = "images.json"
MAX_BYTES = 2**24  # of images.json
SIDE = 256  # pixels of a thumbnail
LARGE_SIDE = 1024  # of an image that is looked at by itself
CACHED = 1024  # thumbnails that stay in memory, about 10 kB each

FindImage = Callable[[str], str | None]  # from the id of an item to its image file


def remember_images(folder: str, ids: Iterable[str], *, keep_old: bool = False) -> None:
    """Write the folders of the images of an index into the folder of the index.

    Parameters
    ----------
    folder : str
        The folder of an index.
    ids : iterable of str
        The ids of items; those that end like the name of an image file are paths of images.
    keep_old : bool
        Whether folders that were remembered before stay, as when items are added.
    """
    old = _read(folder)
    places = {os.path.dirname(id_) for id_ in ids if _is_image(id_)}
    known = (old if keep_old else {}) | {place: os.path.abspath(place) for place in places}
    if known == old:
        return
    with atomic_write(os.path.join(folder, FOLDERS)) as file:
        file.write(json.dumps({"folders": known}, indent=1).encode())


def remembered_images(folder: str) -> FindImage | None:
    """A function that finds images in the folders that `remember_images` wrote; None if there are none."""
    folders = _read(folder)

    def find(id_: str) -> str | None:
        place, name = os.path.split(id_)
        if place not in folders or not _is_image(name):
            return None
        return os.path.join(folders[place], name)

    return find if folders else None


def _read(folder: str) -> dict[str, str]:
    path = os.path.join(folder, FOLDERS)
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        folders = json.loads(content)["folders"] if len(content) <= MAX_BYTES else None
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{path}: must be a JSON file with the folders of the images. It cannot be read.") from error
    if not isinstance(folders, dict) or not all(isinstance(place, str) for place in folders.values()):
        raise FileError(f"{path}: must have a mapping 'folders' from texts to texts. It has none.")
    return folders


def images_in_folder(folder: str) -> FindImage:
    """A function that finds the images of a folder by their path in it, with or without the ending."""
    from hashgrove.features.images import list_images

    by_name: dict[str, str] = {}
    for path in list_images(folder):
        name = os.path.relpath(path, folder)
        by_name.setdefault(os.path.splitext(name)[0], path)
        by_name[name] = path
    return by_name.get


def _is_image(name: str) -> bool:
    from hashgrove.features.images import ENDINGS

    return os.path.splitext(name)[1].lower() in ENDINGS


@lru_cache(maxsize=CACHED)
def thumbnail(path: str) -> bytes | None:
    """A small PNG or JPEG of an image file; None if there is no such image, or it cannot be read."""
    return _reduced(path, SIDE)


def large_image(path: str) -> bytes | None:
    """A PNG or JPEG of an image file for people to look at; None if there is none. It is not kept in memory."""
    return _reduced(path, LARGE_SIDE)


def _reduced(path: str, side: int) -> bytes | None:
    from PIL import Image

    from hashgrove.features.images import ImageFileError, read_image

    try:
        image = Image.fromarray(read_image(path))
    except ImageFileError:
        return None
    buffer = io.BytesIO()
    if max(image.size) <= SIDE // 2:  # such as handwritten digits, which JPEG would blur
        image.save(buffer, "PNG")
    else:
        image.thumbnail((side, side))
        image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
