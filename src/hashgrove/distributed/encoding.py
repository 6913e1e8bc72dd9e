"""`encode`: shards, Dask arrays and Dask DataFrames to files of codes, one task per shard or partition."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.distributed.cluster import DistributedError, check_workers, clear_errors, naming_worker
from hashgrove.encoders import Encoder
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.columns import from_table
from hashgrove.storage.formats import PathLike
from hashgrove.storage.models import load
from hashgrove.storage.streams import SHARD_ENDINGS
from hashgrove.streaming import EncodedShard, encode_shard, plan_shards, target_folder

__all__ = ["encode"]


def encode(
    model: PathLike | Encoder,
    source: Any,
    target: PathLike,
    *,
    client: Any,
    features: str | Sequence[str] | None = None,
    ending: str | None = None,
    on_shard: Callable[[int], object] = lambda done: None,
) -> list[EncodedShard]:
    """Encode on the workers of a Dask cluster, one task per shard; a repeated call keeps the shards that are finished.

    Each task is a call of `hashgrove.encode_shard`, which Spark and Ray can call as well.

    Parameters
    ----------
    model : path or Encoder
        A model file, which only this process reads, or what `hashgrove.load` gives for it.
    source : path, dask.array.Array or Dask DataFrame
        A folder of ``.npy`` and ``.parquet`` shards on a file system that all workers see; or rows in partitions, each
        of which is computed by the worker that encodes it.
    target : path
        A folder on a file system that all workers and this process see. It is made if it does not exist, and must hold
        no codes but these. Codes of a shard are in a file of its name, those of partitions in ``part-00000.npy`` and so
        on, in their order.
    client : distributed.Client
        See `connect`.
    features : str or sequence of str, optional
        The columns of a DataFrame that have the features; see `hashgrove.from_table`.
    ending : {".npy", ".parquet"}, optional
        The kind of files for partitions; by default ``.npy``. Shards keep theirs.
    on_shard : callable, optional
        Called with the number of shards that are finished.

    Returns
    -------
    shards : list of EncodedShard
        In the order of the shards or partitions.

    Examples
    --------
    >>> import os, tempfile
    >>> import dask.array
    >>> from distributed import Client
    >>> from hashgrove import LSH
    >>> X = np.random.default_rng(0).random((100, 4))
    >>> encoder = LSH(16, random_state=0).fit(X).encoder_
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     rows = dask.array.from_array(X, chunks=(60, 4))
    ...     [os.path.basename(s.path) for s in encode(encoder, rows, tempfile.mkdtemp() + "/codes", client=client)]
    ['part-00000.npy', 'part-00001.npy']
    """
    encoder = model if isinstance(model, Encoder) else load(model)
    if isinstance(source, str | os.PathLike):
        for name, value in (("features", features), ("ending", ending)):
            if value is not None:
                raise ParameterError(name, f"must be None for a folder of shards. Got {value!r} instead.")
        folder = os.path.abspath(source)
        if not os.path.isdir(folder):
            raise ParameterError(
                "source", f"must be a folder of .npy and .parquet shards, of which each is a task. Got {source}."
            )
        check_workers(client, reads=[folder])
        plan = plan_shards(folder, os.path.abspath(target))
        check_workers(client, writes=[os.path.abspath(target)])
        with clear_errors():
            held = client.submit(_itself, encoder, pure=False)
            tasks = [client.submit(_encode, held, shard, codes, pure=False) for shard, codes in plan]
            return _finished(client, tasks, on_shard)
    ending = ".npy" if ending is None else ending
    if ending not in SHARD_ENDINGS:
        raise ParameterError("ending", f"must be one of {SHARD_ENDINGS}. Got {ending!r} instead.")
    partitions = _partitions(source)
    names = [f"part-{number:05}{ending}" for number in range(len(partitions))]
    folder = target_folder(os.path.abspath(target), names=names)
    check_workers(client, writes=[folder])
    import dask

    with clear_errors():
        task, held = dask.delayed(_encode, pure=False), client.submit(_itself, encoder, pure=False)
        plan_of_rows = zip(partitions, names, strict=True)
        delayed = [task(held, rows, os.path.join(folder, name), features) for rows, name in plan_of_rows]
        return _finished(client, client.compute(delayed), on_shard)


def _partitions(source: Any) -> list[Any]:
    """The partitions of a Dask collection as delayed values, each with whole rows."""
    import dask

    if not dask.is_dask_collection(source) or not hasattr(source, "to_delayed"):
        raise ParameterError(
            "source",
            f"must be a folder of shards, a dask.array.Array or a Dask DataFrame. Got {type(source).__name__} instead.",
        )
    if not hasattr(source, "chunks"):
        return list(source.to_delayed())
    if source.ndim != 2:
        raise ParameterError("source", f"must have rows and columns. Got an array of {source.ndim} dimensions instead.")
    return list((source if source.numblocks[1] == 1 else source.rechunk({1: -1})).to_delayed().ravel())


def _finished(client: Any, tasks: list[Any], on_shard: Callable[[int], object]) -> list[EncodedShard]:
    """The results of all tasks; the others are cancelled if one fails."""
    from distributed import as_completed

    try:
        for done, task in enumerate(as_completed(tasks, loop=client.loop), start=1):
            task.result()
            on_shard(done)
        shards: list[EncodedShard] = [task.result() for task in tasks]
    finally:
        client.cancel(tasks)
    for shard in shards:
        if not os.path.exists(shard.path):
            raise DistributedError(
                f"{shard.path}: must be on a file system that all workers and this process see. A worker has written "
                "it, and it is not here."
            )
    return shards


def _itself(encoder: Encoder) -> Encoder:
    return encoder


def _encode(encoder: Encoder, source: Any, target: str, features: str | Sequence[str] | None = None) -> EncodedShard:
    """The task: a shard, or a partition of rows."""
    with naming_worker():
        return encode_shard(encoder, source if isinstance(source, str) else _rows(source, features), target, n_jobs=1)


def _rows(partition: Any, features: str | Sequence[str] | None) -> NDArray[Any]:
    """The rows of a partition: of an array, or of the columns of a DataFrame."""
    if hasattr(partition, "columns"):
        return from_table(partition, features=features).X
    return np.asarray(partition)
