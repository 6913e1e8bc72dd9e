"""Explicit vector instructions for kernels, which numba itself does not offer: LLVM code, built by hand.

On a processor with narrower vectors, LLVM splits them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["add_bytes", "constant", "fetch_line", "has_feature", "look_up", "pointer", "popcount", "prefetch", "splat"]


def has_feature(context: Any, *names: str) -> bool:
    """Whether the processor that code is generated for has all of these features, by their names in LLVM.

    A processor that is chosen with NUMBA_CPU_NAME has those that NUMBA_CPU_FEATURES lists.
    """
    _, _, features = context.codegen().magic_tuple()
    return {f"+{name}" for name in names} <= set(features.split(","))


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


def add_bytes(builder: Any, vector: Any) -> Any:
    """The sum of the 8 bytes of each word, for a vector of 64 bytes; with AVX2."""
    zero, kind = constant(ir.VectorType(ir.IntType(8), 32), 0), ir.VectorType(ir.IntType(64), 4)
    function = builder.module.declare_intrinsic(
        "llvm.x86.avx2.psad.bw", (), ir.FunctionType(kind, [zero.type, zero.type])
    )
    sums = [builder.call(function, [_part(builder, vector, first, 32), zero]) for first in (0, 32)]
    return _joined(builder, *sums)


def look_up(context: Any, builder: Any, table: Any, size: int, number: Any) -> Any:
    """The vector of ``table[number]`` for a vector of 64 numbers, each a byte below ``size``, which is 16 or 64.

    ``table`` points to bytes. This is one instruction with AVX-512 VBMI, a few with AVX-512, AVX2, SSSE3 or NEON,
    and a few per number on any other processor.
    """
    if has_feature(context, "avx512vbmi"):
        return _shuffle(builder, "avx512.permvar.qi.512", _load_bytes(builder, table, size, 64), number)
    if has_feature(context, "avx512bw"):
        shuffle, width = "avx512.pshuf.b.512", 64
    elif has_feature(context, "avx2"):
        shuffle, width = "avx2.pshuf.b", 32
    elif has_feature(context, "ssse3"):
        shuffle, width = "ssse3.pshuf.b.128", 16
    elif has_feature(context, "neon"):
        found = [
            _look_up_with_neon(builder, table, size, _part(builder, number, first, 16)) for first in range(0, 64, 16)
        ]
        return _all_joined(builder, found)
    else:
        return _look_up_one_by_one(builder, table, number)
    parts = [_part(builder, number, first, width) for first in range(0, number.type.count, width)]
    rows = [builder.gep(table, [ir.IntType(64)(first)]) for first in range(0, size, 16)]
    found = [_look_up_in_rows(builder, shuffle, rows, part) for part in parts]
    return _all_joined(builder, found)


def _load_bytes(builder: Any, place: Any, size: int, count: int) -> Any:
    """A vector of ``count`` bytes: ``size`` bytes from ``place``, again and again."""
    vector = builder.load(builder.bitcast(place, ir.VectorType(ir.IntType(8), size).as_pointer()), align=1)
    order = ir.Constant(ir.VectorType(ir.IntType(32), count), [i % size for i in range(count)])
    return builder.shuffle_vector(vector, vector, order)


def _part(builder: Any, vector: Any, first: int, count: int) -> Any:
    """``count`` lanes of a vector, from lane ``first``."""
    order = ir.Constant(ir.VectorType(ir.IntType(32), count), [first + i for i in range(count)])
    return builder.shuffle_vector(vector, vector, order)


def _joined(builder: Any, left: Any, right: Any) -> Any:
    """Two vectors, one after the other."""
    count = left.type.count + right.type.count
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count))))


def _all_joined(builder: Any, vectors: list[Any]) -> Any:
    """All vectors, one after the other; there are 1, 2 or 4."""
    while len(vectors) > 1:
        vectors = [_joined(builder, left, right) for left, right in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def _shuffle(builder: Any, name: str, *vectors: Any) -> Any:
    """Call an instruction of x86 that shuffles bytes."""
    kind = vectors[0].type
    function = builder.module.declare_intrinsic(f"llvm.x86.{name}", (), ir.FunctionType(kind, [kind, kind]))
    return builder.call(function, vectors)


def _look_up_in_rows(builder: Any, shuffle: str, rows: list[Any], number: Any) -> Any:
    """Look up numbers in a table of rows of 16 bytes: bits 0 to 3 choose a byte in each row, and the others the row."""
    kind = number.type
    found = [_shuffle(builder, shuffle, _load_bytes(builder, row, 16, kind.count), number) for row in rows]
    bit = 4
    while len(found) > 1:
        flags = builder.icmp_signed("<", builder.shl(number, constant(kind, 7 - bit)), constant(kind, 0))
        found = [builder.select(flags, odd, even) for even, odd in zip(found[::2], found[1::2], strict=True)]
        bit += 1
    return found[0]


def _look_up_with_neon(builder: Any, table: Any, size: int, number: Any) -> Any:
    """Look up 16 numbers in a table of up to 64 bytes with an instruction of ARM."""
    rows = [builder.gep(table, [ir.IntType(64)(first)]) for first in range(0, size, 16)]
    arguments = [*(_load_bytes(builder, row, 16, 16) for row in rows), number]
    kind = ir.FunctionType(number.type, [number.type] * len(arguments))
    function = builder.module.declare_intrinsic(f"llvm.aarch64.neon.tbl{len(rows)}.v16i8", (), kind)
    return builder.call(function, arguments)


def _look_up_one_by_one(builder: Any, table: Any, number: Any) -> Any:
    """Look up numbers one after the other; eight results are put together in a word."""
    word, count = ir.IntType(64), number.type.count
    words = ir.Constant(ir.VectorType(word, count // 8), ir.Undefined)
    place = cgutils.alloca_once(builder, number.type)
    builder.store(number, place)
    lanes = builder.bitcast(place, ir.IntType(8).as_pointer())
    for first in range(0, count, 8):
        joined = word(0)
        for lane in range(8):
            at = builder.load(builder.gep(lanes, [word(first + lane)]))
            found = builder.zext(builder.load(builder.gep(table, [builder.zext(at, word)])), word)
            joined = builder.or_(joined, builder.shl(found, word(8 * lane)))
        words = builder.insert_element(words, joined, ir.IntType(32)(first // 8))
    return builder.bitcast(words, number.type)


def fetch_line(builder: Any, place: Any) -> None:
    """Code that loads the cache line at ``place`` ahead of use; a place beyond the end of the memory is harmless."""
    number = ir.IntType(32)
    place = builder.bitcast(place, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
    builder.call(function, [place, number(0), number(3), number(1)])  # for reading, into all cache levels, data


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def prefetch(typing_context: Any, array: Any, offset: Any) -> Any:
    """Load the cache line of ``array[offset]`` (one-dimensional) ahead of use. An offset beyond the end is harmless."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset = arguments
        fetch_line(builder, pointer(context, builder, signature.args[0], array, offset, ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def popcount(typing_context: Any, word: Any) -> Any:
    """Number of one bits of a uint64: one machine instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate
