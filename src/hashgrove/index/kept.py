"""Features that an index keeps beside its codes, in one byte each, to re-rank by: with their ids, in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.folder import FEATURES
from hashgrove.index.ids import check_ids, check_keys, decode, encode, refuse_duplicates
from hashgrove.index.rerank import Int8Rows
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage import modelfile
from hashgrove.storage.formats import PathLike, one_line

__all__ = ["Kept"]

KIND = "features of items"


@dataclass(frozen=True, eq=False)
class Kept:
    """Features ``X`` of the items with the ids ``ids``, one row each."""

    X: Int8Rows
    ids: NDArray[Any]

    @classmethod
    def of(cls, rows: Int8Rows, ids: ArrayLike, old: Kept | None) -> Kept:
        """New features, together with those of ``old`` whose ids are not among the new ones."""
        new = check_ids(ids, length=len(rows))
        refuse_duplicates(np.sort(new))
        if old is None or len(old.ids) == 0:
            return cls(rows, new)
        if old.X.shape[1] != rows.shape[1]:
            raise ParameterError(
                "X", f"must have {old.X.shape[1]} features, as those that are kept. Got {rows.shape[1]} instead."
            )
        stays = ~np.isin(old.ids, new)
        values = np.concatenate([old.X.values[stays], rows.values])
        return cls(
            Int8Rows(values, np.concatenate([old.X.scales[stays], rows.scales])),
            np.concatenate([old.ids[stays], new]),
        )

    def write(self, folder: PathLike) -> None:
        """Write the features into the folder of an index, atomically."""
        keys = encode(self.ids)
        if keys.dtype.kind == "S":  # as rows of bytes, which the file format has
            keys = np.frombuffer(keys.tobytes(), np.uint8).reshape(len(keys), -1)
        arrays: dict[str, NDArray[Any]] = {"values": self.X.values, "scales": self.X.scales, "ids": keys}
        modelfile.write(os.path.join(folder, FEATURES), kind="index", header={"index": KIND}, arrays=arrays)

    @classmethod
    def read(cls, folder: PathLike) -> Kept | None:
        """Read the features in the folder of an index; None if there are none."""
        path = os.path.join(folder, FEATURES)
        if not os.path.exists(path):
            return None
        header, arrays = modelfile.read(path, kind="index")
        try:
            if header.get("index") != KIND:
                raise ValueError("another kind of file")
            return _from_arrays(arrays)
        except ValueError as error:
            raise modelfile.ModelFileError(
                f"{path}: must hold the features of the items of an index. It does not: {one_line(error)}"
            ) from error


def _from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Kept:
    """Features from the arrays of a file; ValueError for arrays that `Kept.write` does not write."""
    found = {name: (array.dtype.name, array.ndim) for name, array in arrays.items()}
    texts = found.get("ids") == ("uint8", 2)
    if found != {"values": ("int8", 2), "scales": ("float32", 1), "ids": ("uint8", 2) if texts else ("int64", 1)}:
        raise ValueError(f"its arrays are {sorted(found.items())}")
    values, scales, keys = arrays["values"], arrays["scales"], arrays["ids"]
    if not len(values) == len(scales) == len(keys):
        raise ValueError("its arrays have different lengths")
    if not (np.isfinite(scales) & (scales >= 0)).all():
        raise ValueError("a scale is not a finite number, or negative")
    if texts:
        if keys.shape[1] == 0:
            raise ValueError("there are no ids")
        keys = np.ascontiguousarray(keys).view(f"S{keys.shape[1]}")[:, 0]
        check_keys(keys)
    refuse_duplicates(np.sort(keys))
    return Kept(Int8Rows(values, scales), decode(keys))
