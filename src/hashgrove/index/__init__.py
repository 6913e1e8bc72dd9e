"""Search of packed codes by Hamming distance. `Index` states the contract of every index; `INDEXES` lists them.

`connect` opens indexes in databases and other engines; `hashgrove.index.engines.ENGINES` lists these.
"""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from hashgrove.codes import check_codes
from hashgrove.index.base import Index
from hashgrove.index.engines import connect
from hashgrove.index.flat import FlatIndex
from hashgrove.index.manifest import Manifest, is_index_folder
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.multi_index import MultiIndex
from hashgrove.index.radius import RadiusChoice
from hashgrove.index.rerank import Int8Rows, Rerank
from hashgrove.runtime.parameters import Integer
from hashgrove.storage import modelfile

__all__ = [
    "INDEXES",
    "FlatIndex",
    "Index",
    "Int8Rows",
    "MultiIndex",
    "RadiusChoice",
    "Rerank",
    "build",
    "connect",
    "load",
]

INDEXES: dict[str, type[MemoryIndex]] = {"flat": FlatIndex, "multi": MultiIndex}


MIN_ITEMS = 2**16  # of fewer items, a scan takes microseconds
N_SAMPLE = 64
WORTH = 0.5  # tables are chosen where they cost less than this part of a scan


def build(
    codes: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    model: object = None,
    k: int = 10,
    radius: int | None = None,
    queries: ArrayLike | None = None,
) -> FlatIndex:
    """Make the index that is fastest for some codes: a `FlatIndex` or a `MultiIndex`. Both give the same results.

    Where the border lies depends on the codes: tables are many times as fast for codes of a trained model, which lie
    close together, and for near-duplicates; a scan is faster for codes without neighbours. So it is measured: 64
    queries are asked of the tables, and how many codes they compare is counted. Tables are taken if that is less than
    half of what a scan compares.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
    ids : array-like of int or str, shape (n,), optional
    model : str, or an object with the attribute ``digest``, optional
    k : int
        How many neighbours you will search for.
    radius : int, optional
        If you will search by radius: which one. Then ``k`` is not used.
    queries : uint8 array of shape (n_queries, n_bytes), optional
        Typical queries. Without them, some of the items are used, and their own code is not counted among the ``k``.

    Returns
    -------
    index : FlatIndex or MultiIndex

    Examples
    --------
    >>> import numpy as np
    >>> build(np.array([[1], [2]], np.uint8))
    FlatIndex(2 codes of 1 bytes)
    """
    Integer(1).check("k", k)
    Integer(0, or_none=True).check("radius", radius)
    flat = FlatIndex(codes, ids=ids, model=model)
    if len(flat) < MIN_ITEMS:
        return flat
    items = flat.codes
    sample = items[:: -(-len(items) // N_SAMPLE)] if queries is None else check_codes(queries, n_bytes=items.shape[1])
    multi = MultiIndex.sharing(flat)
    return multi if multi.cost(sample[:N_SAMPLE], k=k + (queries is None), radius=radius) < WORTH else flat


def load(path: str | os.PathLike[str], *, writable: bool = False) -> MemoryIndex:
    """Map an index of any kind from the folder that it was saved in, or read one from a file of format 1.

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
    >>> load(path)
    FlatIndex(2 codes of 1 bytes)
    >>> with load(path, writable=True) as index:
    ...     index.add(np.array([[3]], np.uint8))
    >>> load(path)
    FlatIndex(3 codes of 1 bytes)
    """
    classes = {index_class.__name__: index_class for index_class in INDEXES.values()}
    if is_index_folder(path) or not os.path.isfile(path):
        found = Manifest.read(path).index if is_index_folder(path) else FlatIndex.__name__
    else:
        header, _ = modelfile.read(path, kind="index")
        found = str(header.get("index"))
    if found not in classes:
        raise modelfile.ModelFileError(
            f"{os.fspath(path)}: must hold an index of one of the types {sorted(classes)}. Got {found!r} instead."
        )
    return classes[found].load(path, writable=writable)
