"""Ids of items, int64 or text: checks, order and look-up.

Ids are an int64 array or an array of str. `encode` makes UTF-8 of texts (numpy's type ``S``), which sorts in the same
order and takes a quarter of the memory; `hashgrove.index.keys` is what an index keeps.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.threads import chunks

__all__ = [
    "MAX_ID",
    "MAX_TEXT",
    "MIN_ID",
    "are_ascending",
    "check_allowed",
    "check_ids",
    "decode",
    "encode",
    "find",
    "refuse_duplicates",
]

MIN_ID, MAX_ID = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
MAX_TEXT = 1024  # bytes of an id in UTF-8
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # such as line breaks, which lists of ids and URLs cannot hold
BYTES_PER_CHUNK = 2**20  # of ids from a file that are checked at a time


def check_ids(ids: ArrayLike, *, length: int | None = None, name: str = "ids") -> NDArray[Any]:
    """Check ids and return them as int64, or as str.

    Parameters
    ----------
    ids : array-like of int or str, shape (n,)
        Texts are not empty, have at most 1,024 bytes in UTF-8 and no control characters.
    length : int, optional
        The number of ids that there must be.
    name : str
        The name of the parameter, for the error message.

    Returns
    -------
    ids : int64 or str array of shape (n,)

    Examples
    --------
    >>> check_ids([3, 1])
    array([3, 1])
    >>> check_ids([1.5])
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'ids' parameter must be integers or texts. Got float64 instead.
    """
    array = np.asarray(ids)
    if length is not None and array.shape != (length,):
        raise ParameterError(name, f"must have shape ({length},), one id per code. Got {array.shape} instead.")
    if array.ndim != 1:
        raise ParameterError(name, f"must have shape (n,). Got {array.shape} instead.")
    if len(array) == 0:
        return array if array.dtype.kind == "U" else np.empty(0, np.int64)
    if array.dtype.kind in "UOT":
        return _check_texts(ids if isinstance(ids, list | tuple) else array.tolist(), name)
    if array.dtype.kind not in "iu":
        raise ParameterError(name, f"must be integers or texts. Got {array.dtype} instead.")
    if array.dtype == np.uint64 and array.max() > MAX_ID:
        raise ParameterError(name, f"must fit int64. Got {array.max()} instead.")
    return array.astype(np.int64)


def _check_texts(texts: Any, name: str) -> NDArray[np.str_]:
    for text in texts:
        if not isinstance(text, str):
            raise ParameterError(name, f"must be integers or texts, not both. Got {type(text).__name__} instead.")
        if not text or CONTROL.search(text) or not _fits(text):
            wanted = f"must be texts of 1 to {MAX_TEXT} bytes in UTF-8, without control characters"
            raise ParameterError(name, f"{wanted}. Got {text[:100]!r} instead.")
    return np.array(texts, dtype=np.str_)


def _fits(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_TEXT
    except UnicodeEncodeError:  # half of a surrogate pair, as in a file name that is not UTF-8
        return False


def encode(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids with texts as UTF-8, in rows of a fixed width.

    >>> encode(np.array(["é"]))
    array([b'\\xc3\\xa9'], dtype='|S2')
    """
    return np.char.encode(ids, "utf-8") if ids.dtype.kind == "U" else ids


def decode(keys: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `encode`.

    >>> decode(encode(np.array(["é"])))
    array(['é'], dtype='<U1')
    """
    if keys.dtype.kind != "S":
        return keys
    return np.char.decode(keys, "utf-8") if keys.size else np.empty(keys.shape, np.str_)


def are_ascending(keys: NDArray[Any]) -> bool:
    """Whether each id is greater than the one before.

    >>> are_ascending(np.array([1, 2, 5])), are_ascending(np.array([1, 2, 2]))
    (True, False)
    """
    parts = chunks(max(len(keys) - 1, 0), BYTES_PER_CHUNK // keys.dtype.itemsize)
    return all(bool((keys[start:stop] < keys[start + 1 : stop + 1]).all()) for start, stop in parts)


def find(ids: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions of ``wanted`` ids among ascending ``ids``, and whether each of them is there.

    >>> find(np.array([2, 5, 9]), np.array([9, 3]))
    (array([2, 1]), array([ True, False]))
    """
    if len(ids) == 0 or len(wanted) == 0 or ids.dtype.kind != wanted.dtype.kind:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    sought = wanted.astype(ids.dtype)  # a longer text is cut, so that numpy need not widen all ids; it is not there
    positions = np.searchsorted(ids, sought)
    known = ids[np.minimum(positions, len(ids) - 1)] == wanted
    return positions, known


def refuse_duplicates(ids: NDArray[Any], *, name: str = "ids") -> None:
    """Refuse ascending ids of which two are equal."""
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if len(repeated):
        raise ParameterError(name, f"must have no duplicates. Got {repeated[0]} twice instead.")


def check_allowed(allowed: ArrayLike | None) -> NDArray[Any] | None:
    """Check the ``allowed`` parameter of a search: a mask (bool), ids in ascending order, or None.

    >>> check_allowed([4, 2, 4])
    array([2, 4])
    """
    if allowed is None:
        return None
    array = np.asarray(allowed)
    if array.dtype == np.bool_ and array.ndim == 1:
        return array
    return np.unique(check_ids(allowed, name="allowed"))
