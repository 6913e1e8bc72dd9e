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


def integers(name, values):
    """A constant of 64-bit integers."""
    values = np.asarray(values, np.int64)
    dims = b"".join(field(1, side) for side in values.shape)
    return dims + field(2, 7) + field(8, name) + field(9, values.tobytes())


def attribute(name, values):
    """An attribute of a node: an integer, or a tuple of them."""
    if isinstance(values, int):
        return field(5, field(1, name) + field(3, values) + field(20, 2))
    return field(5, field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7))


def network(nodes, constants=(), *, input_shape=("n", 3, "h", "w")):
    """Bytes of a network from x to y."""
    graph = b"".join(field(1, made) for made in nodes) + field(2, "made")
    graph += b"".join(field(5, constant) for constant in constants)
    graph += field(11, value_info("x", input_shape)) + field(12, value_info("y", ("n", "c")))
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def divides_smallest_integer(*, folded):
    """A network that divides -2**63 by -1, which ends the process: for an image, or when it is opened."""
    mean = attribute("axes", (1, 2, 3)) + attribute("keepdims", 0)
    nodes = [
        node("ReduceMean", ["x"], ["seen"], mean),
        node("Cast", ["seen"], ["whole"], attribute("to", 7)),
        node("Div", ["smallest", "minus"], ["ratio"]) if folded else node("Div", ["shifted", "minus"], ["ratio"]),
        node("Add", ["whole", "ratio"], ["sum"]),
        node("Cast", ["sum"], ["flat"], attribute("to", 1)),
        node("Unsqueeze", ["flat", "one"], ["y"]),
    ]
    if not folded:
        nodes.insert(2, node("Add", ["whole", "smallest"], ["shifted"]))
    return network(nodes, [integers("smallest", [-(2**63)]), integers("minus", [-1]), integers("one", [1])])


def transposes_with_no_groups():
    """A network with a ConvTranspose of group 0, which ends the process that opens or runs it."""
    nodes = [
        node("ConvTranspose", ["x", "w"], ["t"], attribute("group", 0)),
        node("ReduceMean", ["t"], ["y"], attribute("axes", (2, 3)) + attribute("keepdims", 0)),
    ]
    return network(nodes, [tensor("w", np.ones((3, 2, 1, 1)))])


def takes_memory(side):
    """A network that makes a matrix of side x side numbers from an image."""
    mean = attribute("axes", (1, 2, 3)) + attribute("keepdims", 0)
    nodes = [
        node("ReduceMean", ["x"], ["seen"], mean),
        node("Expand", ["seen", "size"], ["large"]),
        node("ReduceMean", ["large"], ["sum"], attribute("axes", (0, 1)) + attribute("keepdims", 0)),
        node("Add", ["sum", "seen"], ["flat"]),
        node("Unsqueeze", ["flat", "one"], ["y"]),
    ]
    return network(nodes, [integers("size", [side, side]), integers("one", [1])])
