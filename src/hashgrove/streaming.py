"""Encoding in bounded memory: one file, or a folder of shards, which one machine or many encode one by one."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import in_order
from hashgrove.storage.atomic import atomic_write, sync_name
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.matrices import check_finite
from hashgrove.storage.models import load
from hashgrove.storage.streams import (
    Piece,
    RowSource,
    check_output_ending,
    identity,
    list_shards,
    open_rows,
    write_codes,
)

__all__ = [
    "EncodedShard",
    "encode_file",
    "encode_folder",
    "encode_shard",
    "plan_shards",
    "record_file",
    "target_folder",
]

PIECE_BYTES = 2**21  # of rows that a thread reads and encodes at a time; two such pieces per thread wait
FORMAT = 1  # of the records of finished shards
MAX_RECORD = 2**16  # bytes

OnCodes = Callable[[NDArray[np.uint8]], None]


@dataclass(frozen=True)
class EncodedShard:
    """The codes of one shard.

    Attributes
    ----------
    path : str
        The file of codes.
    n_rows : int
    was_finished : bool
        Whether an earlier run made the file.
    """

    path: str
    n_rows: int
    was_finished: bool


def encode_file(
    model: PathLike | Encoder,
    source: PathLike | RowSource | NDArray[Any],
    target: PathLike,
    *,
    n_jobs: int | None = None,
    on_codes: OnCodes | None = None,
) -> int:
    """Encode the rows of a file, or of all shards of a folder, into one file, in bounded memory.

    The codes are those that ``encode`` gives for all rows at once. Each thread holds a few pieces of 2 MB. The file
    appears when it is complete.

    Parameters
    ----------
    model : path or Encoder
        A model file, or what `hashgrove.load` gives for it.
    source : path, RowSource or array
        ``.npy`` or ``.parquet``, or a folder of such shards, which are taken in the order of their names. ``.csv`` and
        ``.npz`` are read as a whole. Or what `hashgrove.storage.streams.open_rows` gives for it.
    target : path
        ``.npy``, ``.csv``, or ``.parquet`` with one column, ``code``, of Arrow's fixed-size binary.
    n_jobs : int, optional
        Number of threads; by default one per core.
    on_codes : callable, optional
        Called with the codes of each piece, in order.

    Returns
    -------
    n_rows : int

    Examples
    --------
    >>> import tempfile
    >>> import hashgrove
    >>> X, folder = np.random.default_rng(0).random((100, 4)), tempfile.mkdtemp()
    >>> hashgrove.LSH(16, random_state=0).fit(X).save(f"{folder}/model.hashgrove")
    >>> np.save(f"{folder}/X.npy", X)
    >>> hashgrove.encode_file(f"{folder}/model.hashgrove", f"{folder}/X.npy", f"{folder}/codes.npy")
    100
    >>> np.load(f"{folder}/codes.npy").shape
    (100, 2)
    """
    encoder, rows = _encoder_of(model), source if isinstance(source, RowSource) else open_rows(source)
    check_output_ending(target)
    if os.path.isdir(rows.name) and _is_in(rows.name, target):
        raise FileError(f"{os.fspath(target)}: must not be in the folder of the features {rows.name}.")
    inputs = [rows.name] if os.path.exists(rows.name) else []
    for name in inputs if isinstance(model, Encoder) else [*inputs, model]:
        if os.path.exists(target) and os.path.samefile(name, target):
            raise FileError(f"{os.fspath(target)}: must not be the input file itself. Give another output.")
    return _encode(encoder, rows, target, n_jobs, on_codes)


def encode_shard(
    model: PathLike | Encoder,
    source: PathLike | NDArray[Any],
    target: PathLike,
    *,
    n_jobs: int | None = None,
    on_codes: OnCodes | None = None,
) -> EncodedShard:
    """Encode one shard unless that is done already: `encode_file`, and a record of what was encoded by which model.

    This is the task to give to Dask, Spark or Ray: it takes a model file, a shard and the file to write; it writes that
    file and, after it, the record `record_file`, both atomically; it depends on nothing else and returns a small value.
    It may be repeated, by a worker that takes over from a dead one or by two at the same time: a finished shard is
    recognised by its record and kept, and the same model and shard give the same bytes.

    A shard is finished if the record has the digest of the model, and the name, size and time of change of ``source``,
    and if ``target`` has the size that it had.

    Parameters
    ----------
    model, target, n_jobs, on_codes
        As for `encode_file`. Give the path of the model rather than the encoder to tasks on other machines.
    source : path or array of shape (n, n_features)
        A file, or the rows themselves, such as a partition that Dask or Spark has in memory; these are recognised by
        their SHA-256.

    Returns
    -------
    shard : EncodedShard
    """
    encoder = _encoder_of(model)
    if encoder.digest_or_none is None:
        raise ParameterError(
            "model", "must have arrays that can be saved, so that finished shards can be recognised. It has others."
        )
    record = _record(encoder, source)
    name = os.fspath(target)
    finished = _read_record(name)
    if finished.items() >= record.items() and finished.get("target_bytes") == _size(name):
        return EncodedShard(name, int(finished["n_rows"]), was_finished=True)
    # without this, the record could seem to be of the codes that are written now, if this run ends before its own
    _forget(record_file(name))
    n_rows = encode_file(encoder, source, target, n_jobs=n_jobs, on_codes=on_codes)
    if not isinstance(source, np.ndarray) and _record(encoder, source) != record:
        raise FileError(f"{os.fspath(source)}: has been changed while it was encoded. Encode it again.")
    with atomic_write(record_file(name)) as file:
        content = {**record, "n_rows": n_rows, "target_bytes": _size(name)}
        file.write(f"{json.dumps({'hashgrove-shard': content}, indent=1)}\n".encode())
    return EncodedShard(name, n_rows, was_finished=False)


def encode_folder(
    model: PathLike | Encoder,
    source: PathLike,
    target: PathLike,
    *,
    n_jobs: int | None = None,
    on_codes: OnCodes | None = None,
) -> list[EncodedShard]:
    """Encode each shard of a folder into a file of the same name in another folder; a repeated call goes on.

    Parameters
    ----------
    model : path or Encoder
    source : path
        A folder of ``.npy`` and ``.parquet`` files.
    target : path
        A folder, which is made if it does not exist. It must hold no codes but those of these shards.
    n_jobs, on_codes
        As for `encode_file`; finished shards are not reported to ``on_codes``.

    Returns
    -------
    shards : list of EncodedShard
    """
    encoder = _encoder_of(model)
    return [
        encode_shard(encoder, shard, codes, n_jobs=n_jobs, on_codes=on_codes)
        for shard, codes in plan_shards(source, target)
    ]


def plan_shards(source: PathLike, target: PathLike) -> list[tuple[str, str]]:
    """The arguments ``source`` and ``target`` of `encode_shard` for each shard of a folder; makes the target folder."""
    shards = list_shards(source)
    folder = target_folder(target, names={os.path.basename(shard) for shard in shards}, source=source)
    return [(shard, os.path.join(folder, os.path.basename(shard))) for shard in shards]


def target_folder(target: PathLike, *, names: Iterable[str], source: PathLike | None = None) -> str:
    """Make the folder for codes in files with these names, which must hold no others, and not be ``source``."""
    folder = os.fspath(target)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror}") from error
    if source is not None and os.path.samefile(source, folder):
        raise FileError(f"{folder}: must be another folder than that of the features. Got the same one.")
    others = sorted({name for name in os.listdir(folder) if name[0] not in "._"}.difference(names))
    if others:
        of = "" if source is None else f" in {os.fspath(source)}"
        raise FileError(
            f"{folder}: must hold no codes but those of the shards{of}. Got {others[0]}; "
            "remove it, or choose another folder."
        )
    return folder


def record_file(target: PathLike) -> str:
    """The record of a finished shard, a small JSON file beside it, whose name readers of data sets leave out.

    >>> record_file("codes/part-0.parquet")
    'codes/_part-0.parquet.json'
    """
    folder, name = os.path.split(os.fspath(target))
    return os.path.join(folder, f"_{name}.json")


def _encoder_of(model: PathLike | Encoder) -> Encoder:
    loaded = model if isinstance(model, Encoder) else load(model)
    return loaded if isinstance(loaded, Encoder) else loaded.encoder  # of an ImageEncoder: rows are features here


def _encode(encoder: Encoder, rows: RowSource, target: PathLike, n_jobs: int | None, on_codes: OnCodes | None) -> int:
    """Encode pieces of whole chunks of the encoder, so that the codes are those of all rows at once."""
    n_bytes, chunk = math.ceil(encoder.n_bits / 8), encoder.rows_per_chunk()
    n_rows = max(PIECE_BYTES // (4 * encoder.n_features * chunk), 1) * chunk

    def encode(piece: Piece) -> NDArray[np.uint8]:
        X = piece.read()
        if X.shape[1] != encoder.n_features:
            raise FileError(
                f"{piece.file}: must have {encoder.n_features} features per row, as the model was trained on. "
                f"Got {X.shape[1]} instead."
            )
        try:
            return encoder.encode(X, n_jobs=1)
        except ValueError:
            check_finite(piece.file, X, first_row=piece.first_row)
            raise

    with (
        write_codes(target, n_rows=rows.n_rows, n_bytes=n_bytes, model=encoder.digest_or_none) as write,
        single_threaded_blas(),
    ):
        for codes in in_order(encode, rows.pieces(n_rows), n_jobs=n_jobs):
            write(codes)
            if on_codes is not None:
                on_codes(codes)
    return rows.n_rows


def _record(encoder: Encoder, source: PathLike | NDArray[Any]) -> dict[str, Any]:
    """The values by which a finished shard is recognised."""
    if isinstance(source, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(source).reshape(-1).view(np.uint8).data).hexdigest()
        known: dict[str, Any] = {"shape": list(source.shape), "type": source.dtype.str, "sha256": content}
    else:
        known = identity(source)
    return {"format": FORMAT, "model": encoder.digest, "source": known}


def _read_record(target: str) -> Mapping[str, Any]:
    """The record of a shard; empty if there is none that can be read, so that the shard is encoded again."""
    try:
        with open(record_file(target), "rb") as file:
            content = json.loads(file.read(MAX_RECORD))["hashgrove-shard"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    is_whole = isinstance(content, dict) and all(type(content.get(name)) is int for name in ("n_rows", "target_bytes"))
    return content if is_whole else {}


def _forget(record: str) -> None:
    """Delete a record, durably."""
    try:
        os.unlink(record)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(f"{record}: cannot be removed: {error.strerror}") from error
    sync_name(record)


def _is_in(folder: str, path: PathLike) -> bool:
    return os.path.dirname(os.path.realpath(path)) == os.path.realpath(folder)


def _size(path: str) -> int | None:
    return os.path.getsize(path) if os.path.isfile(path) else None
