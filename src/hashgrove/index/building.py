"""Make the index that is fastest for some codes, in memory or in a folder, and load an index of any kind."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import ArrayLike

from hashgrove.codes import check_codes
from hashgrove.index.buckets import probe_costs
from hashgrove.index.flat import FlatIndex
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.multi_index import MultiIndex
from hashgrove.index.plan import Plan
from hashgrove.index.store import Store
from hashgrove.runtime.parameters import Integer
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["INDEXES", "build_folder", "build_index", "load_index"]

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
    near-duplicates; a scan (`FlatIndex`) is faster for codes without neighbours. Which is the case is counted: 64
    queries are scanned, and tables are chosen if they would compare less than half of the codes to find the same.

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
    plan = _worth(flat, k=k, radius=radius, queries=queries)
    return flat if plan is None else MultiIndex.sharing(flat, plan.tables())


def build_folder(
    path: str | os.PathLike[str],
    codes: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    features: ArrayLike | None = None,
    model: object = None,
    k: int = 10,
) -> None:
    """Write the index that is fastest for some codes to a folder, which `load_index` maps.

    `build_index` and `MemoryIndex.save` write the same in more memory: tables are written here one after the other.

    Parameters
    ----------
    path : path
        A folder that does not exist yet, or one of an index, whose content is replaced.
    codes, ids, model, k
        As for `build_index`.
    features : array of shape (n, n_features), optional
        The features of the items, which the index keeps for `Rerank`, in one byte each.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/codes.hgi"
    >>> build_folder(path, np.array([[1], [2]], np.uint8))
    >>> load_index(path)
    FlatIndex(2 codes of 1 bytes)
    """
    Integer(1).check("k", k)
    flat = FlatIndex(model=model)
    flat.add(codes, ids=ids, features=features, model=model)
    flat.save(path)
    del flat  # from now on the codes are those of the folder
    with FlatIndex.load(path, writable=True) as mapped:
        plan = _worth(mapped, k=k, radius=None, queries=None)
        if plan is not None:
            MultiIndex.write_tables(mapped, plan)


def _worth(flat: FlatIndex, *, k: int, radius: int | None, queries: ArrayLike | None) -> Plan | None:
    """What the tables of an index are made from, if a query by them costs less than `WORTH` of a scan."""
    n = len(flat)
    k += queries is None  # a query that is an item finds itself
    multi = MultiIndex()
    if not multi.takes_tables(n, k=k if radius is None else 0):
        return None
    items = flat._now()  # in the order of their ids, which tables are made for
    sample = items.codes[:: -(-n // N_SAMPLE)] if queries is None else check_codes(queries, n_bytes=flat.n_bytes)
    sample = sample[:N_SAMPLE]
    if not len(sample):
        return None
    reach = np.full(len(sample), min(radius or 0, 8 * items.codes.shape[1]))
    if radius is None:
        reach[:] = flat.search(sample, k, model=flat.model).distances[:, -1]
    plan, budget = Plan.of(items.codes, None), multi.budget(n, len(sample))
    costs = np.empty(len(sample), np.int64)
    probe_costs(plan.words.shape[1], plan.parts, plan.offsets, plan.bases, plan.permuted(sample), reach, budget, costs)
    share = np.where(costs > budget, costs + n, costs).mean() / n  # one that costs too much is scanned, too
    return plan if share < WORTH else None


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
