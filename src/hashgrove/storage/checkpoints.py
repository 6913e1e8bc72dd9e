"""Checkpoints: the bits that an unfinished fit has learned, written after each bit, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.encoders import ENCODERS, Encoder, encoder_name
from hashgrove.storage import modelfile
from hashgrove.storage.modelfile import ModelFileError

__all__ = ["Checkpoint", "Progress", "fingerprint"]

ROWS_PER_UPDATE = 4096


@dataclass(frozen=True, eq=False)
class Progress:
    """What a fit has learned so far.

    Attributes
    ----------
    encoder : Encoder
        The hash functions of all bits so far.
    bits : int8 array of shape (n_learned, n_points)
        What the next bit sees of them: -1 or +1 for each training point.
    records : list of dict
        The history, one record per bit.
    seed : int
        Seed of the fit.
    """

    encoder: Encoder
    bits: NDArray[np.int8]
    records: list[dict[str, Any]]
    seed: int


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds the progress of one fit: of these data with these parameters and no others.

    Parameters
    ----------
    path : path
        The file; it need not exist.
    fingerprint : str
        What `fingerprint` gives for the data and the parameters.
    """

    path: str | os.PathLike[str]
    fingerprint: str

    def write(self, progress: Progress) -> None:
        """Replace the file, atomically."""
        header = {
            "fingerprint": self.fingerprint,
            "encoder": encoder_name(progress.encoder),
            "n_points": progress.bits.shape[1],
            "records": progress.records,
            "seed": progress.seed,
        }
        arrays = {f"encoder.{name}": array for name, array in progress.encoder.arrays().items()}
        progress.encoder.check()
        arrays["bits"] = np.packbits(progress.bits > 0, axis=1)
        modelfile.write(self.path, kind="checkpoint", header=header, arrays=arrays)

    def read(self) -> Progress | None:
        """What the file holds, or None if there is no file; the file is untrusted and is checked."""
        if not os.path.exists(self.path):
            return None
        name = os.fspath(self.path)
        header, arrays = modelfile.read(self.path, kind="checkpoint")
        if header.get("fingerprint") != self.fingerprint:
            raise ModelFileError(
                f"{name}: a checkpoint of other data or other parameters. Remove it, or choose another file."
            )
        try:
            packed = arrays.pop("bits")
            learned = {key.removeprefix("encoder."): array for key, array in arrays.items()}
            encoder = ENCODERS[header["encoder"]].from_arrays(learned)
            n_points, records, seed = header["n_points"], header["records"], header["seed"]
            expected = encoder.n_bits, -(-n_points // 8)
            if packed.dtype != np.uint8 or packed.shape != expected or len(records) != encoder.n_bits:
                raise ValueError(f"it must hold {expected[0]} bits of {n_points} points")
            bits = np.unpackbits(packed, axis=1, count=n_points).astype(np.int8) * np.int8(2) - np.int8(1)
            return Progress(encoder, bits, list(records), int(seed))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{name}: damaged: {error}") from error


def fingerprint(parameters: Mapping[str, Any], *data: Any) -> str:
    """Digest of parameters that JSON can hold, and of arrays, sparse matrices and None.

    >>> one, other = fingerprint({"C": 1.0}, np.zeros(3)), fingerprint({"C": 1.0}, np.ones(3))
    >>> one == fingerprint({"C": 1.0}, np.zeros(3)), one == other
    (True, False)
    """
    digest = hashlib.blake2b(json.dumps(parameters, sort_keys=True).encode(), digest_size=32)
    for item in data:
        parts = (item.data, item.indices, item.indptr) if sparse.issparse(item) else (item,)
        for part in parts:
            array = np.asarray(part) if part is not None else np.empty(0)
            digest.update(f"{array.dtype} {array.shape}".encode())
            rows = array if array.ndim else array[None]
            for start in range(0, len(rows), ROWS_PER_UPDATE):
                digest.update(np.ascontiguousarray(rows[start : start + ROWS_PER_UPDATE]).data)
    return digest.hexdigest()
