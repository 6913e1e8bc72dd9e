"""A small ONNX network written byte by byte: the mean of each channel, and a scaled one; so no test needs onnx."""

from __future__ import annotations

import numpy as np


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A protobuf field: an integer, or text, bytes or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def value_info(name, shape):
    dims = b"".join(field(1, field(2, side) if isinstance(side, str) else field(1, side)) for side in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))  # elem_type 1: float


def tensor(name, values, *, extra=b""):
    values = np.asarray(values, np.float32)
    dims = b"".join(field(1, side) for side in values.shape)
    return dims + field(2, 1) + field(8, name) + field(9, values.tobytes()) + extra


def node(kind, inputs, outputs, attributes=b""):
    ends = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    return ends + field(4, kind) + attributes


def model(*, input_shape=("n", 3, "h", "w"), axes=(2, 3), outputs=("mean", "scaled"), n_inputs=1, extra=b""):
    """Bytes of a network with the outputs ``mean`` (n, channels) and ``scaled``, ten times that."""
    ints = b"".join(field(8, axis) for axis in axes)
    attributes = field(5, field(1, "axes") + ints + field(20, 7)) + field(
        5, field(1, "keepdims") + field(3, 0) + field(20, 2)
    )
    graph = field(1, node("ReduceMean", ["x"], ["mean"], attributes))
    graph += field(1, node("Mul", ["mean", "ten"], ["scaled"])) + field(2, "tiny")
    graph += field(5, tensor("ten", [10.0], extra=extra))
    for name in ("x", "other")[:n_inputs]:
        graph += field(11, value_info(name, input_shape))
    for name in outputs:
        graph += field(12, value_info(name, ("n", "c")))
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))  # ir_version 7, opset 13
