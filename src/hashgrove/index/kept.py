"""Features that an index keeps beside its codes, in one byte each, to re-rank by: with their ids, in one file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.index.ids import check_ids, decode, encode, refuse_duplicates
from hashgrove.index.rerank import Int8Rows
from hashgrove.storage import modelfile
from hashgrove.storage.formats import PathLike

__all__ = ["Kept"]

NAME = "features.hashgrove"
KIND = "features of items"


@dataclass(frozen=True, eq=False)
class Kept:
    """Features ``X`` of the items with the ids ``ids``, one row each."""

    X: Int8Rows
    ids: NDArray[Any]

    @classmethod
    def of(cls, X: ArrayLike, ids: ArrayLike, old: Kept | None) -> Kept:
        """New features, together with those of ``old`` whose ids are not among the new ones."""
        rows = Int8Rows.of(X)
        new = check_ids(ids, length=len(rows))
        refuse_duplicates(np.sort(new))
        if old is None or len(old.ids) == 0:
            return cls(rows, new)
        if old.X.shape[1] != rows.shape[1]:
            raise ValueError(
                f"The 'X' parameter must have {old.X.shape[1]} features, as those that are kept. "
                f"Got {rows.shape[1]} instead."
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
        modelfile.write(os.path.join(folder, NAME), kind="index", header={"index": KIND}, arrays=arrays)

    @classmethod
    def read(cls, folder: PathLike) -> Kept | None:
        """Read the features in the folder of an index; None if there are none."""
        path = os.path.join(folder, NAME)
        if not os.path.exists(path):
            return None
        header, arrays = modelfile.read(path, kind="index")
        kinds = {name: (array.dtype.kind, array.ndim) for name, array in arrays.items()}
        texts = kinds.get("ids") == ("u", 2)
        wanted = {"values": ("i", 2), "scales": ("f", 1), "ids": ("u", 2) if texts else ("i", 1)}
        lengths = {len(array) for array in arrays.values()}
        if header.get("index") != KIND or kinds != wanted or len(lengths) != 1 or arrays["values"].dtype != np.int8:
            raise modelfile.ModelFileError(f"{path}: must hold the features of the items of an index. It does not.")
        ids = arrays["ids"]
        if texts:
            ids = decode(np.ascontiguousarray(ids).view(f"S{ids.shape[1]}")[:, 0])
        return cls(Int8Rows(arrays["values"], arrays["scales"]), ids)
