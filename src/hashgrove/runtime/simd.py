"""Explicit vector instructions for kernels, which numba itself does not offer: LLVM code, built by hand.

On a processor with narrower vectors, LLVM splits them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["constant", "pointer", "popcount", "prefetch", "splat"]


def pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, element: Any) -> Any:
    """Pointer to the type ``element`` at place ``offset`` of a one-dimensional array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), element.as_pointer())


def splat(builder: Any, value: Any, count: int) -> Any:
    """A vector of ``count`` copies of a value."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), count), None))


def constant(vector: Any, value: float) -> Any:
    """A constant of the given vector type with the same value in every lane."""
    return ir.Constant(vector, [value] * vector.count)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def prefetch(typing_context: Any, array: Any, offset: Any) -> Any:
    """Load the cache line of ``array[offset]`` (one-dimensional) ahead of use. An offset beyond the end is harmless."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, (array, offset) = ir.IntType(32), arguments
        place = pointer(context, builder, signature.args[0], array, offset, ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(function, [place, number(0), number(3), number(1)])  # for reading, into all cache levels, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def popcount(typing_context: Any, word: Any) -> Any:
    """Number of one bits of a uint64: one machine instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate
