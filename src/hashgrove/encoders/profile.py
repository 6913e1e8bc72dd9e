"""`CodeProfile`: what a model file remembers of the codes of its training rows, to compare new rows with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import hamming, unpack
from hashgrove.encoders.base import Encoder
from hashgrove.storage.feature_store import FeatureStore

__all__ = ["CodeProfile", "nearest_counts"]

MAX_CODES, MAX_CODE_BYTES = 256, 2**14
MAX_ROWS = 2000


@dataclass(frozen=True, eq=False)
class CodeProfile:
    """Some codes of training rows, and a few numbers about all of them.

    Attributes
    ----------
    codes : uint8 array of shape (n_codes, n_bytes)
        Codes of at most 256 training rows, evenly spaced.
    n_rows : int
        Number of training rows, at most 2,000, in which ones were counted.
    ones : int64 array of shape (n_bits,)
        Number of these rows whose bit is one.
    nearest : int64 array of shape (n_bits + 1,)
        Number of other rows at each distance from the nearest of ``codes``.
    held_out : bool
        Whether these other rows were held out of training. Trained rows are nearer than any new row will be.
    """

    codes: NDArray[np.uint8]
    n_rows: int
    ones: NDArray[np.int64]
    nearest: NDArray[np.int64]
    held_out: bool

    @classmethod
    def of(
        cls, encoder: Encoder, X: Any, *, nearest: NDArray[np.int64] | None = None, n_jobs: int | None = None
    ) -> Self:
        """The profile of training rows.

        Parameters
        ----------
        encoder : Encoder
        X : array, CSR matrix, StoredRows or FeatureStore of shape (n, n_features)
        nearest : array, optional
            `nearest_counts` of held-out rows. Without it, other training rows take their place.
        n_jobs : int, optional
        """
        others = _spread(X.shape[0], MAX_ROWS)
        places = _places(encoder, X.shape[0])
        codes = np.asarray(encoder.encode(_rows(X, others), n_jobs=n_jobs))
        kept = np.asarray(encoder.encode(_rows(X, places), n_jobs=n_jobs))
        held_out = nearest is not None
        if nearest is None:
            nearest = _counts(codes[~np.isin(others, places)], kept, encoder.n_bits, n_jobs)
        return cls(
            kept, len(codes), unpack(codes, n_bits=encoder.n_bits).sum(axis=0, dtype=np.int64), nearest, held_out
        )

    @property
    def n_bits(self) -> int:
        """Number of bits per code."""
        return len(self.ones)

    def counts(self, codes: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.int64]:
        """Number of codes at each distance from the nearest of those that are remembered, shape (n_bits + 1,)."""
        return _counts(codes, self.codes, self.n_bits, n_jobs)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        last = int(np.flatnonzero(self.nearest)[-1]) + 1 if self.nearest.any() else 0
        return {
            "codes": [code.tobytes().hex() for code in self.codes],
            "n_rows": self.n_rows,
            "ones": self.ones.tolist(),
            "nearest": self.nearest[:last].tolist(),
            "held_out": self.held_out,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, n_bits: int) -> Self:
        """The profile in an untrusted file, checked. Raises ValueError, TypeError or KeyError."""
        ones, nearest, n_rows = values["ones"], values["nearest"], values["n_rows"]
        numbers = [n_rows, *ones, *nearest]
        if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            raise ValueError("its numbers must be whole and not negative")
        n_bytes, is_wrong = -(-n_bits // 8), len(ones) != n_bits or len(nearest) > n_bits + 1 or max(ones) > n_rows
        if is_wrong or not 0 < len(values["codes"]) <= MAX_CODES or type(values["held_out"]) is not bool:
            raise ValueError("it must fit the codes")
        codes = np.array([list(bytes.fromhex(code)) for code in values["codes"]], np.uint8)
        if codes.shape[1:] != (n_bytes,):
            raise ValueError(f"its codes must have {n_bytes} bytes")
        padded = np.array([*nearest, *[0] * (n_bits + 1 - len(nearest))], np.int64)
        return cls(codes, n_rows, np.array(ones, np.int64), padded, values["held_out"])


def nearest_counts(encoder: Encoder, X_train: Any, X: Any, *, n_jobs: int | None = None) -> NDArray[np.int64]:
    """Number of rows of ``X`` at each distance from the nearest of some training rows, whose codes a profile keeps."""
    kept = np.asarray(encoder.encode(X_train[_places(encoder, X_train.shape[0])], n_jobs=n_jobs))
    codes = np.asarray(encoder.encode(X[_spread(X.shape[0], MAX_ROWS)], n_jobs=n_jobs))
    return _counts(codes, kept, encoder.n_bits, n_jobs)


def _counts(codes: NDArray[np.uint8], kept: NDArray[np.uint8], n_bits: int, n_jobs: int | None) -> NDArray[np.int64]:
    if not len(codes):
        return np.zeros(n_bits + 1, np.int64)
    return np.bincount(hamming(codes, kept, n_jobs=n_jobs).min(axis=1), minlength=n_bits + 1)


def _rows(X: Any, numbers: NDArray[np.int64]) -> Any:
    """Some of the training rows; of a store, which has only their bins, rows with the same bins."""
    return X.rows(numbers) if isinstance(X, FeatureStore) else X[numbers]


def _places(encoder: Encoder, n_rows: int) -> NDArray[np.int64]:
    """The rows whose codes are kept: at most half of them."""
    return _spread(n_rows, max(1, min(MAX_CODES, MAX_CODE_BYTES // -(-encoder.n_bits // 8), n_rows // 2)))


def _spread(n_rows: int, at_most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, at_most)).astype(np.int64))
