"""Search of packed codes by Hamming distance. `Index` states the contract of every index; `INDEXES` lists them."""

from __future__ import annotations

import os

from hashgrove.index.base import Index
from hashgrove.index.flat import FlatIndex
from hashgrove.storage import modelfile

__all__ = ["INDEXES", "FlatIndex", "Index", "load"]

INDEXES: dict[str, type[Index]] = {"flat": FlatIndex}


def load(path: str | os.PathLike[str]) -> Index:
    """Read an index of any kind from a file.

    Parameters
    ----------
    path : path
        A file that `Index.save` wrote. It is treated as untrusted and checked completely.

    Returns
    -------
    index : Index
        Of the class that was saved.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/codes.index"
    >>> FlatIndex(np.array([[1], [2]], np.uint8)).save(path)
    >>> load(path)
    FlatIndex(2 codes of 1 bytes)
    """
    header, arrays = modelfile.read(path, kind="index")
    classes = {index_class.__name__: index_class for index_class in INDEXES.values()}
    index_class = classes.get(str(header.get("index")))
    if index_class is None:
        raise modelfile.ModelFileError(
            f"{os.fspath(path)}: must hold an index of one of the types {sorted(classes)}. "
            f"Got {header.get('index')!r} instead."
        )
    return index_class.from_file(path, header, arrays)
