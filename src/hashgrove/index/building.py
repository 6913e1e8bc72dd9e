"""Make the index that is fastest for some codes, and load an index of any kind: `build_index`, `load_index`."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from hashgrove.codes import check_codes
from hashgrove.index.flat import FlatIndex
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.multi_index import MultiIndex
from hashgrove.index.store import Store
from hashgrove.runtime.parameters import Integer
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["INDEXES", "build_index", "load_index"]

INDEXES: dict[str, type[MemoryIndex]] = {"flat": FlatIndex, "multi": MultiIndex}

N_SAMPLE = 64
WORTH = 0.5  # tables are chosen where they cost less than this part of a scan


def build_index(
    codes: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    model: object = None,
    k: int = 10,
    radius: int | None = None,
    queries: ArrayLike | None = None,
) -> FlatIndex:
    """Make the index that is fastest for some codes: a `FlatIndex` or a `MultiIndex`. Both give the same results.

    Tables (`MultiIndex`) are many times as fast for codes of a trained model, which lie close together, and for
    near-duplicates; a scan (`FlatIndex`) is faster for codes without neighbours. Which is the case is measured: 64
    queries are searched for by tables, and these are chosen if they compare less than half of the codes.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
    ids : array-like of int or str, shape (n,), optional
    model : str, or an object with the attribute ``digest``, optional
    k : int
        The number of neighbours that you will search for.
    radius : int, optional
        The radius that you will search with, if you will search by radius. Then ``k`` is not used.
    queries : uint8 array of shape (n_queries, n_bytes), optional
        Typical queries. Without them, some of the items are used, and their own code is not counted among the ``k``.

    Returns
    -------
    index : FlatIndex or MultiIndex

    Examples
    --------
    >>> import numpy as np
    >>> build_index(np.array([[1], [2]], np.uint8))
    FlatIndex(2 codes of 1 bytes)
    """
    Integer(1).check("k", k)
    Integer(0, or_none=True).check("radius", radius)
    flat = FlatIndex(codes, ids=ids, model=model)
    if len(flat) < MultiIndex._min_items:
        return flat
    items = flat.codes
    sample = items[:: -(-len(items) // N_SAMPLE)] if queries is None else check_codes(queries, n_bytes=items.shape[1])
    multi = MultiIndex.sharing(flat)
    return multi if multi.cost(sample[:N_SAMPLE], k=k + (queries is None), radius=radius) < WORTH else flat


def load_index(path: str | os.PathLike[str], *, writable: bool = False) -> MemoryIndex:
    """Map an index of any kind from the folder that `MemoryIndex.save` wrote.

    Parameters
    ----------
    path : path
        It is treated as untrusted: what is damaged is refused, at the latest when it is first used.
    writable : bool
        Whether changes are written to the folder; see `MemoryIndex.load`.

    Returns
    -------
    index : Index
        Of the class that was saved.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/codes.hgi"
    >>> FlatIndex(np.array([[1], [2]], np.uint8)).save(path)
    >>> load_index(path)
    FlatIndex(2 codes of 1 bytes)
    >>> with load_index(path, writable=True) as index:
    ...     index.add(np.array([[3]], np.uint8))
    >>> load_index(path)
    FlatIndex(3 codes of 1 bytes)
    """
    classes = {index_class.__name__: index_class for index_class in INDEXES.values()}
    found = Store.read(path).manifest.index
    if found not in classes:
        raise ModelFileError(
            f"{os.fspath(path)}: must hold an index of one of the types {sorted(classes)}. Got {found!r} instead."
        )
    return classes[found].load(path, writable=writable)
