"""A check of ONNX files before onnxruntime reads them: a model must not refer to other files.

onnxruntime looks for the "external data" of a model in the working folder, and older versions follow any path (its pull
requests 26776, 27430 and 28709). Therefore tensors with external data are refused here, whatever they point to. The
check follows only those fields of ONNX's protobuf messages that lead to tensors, and skips all others.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["refuse_external_data"]

MAX_DEPTH = 100  # the limit of protobuf itself
TENSOR = "tensor"
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # fields of a tensor
# message -> {number of a field: message that it holds}, by https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: TENSOR, 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: TENSOR, 6: "graph", 10: TENSOR, 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: TENSOR, 2: TENSOR},
}


def refuse_external_data(model: bytes | memoryview) -> None:
    """Raise ValueError if the file is not protobuf, or if one of its tensors has its data in another file.

    Examples
    --------
    >>> tensor = bytes([14 << 3, 1])  # data_location: external
    >>> graph = bytes([5 << 3 | 2, len(tensor)]) + tensor
    >>> refuse_external_data(bytes([7 << 3 | 2, len(graph)]) + graph)
    Traceback (most recent call last):
        ...
    ValueError: an ONNX file must hold all of its data. Got one whose tensors are in other files.
    """
    try:
        external = _has_external(memoryview(model), "model", 0)
    except (IndexError, RecursionError) as error:
        raise ValueError("not an ONNX file, or one that is cut short or damaged") from error
    if external:
        raise ValueError("an ONNX file must hold all of its data. Got one whose tensors are in other files.")


def _has_external(message: memoryview, kind: str, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise RecursionError
    for number, value in _fields(message):
        if kind == TENSOR:
            if number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0):
                return True
            continue
        inner = FIELDS[kind].get(number)
        if inner and isinstance(value, memoryview) and _has_external(value, inner, depth + 1):
            return True
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message; a value is an integer, or the bytes of anything else."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire = key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if wire == 2:
            length, place = _varint(message, place)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise IndexError  # groups, which ONNX never used
        if place + length > len(message):
            raise IndexError
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise IndexError
