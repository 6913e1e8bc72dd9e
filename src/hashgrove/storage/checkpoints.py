"""Checkpoints: the bits that an unfinished fit has learned, written after each bit, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.encoders import ENCODERS, Encoder, encoder_name
from hashgrove.storage import modelfile
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.formats import one_line
from hashgrove.storage.modelfile import ModelFileError
from hashgrove.storage.stored_rows import StoredRows

__all__ = ["Checkpoint", "Progress", "fingerprint"]

ROWS_PER_UPDATE = 4096
MAX_TEXT = 100  # characters of a text in a record
MAX_NUMBER = 2**53  # of a record: counts, shares and seconds are far below


@dataclass(frozen=True, eq=False)
class Progress:
    """The bits that a fit has learned so far.

    Attributes
    ----------
    encoder : Encoder
        The hash functions of all bits so far.
    bits : int8 array of shape (n_learned, n_points)
        Their values as the next bit sees them: -1 or +1 for each training point.
    records : list
        The history, one record per bit.
    seed : int
        Seed of the fit.
    """

    encoder: Encoder
    bits: NDArray[np.int8]
    records: list[Any]
    seed: int


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds the progress of one fit: of these data with these parameters and no others.

    Parameters
    ----------
    path : path
        The file; it need not exist.
    fingerprint : str
        The result of `fingerprint` for the data and the parameters.
    """

    path: str | os.PathLike[str]
    fingerprint: str

    def write(self, progress: Progress) -> None:
        """Replace the file, atomically."""
        header = {
            "fingerprint": self.fingerprint,
            "encoder": encoder_name(progress.encoder),
            "records": [asdict(record) for record in progress.records],
            "seed": progress.seed,
        }
        arrays = {f"encoder.{name}": array for name, array in progress.encoder.arrays().items()}
        progress.encoder.check()
        arrays["bits"] = np.packbits(progress.bits > 0, axis=1)
        modelfile.write(self.path, kind="checkpoint", header=header, arrays=arrays)

    def read(self, *, shape: tuple[int, int], record: type[Any]) -> Progress | None:
        """Read the progress, or None if there is no file; the file is untrusted and is checked.

        Parameters
        ----------
        shape : (int, int)
            Number of training points, and of their features.
        record : dataclass
            The class of a record of the history; all of its fields are numbers or short texts.
        """
        if not os.path.exists(self.path):
            return None
        name = os.fspath(self.path)
        header, arrays = modelfile.read(self.path, kind="checkpoint")
        if header.get("fingerprint") != self.fingerprint:
            raise ModelFileError(
                f"{name}: a checkpoint of other data or other parameters. Remove it, or choose another file."
            )
        n_points, n_features = shape
        try:
            packed = arrays.pop("bits")
            learned = {key.removeprefix("encoder."): array for key, array in arrays.items()}
            encoder = ENCODERS[header["encoder"]].from_arrays(learned)
            expected = encoder.n_bits, -(-n_points // 8)
            if packed.dtype != np.uint8 or packed.shape != expected or encoder.n_features != n_features:
                raise ValueError(f"it must hold {expected[0]} bits of {n_points} points with {n_features} features")
            bits = np.unpackbits(packed, axis=1, count=n_points).astype(np.int8) * np.int8(2) - np.int8(1)
            records = [_record(record, values) for values in header["records"]]
            if len(records) != encoder.n_bits:
                raise ValueError(f"it must hold {encoder.n_bits} records")
            return Progress(encoder, bits, records, _seed(header["seed"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{name}: damaged: {one_line(error)}") from error


def _record(kind: Any, values: Any) -> Any:
    """A record of the history from its values: short texts where the dataclass says so, numbers elsewhere."""
    if not isinstance(values, dict):
        raise ValueError("its records must be named values")
    texts = {field.name for field in fields(kind) if field.type in (str, "str")}
    for name, value in values.items():
        is_number = type(value) in (int, float) and abs(value) < MAX_NUMBER
        is_text = isinstance(value, str) and len(value) < MAX_TEXT
        if not (is_text if name in texts else is_number):
            raise ValueError("its records must be numbers and short texts")
    return kind(**values)


def _seed(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError("its seed must be an integer from 0 to 2^32 - 1")
    return value


def fingerprint(parameters: Mapping[str, Any], *data: Any) -> str:
    """Digest of parameters that JSON can hold, and of arrays, sparse matrices and None.

    >>> one, other = fingerprint({"C": 1.0}, np.zeros(3)), fingerprint({"C": 1.0}, np.ones(3))
    >>> one == fingerprint({"C": 1.0}, np.zeros(3)), one == other
    (True, False)
    """
    digest = hashlib.blake2b(json.dumps(parameters, sort_keys=True).encode(), digest_size=32)
    for given in data:
        item: Any = given.checksum() if isinstance(given, FeatureStore | StoredRows) else given
        parts = (item.data, item.indices, item.indptr) if sparse.issparse(item) else (item,)
        for part in parts:
            array = np.asarray(part) if part is not None else np.empty(0)
            digest.update(f"{array.dtype} {array.shape}".encode())
            rows = array if array.ndim else array[None]
            for start in range(0, len(rows), ROWS_PER_UPDATE):
                digest.update(np.ascontiguousarray(rows[start : start + ROWS_PER_UPDATE]).data)
    return digest.hexdigest()
