"""`fit`: a fit whose independent pieces of work are tasks of a Dask cluster."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from hashgrove.distributed.cluster import check_workers
from hashgrove.distributed.executor import DaskExecutor
from hashgrove.distributed.rows import by_reference
from hashgrove.fasthash import FastHash
from hashgrove.runtime.executors import carried_out_by
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.matrices import read_matrix
from hashgrove.storage.stored_rows import StoredRows

__all__ = ["fit"]

Fitted = TypeVar("Fitted", bound=FastHash)


def fit(hasher: Fitted, X: Any, y: Any = None, *, client: Any, **options: Any) -> Fitted:
    """Fit a hasher on the workers of a Dask cluster; the model is that of ``hasher.fit(X, y)``, byte for byte.

    Tasks are: each bit of a hash function whose bits are independent (trees, classifiers and SVMs with
    ``stagewise=False``), each trial of ``hash_function="auto"``, and the passes of posterior bits over each 131,072
    rows, if there are more than 16 million values. Step 1, which infers the bits, generic bits and all that takes a
    sample of the rows stay with this process. The same bytes need processors of one type.

    Parameters
    ----------
    hasher : FastHash
        It must not be stagewise: each bit would wait for the one before.
    X : path, FeatureStore, StoredRows or array of shape (n, n_features)
        The path of a feature store (`build_store`), of a ``.npy`` file or of a folder of ``.npy`` shards, on a file
        system that all workers see: each worker maps or reads what it needs. The same holds for a `FeatureStore`,
        `StoredRows`, and an array that is mapped from a file. Other rows are sent to the scheduler and to each worker.
    y
        As for ``hasher.fit``, as are the other ``options``.
    client : distributed.Client
        See `connect`.

    Returns
    -------
    hasher : FastHash
        The same object, fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from hashgrove import BoostedTrees, FastHash
    >>> X = np.random.default_rng(0).random((100, 4))
    >>> hasher = FastHash(4, hash_function=BoostedTrees(n_trees=5), random_state=0)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     model = fit(hasher, X, X[:, 0] > 0.5, client=client).digest
    >>> model == hasher.fit(X, X[:, 0] > 0.5).digest
    True
    """
    if not isinstance(hasher, FastHash):
        raise ParameterError("hasher", f"must be a FastHash. Got {type(hasher).__name__} instead.")
    rows = _open(X)
    path = rows.name if isinstance(rows, StoredRows) else getattr(by_reference(rows), "path", None)
    check_workers(client, reads=[] if path is None else [path])
    with carried_out_by(DaskExecutor(client)):
        hasher.fit(rows, y, **options)
    return hasher


def _open(X: Any) -> Any:
    """The rows or the store at a path; anything else is what it is."""
    if not isinstance(X, str | os.PathLike):
        return X
    name = os.fspath(X)
    if os.path.isdir(name):
        return StoredRows(name)
    return read_matrix(name) if name.lower().endswith(".npy") else FeatureStore(name)
