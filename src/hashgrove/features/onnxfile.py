"""A check of ONNX files before onnxruntime reads them: no data in other files, no control flow.

onnxruntime looks for the "external data" of a model in the working folder, and older versions follow any path (its pull
requests 26776, 27430 and 28709). A loop can run for years, and functions that call each other can grow without bound.
Networks for images need none of these, so all of them are refused.

A check is worth nothing if onnxruntime reads a file in another way than the check does. Therefore onnxruntime never
sees the file itself: it gets a copy that is written here field by field. The copy has only those fields of ONNX's
protobuf messages that inference needs, each with a key of the shortest form.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["rebuild"]

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # wire types; groups, 3 and 4, were never used by ONNX
VALUE = "value"  # a field that is copied as it is, because no tensor and no graph can be in it
OTHER_FILES = "must hold all of its data. Got one whose tensors are in other files."
CONTROL_FLOW = (
    "must have no control flow (Loop, Scan, If) and no functions of its own. Got one that has; export the network "
    "without them, or inline them."
)
REFUSED = {OTHER_FILES, CONTROL_FLOW}
DATA_LOCATION = 14  # of a tensor: 0 if its data is in the file


def _values(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, VALUE)


# message -> {number of a field: the message in it, VALUE, or why it is refused}. Other fields (comments, names of
# tools, training) are left out of the copy. From https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
FIELDS: dict[str, dict[int, str]] = {
    "model": _values(1, 8) | {7: "graph", 25: CONTROL_FLOW},
    "graph": _values(2, 11, 12, 13) | {1: "node", 5: "tensor", 15: "sparse"},
    "node": _values(1, 2, 3, 4, 7, 8) | {5: "attribute"},
    "attribute": _values(1, 2, 3, 4, 7, 8, 9, 14, 15, 20)
    | {5: "tensor", 6: CONTROL_FLOW, 10: "tensor", 11: CONTROL_FLOW, 22: "sparse", 23: "sparse"},
    "tensor": _values(1, 2, 4, 5, 6, 7, 8, 9, 10, 11) | {13: OTHER_FILES},
    "sparse": _values(3) | {1: "tensor", 2: "tensor"},
}


class _Damaged(ValueError):
    pass


def rebuild(model: bytes | memoryview) -> bytearray:
    """Copy an ONNX file; raise ValueError if it is not one or if it has external data, control flow or functions.

    Examples
    --------
    >>> bytes(rebuild(bytes([1 << 3, 7])))  # ir_version: 7
    b'\\x08\\x07'
    >>> tensor = bytes([14 << 3, 1])  # data_location: external
    >>> graph = bytes([5 << 3 | 2, len(tensor)]) + tensor
    >>> rebuild(bytes([7 << 3 | 2, len(graph)]) + graph)
    Traceback (most recent call last):
        ...
    ValueError: must hold all of its data. Got one whose tensors are in other files.
    """
    try:
        return _copy(memoryview(model), "model")
    except (_Damaged, IndexError) as error:
        raise ValueError("not an ONNX file, or one that is cut short or damaged") from error


def _copy(message: memoryview, kind: str) -> bytearray:
    copy = bytearray()
    known = FIELDS[kind]
    for number, wire, value in _fields(message):
        inner = known.get(number)
        if kind == "tensor" and number == DATA_LOCATION and value != 0:
            inner = OTHER_FILES
        if inner is None:
            continue
        if inner in REFUSED:
            raise ValueError(inner)
        copy += _varint_bytes(number << 3 | wire)
        if isinstance(value, int):
            copy += _varint_bytes(value)
            continue
        if inner != VALUE and wire != LENGTH:
            raise _Damaged
        content = value if inner == VALUE else _copy(value, inner)
        if wire == LENGTH:
            copy += _varint_bytes(len(content))
        copy += content
    return copy


def _fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field of a message; a value is an integer, or the bytes of anything else."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if key >= 2**32 or number == 0:  # protobuf would drop the upper bits and so see another field
            raise _Damaged
        if wire == VARINT:
            value, place = _varint(message, place)
            yield number, wire, value
            continue
        if wire == LENGTH:
            length, place = _varint(message, place)
        elif wire in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if wire == EIGHT_BYTES else 4
        else:
            raise _Damaged
        if place + length > len(message):
            raise _Damaged
        yield number, wire, message[place : place + length]
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
            raise _Damaged


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
