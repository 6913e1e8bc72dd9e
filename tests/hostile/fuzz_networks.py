"""ONNX graphs of many operators for tests/hostile/fuzz.py, computed in the child process that every network runs in.

The bytes of a seed choose the operators, what each is given, and its attributes; `network` makes a file of them. One
child process computes many files, because a new one takes a third of a second; the next one starts when it has ended.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from unittest.mock import patch

import numpy as np
from fuzz_seeds import RNG, Seed

import tiny_onnx
from tiny_onnx import field, node

SIDE = 4  # of the images
INTEGERS = (0, 1, -1, 2, 3, 4, -(2**63), 2**63 - 1, 2**31, -(2**31), 7, 100, -2, 2**16, 2**40, 5)
NUMBERS = (
    0.0,
    1.0,
    -1.0,
    0.5,
    1e38,
    -1e38,
    float("inf"),
    float("nan"),
    1e-38,
    3.0,
    -2.5,
    255.0,
    2.0,
    10.0,
    -0.0,
    65504.0,
)
OPERATORS = """
Abs Neg Exp Log Sqrt Relu Sigmoid Tanh Floor Ceil Round Erf Sign Sin Softplus Identity Flatten Transpose Shape Size
NonZero Not Reciprocal HardSigmoid Elu Softmax LogSoftmax GlobalAveragePool GlobalMaxPool IsNaN Det Add Sub Mul Div
Mod Pow Min Max MatMul Equal Less Gather GatherElements GatherND Reshape Expand Tile Concat Slice Squeeze Unsqueeze
OneHot BitShift CumSum Where Pad TopK Resize ConstantOfShape Range ScatterElements Compress Conv ConvTranspose
MaxPool AveragePool LpPool ReduceMean ReduceSum ReduceMax ArgMax Cast Split DepthToSpace SpaceToDepth
BatchNormalization InstanceNormalization LRN Gemm QuantizeLinear DequantizeLinear MaxUnpool RoiAlign
NonMaxSuppression EyeLike Upsample Einsum LSTM GRU
"""
ATTRIBUTES = """
axis axes group kernel_shape strides pads dilations to keepdims blocksize perm mode k direction output_padding
auto_pad fmod size num_outputs hidden_size batch_dims ceil_mode p equation
"""
KINDS, NAMES = OPERATORS.split(), ATTRIBUTES.split()
WORDS = "", "linear", "cubic", "nearest", "reflect", "SAME_UPPER", "LEFT", "ij,jk->ik"


class Choices:
    """Choices that bytes make; zeros when they have come to an end."""

    def __init__(self, content):
        self._bytes = iter(content)

    def below(self, most):
        return next(self._bytes, 0) % most

    def of(self, things):
        return things[self.below(len(things))]

    def several(self, things):
        return [self.of(things) for _ in range(self.below(5))]


def network(content):
    """A file with up to sixteen operators; what none of them changes goes through."""
    choose = Choices(content)
    constants, names, nodes = [], ["x"], []
    for number in range(choose.below(6)):
        values = choose.several(NUMBERS) if choose.below(2) else choose.several(INTEGERS)
        make = tiny_onnx.tensor if values and isinstance(values[0], float) else tiny_onnx.integers
        shape = choose.of([(-1,), (1, -1), (1, 1, 1, -1), (-1, 1, 1, 1)])
        constants.append(make(f"c{number}", np.array(values).reshape(shape if values else (0,))))
        names.append(f"c{number}")
    for number in range(1 + choose.below(16)):
        kind = choose.of(KINDS)
        inputs = [choose.of(names) for _ in range(1 + choose.below(4))]
        nodes.append(node(kind, inputs, [f"n{number}"], b"".join(attribute(choose) for _ in range(choose.below(4)))))
        names.append(f"n{number}")
    nodes.append(node("Identity", [choose.of(names[-2:])], ["y"]))
    return tiny_onnx.network(nodes, constants, input_shape=("n", 3, SIDE, SIDE))


def attribute(choose):
    name, kind = choose.of(NAMES), choose.below(4)
    if kind == 0:
        return tiny_onnx.attribute(name, choose.of(INTEGERS) % 2**64)
    if kind == 1:
        return tiny_onnx.attribute(name, tuple(value % 2**64 for value in choose.several(INTEGERS)))
    if kind == 2:
        return field(5, field(1, name) + field(4, choose.of(WORDS)) + field(20, 3))
    return tiny_onnx.attribute(name, choose.below(9))


def operator_seeds():
    yield Seed(tiny_onnx.network([node("Flatten", ["x"], ["y"])], input_shape=("n", 3, SIDE, SIDE)))
    yield Seed(tiny_onnx.transposes_with_no_groups())
    for place in range(len(KINDS)):
        yield Seed(bytes([1, 1, 2, 3, 4, 0, 1, place, 0, 1, 2, 0, 3]), network)
    for _ in range(20):
        yield Seed(RNG.bytes(60), network)


@cache
def lasting():
    """A `NetworkChild` that also lives on after a network that is refused; whatever else ends one still does."""
    from hashgrove.features.network_child import NetworkChild

    class Lasting(NetworkChild):
        def end(self):
            if sys.exception() is not None:
                super().end()

    return Lasting


class Shared:
    """The child process of all networks of this process, until it has ended."""

    child = None

    def __new__(cls):
        if cls.child is None or not cls.child.is_running:
            cls.child = lasting()()
            cls.child.ask({"do": "start"}, b"", seconds=300, most=0)
        return cls.child


def compute(path):
    """Open a network and compute its output for two images; the file is refused, or all is well."""
    from hashgrove.features import OnnxFeatures, onnxsession
    from hashgrove.storage.formats import FileError

    with patch.object(onnxsession, "NetworkChild", Shared):
        images = np.arange(2 * SIDE * SIDE * 3, dtype=np.uint8).reshape(2, SIDE, SIDE, 3)
        extractor = OnnxFeatures(os.fspath(path), output="y", image_size=SIDE, n_jobs=1, time_limit=10)
        extractor.fit(images)
        try:
            extractor.transform(images)
        except ValueError as error:  # which file it was is not known any more
            if not re.match("(cannot be run on images|must take at most)", str(error)):
                raise
            raise FileError(f"{path}: {error}") from error


def copy_twice(path):
    """Copy a network; the copy of a copy is the copy."""
    from hashgrove.features.onnxfile import rebuild
    from hashgrove.storage.formats import FileError

    try:
        copy = rebuild(path.read_bytes())
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error
    assert rebuild(copy) == copy


def copied_seeds():
    yield Seed(tiny_onnx.model())
    yield Seed(tiny_onnx.divides_smallest_integer(folded=True))
    for _ in range(5):
        yield Seed(network(RNG.bytes(60)))
