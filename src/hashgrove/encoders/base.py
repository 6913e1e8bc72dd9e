"""The contract of every encoder, and everything that follows from the declaration of its arrays.

An encoder is a frozen dataclass. It declares each of its arrays once, with the type and the names of the axes, and
says how to compute scores::

    @dataclass(frozen=True, eq=False)
    class Linear(Encoder):
        weights: Annotated[NDArray[np.float64], ("bits", "features")]
        bias: Annotated[NDArray[np.float64], ("bits",)]

        def _scores(self, X):
            return X @ self.weights.T + self.bias

An axis is a name, or a number where its size is fixed; the axes ``()`` declare a single number. A type may be one of
several, as in ``NDArray[np.float64 | np.float32]``. `Encoder` derives from
the declaration:

- `n_bits` and `n_features`, the sizes of the axes "bits" and "features";
- `concatenate`: arrays that have the axis "bits" are joined along it, all others must be equal;
- the checks of arrays from an untrusted file: names, types, number of dimensions, equal sizes of axes with equal names,
  no empty array, no NaN and no infinity. Further conditions on the values go into `_check_values`.

To register a new encoder, add one line to ``ENCODERS`` in ``hashgrove/encoders/__init__.py``.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite, check_array

from hashgrove.codes import Codes, pack
from hashgrove.encoders.decoding import Decoder, Queries
from hashgrove.encoders.described import Described
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.storage.matrices import FEATURE_DTYPES
from hashgrove.storage.stored_rows import StoredRows

__all__ = ["ArrayDeclaration", "Encoder", "declared_arrays"]

CHUNK_VALUES = 2**19  # values of X in one chunk, so that a chunk fits into the cache
MAX_CHUNK_ROWS = 1024

Part = TypeVar("Part", bound="Encoder")
Result = TypeVar("Result")


class ArrayDeclaration(NamedTuple):
    """The types that one array of an encoder may have, and its axes."""

    dtypes: tuple[np.dtype[Any], ...]
    axes: tuple[str | int, ...]

    def __str__(self) -> str:
        axes = ", ".join(f"n_{axis}" if isinstance(axis, str) else str(axis) for axis in self.axes)
        return f"{' or '.join(map(str, self.dtypes))} of shape ({axes}{',' if len(self.axes) == 1 else ''})"


@cache
def declared_arrays(encoder_class: type[Encoder]) -> dict[str, ArrayDeclaration]:
    """The arrays that an encoder class declares, by field name.

    >>> from hashgrove.encoders import UnitKernel
    >>> {name: str(declaration) for name, declaration in declared_arrays(UnitKernel).items()}
    {'anchors': 'float32 of shape (n_bits, n_features)', 'gamma': 'float32 of shape ()'}
    """
    hints = get_type_hints(encoder_class, include_extras=True)
    declared = {}
    for field in fields(encoder_class):  # type: ignore[arg-type]
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            raise TypeError(
                f"{encoder_class.__name__}.{field.name} must be declared as an array with its axes, for example "
                f"Annotated[NDArray[np.float64], ('bits', 'features')]. Got {hint}."
            )
        array_type, axes = get_args(hint)
        dtypes = tuple(np.dtype(scalar) for scalar in _scalar_types(array_type))
        declared[field.name] = ArrayDeclaration(dtypes, axes)
    return declared


def _scalar_types(hint: Any) -> list[type[np.generic]]:
    """The NumPy scalar types named in a type hint, however deep: versions of NumPy expand ``NDArray`` differently."""
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return [hint]
    return [scalar for argument in get_args(hint) for scalar in _scalar_types(argument)]


class Encoder(Described, ABC):
    """A function from feature rows to codes, made of declared arrays; see the module's docstring.

    A subclass implements `_scores`. Where its bits can be computed faster than its scores it overrides `_bits`; where
    the values of its arrays must fulfil more than the declaration says it overrides `_check_values`. An encoder
    whose fields are not arrays gives `n_bits`, `n_features` and `concatenate` itself.

    Attributes
    ----------
    checks_finite : bool
        Whether `_scores` and `_bits` check by themselves that all values are finite, and raise what
        `sklearn.utils.assert_all_finite` raises. Such an encoder must also take rows of type uint8.
    """

    checks_finite: ClassVar[bool] = False

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self._size_of("bits")

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self._size_of("features")

    def part(self, kind: type[Part]) -> Part | None:
        """This encoder if it is of a class; None if not. An encoder with parts also looks among these.

        >>> from hashgrove.encoders import Linear, Sum
        >>> line = Linear.constant(1, n_features=2)
        >>> Sum(parts=(line, line)).part(Linear) is line, line.part(Sum)
        (True, None)
        """
        return self if isinstance(self, kind) else None

    def _size_of(self, axis: str) -> int:
        for name, declaration in declared_arrays(type(self)).items():
            if axis in declaration.axes:
                return getattr(self, name).shape[declaration.axes.index(axis)]
        raise TypeError(f"{type(self).__name__} declares no array with the axis {axis!r}.")

    @property
    def accepts_sparse(self) -> bool:
        """Whether `_scores` and `_bits` also take rows in a scipy CSR matrix."""
        return False

    @abstractmethod
    def _scores(self, X: NDArray[Any]) -> NDArray[Any]:
        """Scores, shape (n, n_bits), of one chunk of rows.

        The chunk has the right number of columns, is C-contiguous (or in CSR form, see `accepts_sparse`), and contains
        finite float32 or float64 values (see `checks_finite`).
        """

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        """Bits, shape (n, n_bits), of one chunk of rows."""
        return self._scores(X) > 0

    def scores(self, X: ArrayLike, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Real-valued scores, shape (n, n_bits). A bit is 1 where its score is above 0; the magnitude is its margin."""
        return np.concatenate(self._apply_to_chunks(self._scores, X, n_jobs))

    def encode(self, X: ArrayLike, *, n_jobs: int | None = None) -> Codes:
        """Packed codes, uint8 of shape (n, ceil(n_bits / 8)), which know the `digest` of this encoder.

        `hashgrove.codes.pack` says in which order the bits are.
        """
        codes = np.concatenate(self._apply_to_chunks(lambda rows: pack(self._bits(rows)), X, n_jobs))
        return Codes(codes, model=self.digest_or_none)

    def rows_per_chunk(self, values_per_row: int | None = None) -> int:
        """Number of rows that are encoded together. Sums depend on it, so pieces of a file have a multiple of it."""
        return min(max(CHUNK_VALUES // (values_per_row or self.n_features) // 64, 1) * 64, MAX_CHUNK_ROWS)

    @property
    def decoder(self) -> Decoder | None:
        """The class probabilities that a code of this encoder stands for; None if codes cannot be decoded."""
        return None

    def encode_queries(self, X: ArrayLike, *, n_jobs: int | None = None) -> Codes:
        """Codes of rows that one searches *with*.

        They are those of `encode`, except for codes that can be decoded: the bits of an item then state its classes as
        exactly as they can, and the best code to search with has the bits that the items of its likely classes have.
        """
        return self.encode(X, n_jobs=n_jobs) if self.decoder is None else self.as_queries(X, n_jobs=n_jobs).codes

    def as_queries(self, X: ArrayLike, *, n_jobs: int | None = None) -> Queries:
        """The codes of `encode_queries`, and the class probabilities of the rows; needs a `decoder`."""
        if self.decoder is None:
            raise ValueError(
                "as_queries needs codes that can be decoded. Got an encoder of others; "
                "fit FastHash(hash_function='decodable') with class labels."
            )
        parts = self._apply_to_chunks(self._as_queries, X, n_jobs)
        codes = np.concatenate([pack(scores > 0) for scores, _ in parts])
        return Queries(Codes(codes, model=self.digest_or_none), np.concatenate([p for _, p in parts]))

    def _as_queries(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Scores of the bits to search with, and class probabilities, of one chunk; where there is a decoder."""
        raise NotImplementedError

    def transform(self, X: ArrayLike, *, n_jobs: int | None = None) -> NDArray[np.uint8]:
        """The same as `encode`: hashers and encoders have this name in common."""
        return self.encode(X, n_jobs=n_jobs)

    def _apply_to_chunks(
        self, function: Callable[[NDArray[Any]], Result], X: ArrayLike, n_jobs: int | None
    ) -> list[Result]:
        """Call ``function`` for each chunk of the rows of ``X``, on several threads; return the results in order."""
        checked = self._check_rows(X)
        n, sparse = checked.shape[0], issparse(checked)

        def of_chunk(start: int, stop: int) -> Result:
            rows = checked[start:stop] if sparse else np.ascontiguousarray(checked[start:stop])
            if not self.checks_finite:
                rows = rows.astype(np.float32) if rows.dtype == np.uint8 else rows
                assert_all_finite(rows, input_name="X")
            return function(rows)

        n_rows = self.rows_per_chunk(max(checked.nnz // n, 1) if sparse else None)
        if n <= n_rows:
            return [of_chunk(0, n)]
        with single_threaded_blas():  # chunks go to threads, so matrix products must not start threads of their own
            return run_tasks(of_chunk, chunks(n, n_rows), n_jobs=n_jobs)

    def _check_rows(self, X: ArrayLike) -> Any:
        """``X`` as a matrix of a type and width that the encoder takes: dense, stored, or CSR if it was sparse."""
        if issparse(X) and not self.accepts_sparse:
            raise ParameterError(
                "X",
                f"must be a dense array for {type(self).__name__}. Got a sparse matrix instead. "
                "Reduce it first, for example with sklearn.decomposition.TruncatedSVD.",
            )
        options: dict[str, Any] = {"accept_sparse": "csr", "dtype": FEATURE_DTYPES, "input_name": "X"}
        checked = X if isinstance(X, StoredRows) else check_array(X, **options, ensure_all_finite=False)
        if checked.shape[1] != self.n_features:
            raise ParameterError(
                "X", f"must have {self.n_features} features per row, as in training. Got {checked.shape[1]} instead."
            )
        return checked

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, in their order.

        All must be of this class, and their arrays without the axis "bits" must be equal.
        """
        joined: dict[str, NDArray[Any]] = {}
        for name, (_, axes) in declared_arrays(cls).items():
            parts = [getattr(encoder, name) for encoder in encoders]
            if "bits" not in axes:
                _check_equal(cls, name, parts)
                joined[name] = parts[0]
                continue
            for number, axis in enumerate(axes):
                sizes = sorted({part.shape[number] for part in parts})
                if axis != "bits" and len(sizes) > 1:
                    raise ValueError(f"{cls.__name__} encoders must have the same number of {axis}. Got {sizes}.")
            joined[name] = np.concatenate(parts, axis=axes.index("bits"))
        return cls(**joined)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of this encoder, by the names that they have in a model file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def digest_or_none(self) -> str | None:
        """The digest; None if a part is no encoder of arrays, such as a classifier of another library."""
        try:
            return self.digest
        except (AttributeError, ValueError):
            return None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the type and the arrays, in hexadecimal digits: what tells codes of different models apart."""
        total = hashlib.sha256(type(self).__name__.encode())
        for name, array in sorted(self.arrays().items()):
            values = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
            total.update(f"{name} {array.dtype.name} {array.shape}".encode())
            total.update(values.tobytes())
        return total.hexdigest()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build an encoder from what `arrays` returned; all of it is checked, since a file is untrusted."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if set(arrays) != names:
            raise ValueError(f"{cls.__name__} must have the arrays {sorted(names)}. Got {sorted(arrays)}.")
        encoder = cls(**arrays)
        encoder.check()
        return encoder

    def check(self) -> None:
        """Raise ValueError unless the arrays are as declared and their values make sense."""
        sizes: dict[str, int] = {}
        for name, declaration in declared_arrays(type(self)).items():
            array = getattr(self, name)
            got = f"Got {array.dtype} of shape {array.shape}."
            if array.dtype not in declaration.dtypes or array.ndim != len(declaration.axes) or 0 in array.shape:
                raise ValueError(f"the array {name!r} must be {declaration} and not empty. {got}")
            for axis, size in zip(declaration.axes, array.shape, strict=True):
                expected = axis if isinstance(axis, int) else sizes.setdefault(axis, size)
                if size != expected:
                    size_of_axis = f", with n_{axis} = {expected} as in other arrays" if isinstance(axis, str) else ""
                    raise ValueError(f"the array {name!r} must be {declaration}{size_of_axis}. {got}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"the array {name!r} must be finite. Got NaN or infinity.")
        self._check_values()

    def _check_values(self) -> None:
        """Raise ValueError where a value is out of range; types and shapes have been checked before."""


def _check_equal(encoder_class: type[Encoder], name: str, parts: Sequence[NDArray[Any]]) -> None:
    first = parts[0]
    if not all(part is first or np.array_equal(part, first) for part in parts):
        got = f" Got {sorted({part.item() for part in parts})}." if first.ndim == 0 else ""
        raise ValueError(f"{encoder_class.__name__} encoders must have the same {name!r} to be concatenated.{got}")
