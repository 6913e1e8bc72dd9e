"""The model file: a safetensors file of arrays with a JSON header, a version and a checksum. No pickle.

The safetensors metadata has the single key ``hashgrove``, since the order of several keys would change from run to run.
Its value is canonical JSON with the fields ``format``, ``kind``, ``version`` (of the library), ``header``, and
``sha256``: the checksum of the other four fields and of the name, type, shape and bytes of every array. The same input
always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hashgrove._version import __version__
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, PathLike, check_shape, one_line

__all__ = ["FORMAT", "ModelFileError", "read", "read_header", "write"]

FORMAT = 1
KINDS = ("encoder", "index", "features", "checkpoint")
KEY = "hashgrove"
FIELDS = {"format": int, "kind": str, "version": str, "header": dict, "sha256": str}
DTYPES = {
    code: np.dtype(name)
    for code, name in {
        "F32": "float32", "F64": "float64", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
        "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    }.items()
}  # fmt: skip


class ModelFileError(FileError):
    """A model file cannot be used. The message is one line that names the file and the reason."""


class _MissingModelFileError(ModelFileError, FileNotFoundError):
    pass


def write(path: PathLike, *, kind: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model file, atomically.

    Parameters
    ----------
    path : path
    kind : {"encoder", "index", "features", "checkpoint"}
        What the file holds; `read` refuses a file of another kind.
    header : dict
        Anything that JSON can represent; NaN and infinity are not allowed.
    arrays : dict of ndarray
        float32, float64, or integers of 8 to 64 bits.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/model.hashgrove"
    >>> write(path, kind="encoder", header={"n_bits": 8}, arrays={"bias": np.zeros(8)})
    >>> header, arrays = read(path, kind="encoder")
    >>> header, arrays["bias"].shape
    ({'n_bits': 8}, (8,))
    """
    if kind not in KINDS:
        raise ValueError(f"The 'kind' parameter must be one of {list(KINDS)}. Got {kind!r} instead.")
    for name, array in arrays.items():
        if array.dtype.newbyteorder("=") not in DTYPES.values():
            raise ValueError(f"The array {name!r} must be float32, float64 or integers. Got {array.dtype} instead.")
    little = {name: _little_endian(array) for name, array in arrays.items()}
    fields = {"format": FORMAT, "kind": kind, "version": __version__, "header": dict(header)}
    try:
        text = _canonical(fields | {"sha256": _digest(fields, little)})
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The 'header' parameter must be representable as JSON: {one_line(error)}.") from error
    content = save(little, metadata={KEY: text})
    with atomic_write(path) as file:
        file.write(content)


def read(path: PathLike, *, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model file of one kind. All of it is checked, so a file that is damaged anywhere is refused.

    Parameters
    ----------
    path : path
    kind : {"encoder", "index", "features", "checkpoint"}

    Returns
    -------
    header : dict
    arrays : dict of ndarray

    Raises
    ------
    ModelFileError
        For any file that is not exactly as `write` wrote it. For a missing file, it is a FileNotFoundError as well.

    Examples
    --------
    >>> read("no-such-file", kind="encoder")
    Traceback (most recent call last):
        ...
    hashgrove.storage.modelfile._MissingModelFileError: no-such-file: no such file
    """
    name = os.fspath(path)
    with _open(name) as (file, fields):
        if fields["kind"] != kind:
            raise ModelFileError(f"{name}: must be a model file of kind {kind!r}. Got {fields['kind']!r} instead.")
        _describe_arrays(name, file)
        arrays = {array: file.get_tensor(array) for array in sorted(file.keys())}
    declared = fields.pop("sha256")
    if _digest(fields, {array: _little_endian(values) for array, values in arrays.items()}) != declared:
        raise ModelFileError(f"{name}: damaged: its content does not match its checksum")
    return fields["header"], arrays


def read_header(path: PathLike) -> dict[str, Any]:
    """Describe a model file without loading its arrays; the checksum is therefore returned but not verified.

    Returns
    -------
    dict
        ``format``, ``kind``, ``version``, ``header``, ``sha256``, and ``arrays``: name -> (dtype, shape).

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/model.hashgrove"
    >>> write(path, kind="encoder", header={"n_bits": 8}, arrays={"bias": np.zeros(8)})
    >>> read_header(path)["arrays"]
    {'bias': ('float64', (8,))}
    """
    name = os.fspath(path)
    with _open(name) as (file, fields):
        return fields | {"arrays": _describe_arrays(name, file)}


@contextmanager
def _open(name: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The open safetensors file and its checked metadata.

    Before it allocates anything, safetensors itself refuses a header that is longer than the file or than 100 MB,
    offsets that leave holes, overlap or exceed the file, and shapes that disagree with the offsets.
    """
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise ModelFileError(f"{name}: must be a model file. Got a folder or a device instead.")
        with safe_open(name, framework="numpy") as file:
            yield file, _check_fields(name, file.metadata())
    except FileNotFoundError as error:
        raise _MissingModelFileError(f"{name}: no such file") from error
    except (SafetensorError, OSError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise ModelFileError(f"{name}: not a model file, or one that is cut short or damaged: {reason}") from error


def _check_fields(name: str, metadata: dict[str, str] | None) -> dict[str, Any]:
    if metadata is None or set(metadata) != {KEY}:
        raise ModelFileError(f"{name}: must be a model file. Got a safetensors file, but not one that hashgrove wrote.")
    try:
        fields = json.loads(metadata[KEY])
        canonical = _canonical(fields) == metadata[KEY]
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name}: damaged: its header is not JSON: {one_line(error)}") from error
    if not isinstance(fields, dict):
        raise ModelFileError(f"{name}: damaged: its header must be a JSON object. Got {type(fields).__name__}.")
    version = fields.get("format")
    if isinstance(version, int) and version != FORMAT:
        raise ModelFileError(f"{name}: format version must be {FORMAT} for this version of hashgrove. Got {version}.")
    if not canonical or {field: type(value) for field, value in fields.items()} != FIELDS:
        raise ModelFileError(f"{name}: damaged: its header must be canonical JSON with the fields {sorted(FIELDS)}")
    return fields


def _describe_arrays(name: str, file: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every array by its name; unknown types and impossible shapes are refused."""
    described = {}
    for array in sorted(file.keys()):
        view = file.get_slice(array)
        if view.get_dtype() not in DTYPES:
            raise ModelFileError(
                f"{name}: its arrays must be of type {sorted(DTYPES)}. Got {view.get_dtype()} instead."
            )
        dtype, shape = DTYPES[view.get_dtype()], tuple(view.get_shape())
        try:
            check_shape(name, shape, dtype.itemsize)
        except FileError as error:
            raise ModelFileError(str(error)) from error
        described[array] = (dtype.name, shape)
    return described


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _digest(fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256, in hexadecimal digits, of the fields and of little-endian, contiguous arrays."""
    digest = hashlib.sha256(_canonical(fields).encode())
    for name, array in sorted(arrays.items()):
        digest.update(_canonical([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type, unused-ignore]
    return digest.hexdigest()
