"""The contract of every encoder: scores, and a bit that is one where the score is above zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array

from hashgrove.codes import pack
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["FEATURE_DTYPES", "Encoder"]

CHUNK_VALUES = 2**19
FEATURE_DTYPES = [np.float64, np.float32, np.uint8]  # kept as they are; any other type becomes the first


class Encoder(ABC):
    """A function from feature rows to codes; subclasses are frozen dataclasses whose fields are arrays.

    A subclass gives `n_bits`, `n_features`, `_scores` (one chunk of rows), `concatenate` and `_check`. One that meets
    values that are not finite by itself, as it reads them, and then raises what `assert_all_finite` does, says so by
    `checks_finite`, and takes uint8 rows, too.
    """

    checks_finite: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = False

    @property
    @abstractmethod
    def n_bits(self) -> int:
        """Number of bits in a code."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns that `X` must have."""

    @abstractmethod
    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        """Scores (n, n_bits) of a C-contiguous, checked chunk of rows, float32 or float64; see `checks_finite`."""

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        """Bits (n, n_bits) of such a chunk."""
        return self._scores(X) > 0

    @classmethod
    @abstractmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, in their order."""

    @abstractmethod
    def _check(self) -> None:
        """Raise ValueError unless the arrays fit together; a model file from elsewhere is untrusted."""

    def scores(self, X: ArrayLike, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Real-valued scores, shape (n, n_bits); bit = score > 0, and the magnitude is its margin."""
        return np.concatenate(self._map(self._scores, X, n_jobs))

    def encode(self, X: ArrayLike, *, n_jobs: int | None = None) -> NDArray[np.uint8]:
        """Packed codes, uint8 of shape (n, ceil(n_bits / 8)); see `hashgrove.codes.pack` for the order of bits."""
        return np.concatenate(self._map(lambda rows: pack(self._bits(rows)), X, n_jobs))

    def _map(
        self, function: Callable[[NDArray[Any]], NDArray[Any]], X: ArrayLike, n_jobs: int | None
    ) -> list[NDArray[Any]]:
        """``function`` of each chunk of ``X``, contiguous and known to be finite; a chunk fits into the cache."""
        checked: NDArray[Any] = check_array(X, dtype=FEATURE_DTYPES, input_name="X", ensure_all_finite=False)
        if checked.shape[1] != self.n_features:
            raise ValueError(
                f"The 'X' parameter must have {self.n_features} features a row, as in training. "
                f"Got {checked.shape[1]} instead."
            )

        def of_chunk(start: int, stop: int) -> NDArray[Any]:
            rows = np.ascontiguousarray(checked[start:stop])
            if not self.checks_finite:
                rows = rows.astype(np.float32) if rows.dtype == np.uint8 else rows
                assert_all_finite(rows, input_name="X")
            return function(rows)

        n_rows = min(max(CHUNK_VALUES // self.n_features // 64, 1) * 64, 1024)
        return run_tasks(of_chunk, chunks(len(checked), n_rows), n_jobs=n_jobs)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that make this encoder, by field name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of `arrays`, for arrays from an untrusted file: names, types, shapes and ranges are checked."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if set(arrays) != names:
            raise ValueError(f"a {cls.__name__} encoder has the arrays {sorted(names)}, not {sorted(arrays)}")
        encoder = cls(**arrays)
        encoder._check()
        return encoder

    def _check_floats(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ValueError unless each array named in ``shapes`` is finite float64 of that shape, and not empty."""
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.dtype != np.float64 or array.shape != shape or 0 in shape:
                raise ValueError(
                    f"the array {name!r} must be float64, not empty, and fit the other arrays. "
                    f"Got {array.dtype} of shape {array.shape}."
                )
            if not np.isfinite(array).all():
                raise ValueError(f"the array {name!r} must be finite. Got NaN or infinity.")
