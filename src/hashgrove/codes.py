"""Packed binary codes: the order of their bits, how they are checked, and kernels for Hamming distances.

A code of ``n_bits`` bits takes ``ceil(n_bits / 8)`` bytes. Bit ``i`` is bit ``i % 8`` of byte ``i // 8``, counted from
the least significant one, and unused bits of the last byte are zero. faiss packs in the same order.

Kernels read codes as *columns*: a uint64 array of shape (n_words, n) that holds the first words of all codes, then the
second words of all codes, and so on. A loop over one column is a plain vector loop for codes of any length. The
innermost loops of a search are compiled for the length that is used: see `hashgrove.index.strips`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Integer, ParameterError
from hashgrove.runtime.simd import popcount
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = [
    "MAX_BITS",
    "MAX_BYTES",
    "Codes",
    "aligned",
    "as_columns",
    "as_words",
    "check_codes",
    "check_model",
    "digest_of",
    "distances_to_range",
    "hamming",
    "model_of",
    "pack",
    "unpack",
]

MAX_BYTES = 8191
MAX_BITS = 8 * MAX_BYTES  # 65,528: the largest distance, which must fit the uint16 that holds it
ROWS_PER_CHUNK = 64
CACHE_LINE = 64  # bytes
TILE = 2048  # items whose words are read again for every query of a chunk: 16 KB, half of a first-level cache


class Codes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Packed codes that know which model made them: a uint8 array with the attribute ``model``.

    Hashers and encoders return such arrays, and an index refuses those of another model. Views, slices and selections
    of rows keep the model. Where it cannot be known, after ``np.concatenate``, after arithmetic or in a file of
    ``np.save``, there is a plain array instead.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes: an encoder, a hasher, or its digest.

    Attributes
    ----------
    model : str or None
        The digest of the model; None if it is not known.

    Examples
    --------
    >>> codes = Codes(np.array([[1], [2], [3]], np.uint8), model="b5bb9d8014a0")
    >>> codes[1:].model, type(np.concatenate([codes, codes])).__name__
    ('b5bb9d8014a0', 'ndarray')
    """

    model: str | None

    def __new__(cls, codes: ArrayLike, *, model: Any = None) -> Codes:  # noqa: D102
        array = check_codes(codes).view(cls)
        array.model = digest_of(model)
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.model = getattr(source, "model", None)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain if plain.ndim else plain[()]


def digest_of(model: Any) -> str | None:
    """The digest of a model, which may be a digest already; None if there is no model.

    >>> digest_of("b5bb9d8014a0")
    'b5bb9d8014a0'
    """
    if model is None or isinstance(model, str):
        return model
    digest = getattr(model, "digest", None)
    if not isinstance(digest, str):
        raise ParameterError(
            "model", f"must be a digest or a model that has one. Got an object of type {type(model).__name__} instead."
        )
    return digest


def model_of(codes: Any, model: Any = None) -> str | None:
    """The digest of the model that made some codes: as they know it, or else as ``model`` says; None if neither does.

    >>> model_of(Codes(np.array([[1]], np.uint8), model="b5bb9d8014a0"))
    'b5bb9d8014a0'
    """
    own, given = codes.model if isinstance(codes, Codes) else None, digest_of(model)
    if own is not None and given is not None and own != given:
        raise ParameterError(
            "model",
            f"must be the model that made the codes, {own[:12]}. Got {given[:12]} instead: "
            "codes of different models cannot be compared.",
        )
    return own or given


def check_model(codes: Any, model: Any, *, of_index: str | None) -> str | None:
    """Refuse codes that are not, or may not be, of the model of an index; return the digest of their model.

    Parameters
    ----------
    codes : array
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes, if they do not know it.
    of_index : str or None
        The digest of the model of the index; None if it is not known, and then any codes are right.

    Examples
    --------
    >>> codes = Codes(np.array([[1]], np.uint8), model="one")
    >>> check_model(codes, None, of_index="two")
    Traceback (most recent call last):
    ...
    hashgrove.ParameterError: The 'model' parameter must be the model of the index, two. Got one instead: codes of different models cannot be compared.
    """  # noqa: E501
    digest = model_of(codes, model)
    if of_index is None or digest == of_index:
        return digest
    if digest is None:
        raise ParameterError(
            "model",
            f"must be given, because the index has codes of the model {of_index[:12]} and these codes do not say which "
            "model made them. Got None instead; pass what transform or encode returned, or name its model.",
        )
    raise ParameterError(
        "model",
        f"must be the model of the index, {of_index[:12]}. Got {digest[:12]} instead: "
        "codes of different models cannot be compared.",
    )


def pack(bits: ArrayLike) -> NDArray[np.uint8]:
    """Pack bits into bytes; the first bit of each byte goes to its least significant place.

    Parameters
    ----------
    bits : array-like of shape (n, n_bits)
        Booleans, or integers that are 0 or 1.

    Returns
    -------
    codes : uint8 array of shape (n, ceil(n_bits / 8))

    Examples
    --------
    >>> pack([[True, False, False, False, False, False, False, False, True]])
    array([[1, 1]], dtype=uint8)
    """
    array = np.asarray(bits)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ParameterError(
            "bits", f"must be a 2-D array with one row per code and at least one bit. Got shape {array.shape} instead."
        )
    # Anything else would be packed as "not zero", which turns scores and -1/+1 bits into all ones.
    if array.dtype != np.bool_ and (array.dtype.kind not in "iu" or not np.isin(array, (0, 1)).all()):
        raise ParameterError(
            "bits",
            "must be boolean, or integers 0 and 1. "
            f"Got {_describe_values(array)} instead; for scores or -1/+1 bits, pass 'bits > 0'.",
        )
    packed = np.packbits(array.astype(np.bool_, copy=False), axis=1, bitorder="little")
    return np.ascontiguousarray(packed)  # numpy keeps the order of columns-first bits; users view codes as words


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.bool_]:
    """Unpack codes into bits: the inverse of `pack`.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
    n_bits : int
        Number of bits per code; the padding bits after them are dropped.

    Returns
    -------
    bits : bool array of shape (n, n_bits)

    Examples
    --------
    >>> unpack(np.array([[5]], np.uint8), 3)
    array([[ True, False,  True]])
    """
    array = check_codes(codes)
    n_bytes = array.shape[1]
    Integer(8 * n_bytes - 7, 8 * n_bytes).check("n_bits", n_bits)
    return np.unpackbits(array, axis=1, count=int(n_bits), bitorder="little").astype(np.bool_)


def check_codes(codes: ArrayLike, *, n_bytes: int | None = None, name: str = "codes") -> NDArray[np.uint8]:
    """Check that an array holds packed codes, and return it as a C-contiguous array.

    Other types are refused rather than converted: a cast would succeed and give wrong codes.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
        ``n`` may be 0.
    n_bytes : int, optional
        The number of bytes that each code must have.
    name : str
        The name of the parameter, for the error message.

    Returns
    -------
    codes : uint8 array of shape (n, n_bytes)

    Raises
    ------
    ValueError
        If the dtype, the number of dimensions or the number of bytes is wrong.

    Examples
    --------
    >>> check_codes(np.array([[1.0]]))
    Traceback (most recent call last):
    ...
    hashgrove.ParameterError: The 'codes' parameter must be packed codes of dtype uint8, as returned by transform or pack. Got float64 instead.
    """  # noqa: E501
    array: NDArray[Any] = np.asarray(codes)
    if array.dtype != np.uint8:
        hint = f" To pack bits, use hashgrove.pack({name})." if array.dtype == np.bool_ and array.ndim == 2 else ""
        raise ParameterError(
            name,
            f"must be packed codes of dtype uint8, as returned by transform or pack. Got {array.dtype} instead.{hint}",
        )
    if array.ndim != 2:
        hint = f" For one code, pass {name}[None, :]." if array.ndim == 1 else ""
        raise ParameterError(name, f"must be 2-D, one row of bytes per code. Got shape {array.shape} instead.{hint}")
    if n_bytes is not None and array.shape[1] != n_bytes:
        raise ParameterError(name, f"must have {n_bytes} bytes per code. Got {array.shape[1]} instead.")
    if not 1 <= array.shape[1] <= MAX_BYTES:
        raise ParameterError(name, f"must have 1 to {MAX_BYTES} bytes per code. Got {array.shape[1]} instead.")
    return np.ascontiguousarray(array)


def as_words(codes: ArrayLike) -> NDArray[np.uint64]:
    """Codes as little-endian 64-bit words, padded with zeros and read-only.

    There is no copy if the number of bytes is a multiple of 8.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)

    Returns
    -------
    words : uint64 array of shape (n, ceil(n_bytes / 8))

    Examples
    --------
    >>> as_words(np.array([[1, 2]], np.uint8))
    array([[513]], dtype=uint64)
    """
    array = check_codes(codes)
    padding = -array.shape[1] % 8
    if padding:
        array = np.pad(array, ((0, 0), (0, padding)))
    return _read_only(array.view(np.dtype("<u8")).astype(np.uint64, copy=False))


def as_columns(codes: ArrayLike) -> NDArray[np.uint64]:
    """Codes in the layout that kernels read: the transposed words of `as_words`, read-only.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)

    Returns
    -------
    columns : C-contiguous uint64 array of shape (ceil(n_bytes / 8), n)

    Examples
    --------
    >>> as_columns(np.array([[1], [2], [3]], np.uint8))
    array([[1, 2, 3]], dtype=uint64)
    """
    words = as_words(codes)
    if words.shape[1] == 1:
        return words.T  # the same memory
    columns = aligned(words.T.shape, np.uint64)
    columns[:] = words.T
    return _read_only(columns)


def aligned(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """A new array that starts at a cache line: a load of 64 bytes takes twice as long if it crosses one.

    >>> aligned((2, 3), np.uint8).shape
    (2, 3)
    """
    size = math.prod(shape) * np.dtype(kind).itemsize
    room = np.empty(size + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + size].view(kind).reshape(shape)


@kernel
def distances_to_range(columns: Any, query: Any, start: int, stop: int, out: Any) -> None:
    """Write the distances from one query to the items from ``start`` to ``stop`` into ``out[: stop - start]``.

    ``columns`` is uint64 (n_words, n), ``query`` is uint64 (n_words,), and ``out`` is uint16 with at least ``stop -
    start`` entries. Costs ``n_words * (stop - start)`` popcounts, vectorised where the processor can.
    """
    word = query[0]
    column = columns[0, start:stop]
    for i in range(np.uint64(column.size)):  # an unsigned index: numba then needs no test for negative ones
        out[i] = popcount(column[i] ^ word)
    for w in range(1, columns.shape[0]):
        word = query[w]
        column = columns[w, start:stop]
        for i in range(np.uint64(column.size)):
            out[i] = np.uint16(out[i] + np.uint16(popcount(column[i] ^ word)))


@kernel
def _hamming(queries: Any, columns: Any, out: Any) -> None:
    """Write all distances to ``out``, uint16 (n_queries, n); ``queries`` is uint64 (n_queries, n_words)."""
    n = columns.shape[1]
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, out[q, start:stop])


def hamming(a: ArrayLike, b: ArrayLike, *, n_jobs: int | None = None) -> NDArray[np.uint16]:
    """Hamming distances, in bits, between each code of ``a`` and each code of ``b``.

    Parameters
    ----------
    a : uint8 array of shape (n_a, n_bytes)
    b : uint8 array of shape (n_b, n_bytes)
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    distances : uint16 array of shape (n_a, n_b)

    Examples
    --------
    >>> hamming(np.array([[0b0000], [0b1111]], np.uint8), np.array([[0b0001]], np.uint8))
    array([[1],
           [3]], dtype=uint16)
    """
    a = check_codes(a, name="a")
    columns = as_columns(check_codes(b, n_bytes=a.shape[1], name="b"))
    queries = as_words(a)
    out = np.empty((len(a), columns.shape[1]), np.uint16)
    tasks = [(queries[i:j], columns, out[i:j]) for i, j in chunks(len(a), ROWS_PER_CHUNK)]
    run_tasks(_hamming, tasks, n_jobs=n_jobs)
    return out


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view. numba compiles separately for read-only arrays, so words are always read-only."""
    view = array.view()
    view.flags.writeable = False
    return view


def _describe_values(array: NDArray[Any]) -> str:
    if array.dtype.kind not in "iu":
        return str(array.dtype)
    return f"{array.dtype} from {array.min()} to {array.max()}"
