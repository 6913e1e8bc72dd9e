"""The comparison of a query with a strip of 64 items: the innermost loop of every search, as vector code.

The 64 sums of a strip are eight vectors of eight words, which stay in registers. Their minimum is compared with the
limit *once*; most strips have no near item and are passed over with this one comparison. For codes of up to 16 words
the number of words is a constant of the compiled code: it is the length of the tuple ``width``, and so a part of its
type, and kernels are compiled for the widths that are used. With longer codes, ``width`` is empty and the code has a
loop over the words.

All functions share these arguments: word w of item i is ``words[w * n + i]``, uint64; word w of the query is
``queries[query + w]``; and an item is near if its distance is below ``limit``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import add_bytes, fetch_line, has_feature, pointer, popcount, splat

__all__ = [
    "LANES",
    "STRIP",
    "Comparison",
    "distance_to",
    "least_distance",
    "lowest",
    "near_in_strip",
    "next_near",
    "width_of",
]

STRIP = 64  # items that are compared at once
LANES = 8  # words per vector
AHEAD = 512  # items: a search of one query asks memory for a strip that it will reach about a microsecond later
MAX_WIDTH = 16  # words; longer codes share one kernel
WORD = ir.IntType(64)
VECTOR = ir.VectorType(WORD, LANES)
HALVES = ir.VectorType(ir.IntType(32), 2 * LANES)  # the same vector
BYTES = ir.VectorType(ir.IntType(8), 8 * LANES)  # the same vector
FLAGS = ir.IntType(LANES)


def width_of(n_words: int) -> tuple[None, ...]:
    """The argument ``width`` for codes of this many words.

    >>> width_of(2), width_of(100)
    ((None, None), ())
    """
    return (None,) * n_words if n_words <= MAX_WIDTH else ()


class Comparison:
    """Writes the code that compares one query with ``n_vectors`` vectors of items.

    ``arguments`` are those of an intrinsic and begin with words, n, queries, query, n_words and width.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any, n_vectors: int) -> None:
        self.builder, self.n_vectors = builder, n_vectors
        self.words, self.n, queries, query, self.n_words = arguments[:5]
        zero = WORD(0)
        self.items = pointer(context, builder, signature.args[0], self.words, zero, WORD)
        self.query = pointer(context, builder, signature.args[2], queries, query, WORD)
        width = signature.args[5].count
        self.query_words = [self._query_word(WORD(w)) for w in range(width)]
        # Without an instruction that counts the ones of words, bytes are counted, and added up at the end.
        self.by_bytes = bool(width) and has_feature(context, "avx2") and not has_feature(context, "avx512f")
        self.ones = self._function("ctpop", BYTES if self.by_bytes else VECTOR, 1)
        self.least = self._function("umin", HALVES, 2)

    def _function(self, name: str, vector: Any, n_arguments: int) -> Any:
        kind = ir.FunctionType(vector, [vector] * n_arguments)
        name = f"llvm.{name}.v{vector.count}i{vector.element.width}"
        return self.builder.module.declare_intrinsic(name, (), kind)

    def _query_word(self, w: Any) -> Any:
        return splat(self.builder, self.builder.load(self.builder.gep(self.query, [w])), LANES)

    def _counts(self, first: Any, w: Any, query_word: Any) -> list[Any]:
        """For each vector of items from ``first`` on, the number of differing bits of its word ``w`` or bytes."""
        builder, found = self.builder, []
        start = builder.gep(self.items, [builder.add(builder.mul(w, self.n), first)])
        for k in range(self.n_vectors):
            place = builder.bitcast(builder.gep(start, [WORD(k * LANES)]), VECTOR.as_pointer())
            differing = builder.xor(builder.load(place, align=8), query_word)
            found.append(builder.call(self.ones, [builder.bitcast(differing, self.ones.function_type.args[0])]))
        return found

    def fetch(self, first: Any) -> None:
        """Load the words of the 64 items from ``first`` on ahead of use; they may be beyond the end."""
        for w in range(len(self.query_words)):
            start = self.builder.gep(self.items, [self.builder.add(self.builder.mul(WORD(w), self.n), first)])
            for line in range(0, STRIP, LANES):
                fetch_line(self.builder, self.builder.gep(start, [WORD(line)]))

    def sums(self, first: Any) -> list[Any]:
        """The distances of the items from ``first`` on."""
        builder = self.builder
        if self.query_words:
            counts = [self._counts(first, WORD(w), word) for w, word in enumerate(self.query_words)]
            sums = [reduce(builder.add, column) for column in zip(*counts, strict=True)]
            return [add_bytes(builder, total) for total in sums] if self.by_bytes else sums
        zero = ir.Constant(VECTOR, None)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(self.n_vectors)]  # LLVM makes them registers
        for total in sums:
            builder.store(zero, total)
        with cgutils.for_range(builder, self.n_words) as loop:
            counts_of_word = self._counts(first, loop.index, self._query_word(loop.index))
            for total, ones in zip(sums, counts_of_word, strict=True):
                builder.store(builder.add(builder.load(total), ones), total)
        return [builder.load(total) for total in sums]

    def minimum(self, sums: list[Any]) -> Any:
        """The lane-wise minimum of the vectors, as a tree. Distances fit 32 bits, for which AVX2 has an instruction."""
        halves = [self.builder.bitcast(total, HALVES) for total in sums]
        while len(halves) > 1:
            halves = [self.builder.call(self.least, pair) for pair in zip(halves[::2], halves[1::2], strict=True)]
        return self.builder.bitcast(halves[0], VECTOR)

    def flags(self, vector: Any, limits: Any) -> Any:
        """One bit per lane that is below its limit; neither is ever negative."""
        return self.builder.bitcast(self.builder.icmp_signed("<", vector, limits), FLAGS)


def _typed(words: Any, queries: Any, width: Any, n_more: int) -> Any:
    """The type of an intrinsic with the shared arguments and some more numbers."""
    number = types.uint64
    return number(words, number, queries, number, number, width, *[number] * n_more)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _pass_over(
    typing_context: Any, words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, limit: Any,
    first: Any, last: Any,
) -> Any:  # fmt: skip
    """The start of the first strip in [first, last) with a near item; ``last`` if none has one. Reads whole strips."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        limit, first, last = arguments[6:]
        compare = Comparison(context, builder, signature, arguments, STRIP // LANES)
        limits = splat(builder, limit, LANES)
        before = builder.block
        head, body, end = (builder.append_basic_block(f"strips.{name}") for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        strip = builder.phi(WORD)
        strip.add_incoming(first, before)
        builder.cbranch(builder.icmp_unsigned("<", strip, last), body, end)
        builder.position_at_end(body)
        compare.fetch(builder.add(strip, WORD(AHEAD)))
        near = compare.flags(compare.minimum(compare.sums(strip)), limits)
        strip.add_incoming(builder.add(strip, WORD(STRIP)), builder.block)
        builder.cbranch(builder.icmp_unsigned("==", near, FLAGS(0)), head, end)
        builder.position_at_end(end)
        return strip

    return _typed(words, queries, width, 3), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def near_in_strip(
    typing_context: Any, words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, limit: Any, first: Any
) -> Any:
    """Mask of the 64 items from ``first`` on that are near: one bit per item."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        limits = splat(builder, arguments[6], LANES)
        compare = Comparison(context, builder, signature, arguments, STRIP // LANES)
        found = WORD(0)
        for k, total in enumerate(compare.sums(arguments[7])):
            bits = builder.zext(compare.flags(total, limits), WORD)
            found = builder.or_(found, builder.shl(bits, WORD(k * LANES)))
        return found

    return _typed(words, queries, width, 2), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _near_in_vector(
    typing_context: Any, words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, limit: Any, first: Any
) -> Any:
    """Mask of the 8 items from ``first`` on that are near: one bit per item."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        compare = Comparison(context, builder, signature, arguments, 1)
        flags = compare.flags(compare.sums(arguments[7])[0], splat(builder, arguments[6], LANES))
        return builder.zext(flags, WORD)

    return _typed(words, queries, width, 2), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def least_distance(
    typing_context: Any, words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, first: Any
) -> Any:
    """The smallest distance of the 64 items from ``first`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        compare = Comparison(context, builder, signature, arguments, STRIP // LANES)
        kind = ir.FunctionType(WORD, [VECTOR])
        reduce_lanes = builder.module.declare_intrinsic(f"llvm.vector.reduce.umin.v{LANES}i64", (), kind)
        return builder.call(reduce_lanes, [compare.minimum(compare.sums(arguments[6]))])

    return _typed(words, queries, width, 1), generate


@kernel
def next_near(
    words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, limit: Any, mask: Any, first: Any, last: Any
) -> tuple[Any, Any]:
    """The first strip of [first, last) with an allowed near item, and one bit per such item; (last, 0) if none has one.

    Strips start at ``first``. ``mask``, uint64, has a bit per item, and ``first`` must then be a multiple of 64; an
    empty mask allows every item. All numbers are uint64. Costs n_words / 8 vector comparisons per item.
    """
    strip, whole = first, first + (last - first) // np.uint64(STRIP) * np.uint64(STRIP)
    if mask.size == 0:
        strip = _pass_over(words, n, queries, query, n_words, width, limit, strip, whole)
        if strip < whole:
            return strip, near_in_strip(words, n, queries, query, n_words, width, limit, strip)
    while strip < whole:
        wanted = mask[strip // np.uint64(STRIP)]
        if wanted:
            wanted &= near_in_strip(words, n, queries, query, n_words, width, limit, strip)
            if wanted:
                return strip, wanted
        strip += np.uint64(STRIP)
    found = np.uint64(0)
    if strip < last:
        found = _near_at_the_end(words, n, queries, query, n_words, width, limit, strip, last)
        if mask.size:
            found &= mask[strip // np.uint64(STRIP)]
    return (strip, found) if found else (last, found)


@kernel
def _near_at_the_end(
    words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, limit: Any, first: Any, last: Any
) -> Any:
    """Mask of the items from ``first`` to ``last``, fewer than 64, that are near: one bit per item.

    They are compared 8 at a time. The last vector may reach beyond ``last``, but not beyond the end of the memory.
    """
    found, i = np.uint64(0), first
    end = np.uint64(words.size) - (n_words - np.uint64(1)) * n
    while i < last and i + np.uint64(LANES) <= end:
        found |= _near_in_vector(words, n, queries, query, n_words, width, limit, i) << (i - first)
        i += np.uint64(LANES)
    while i < last:
        near = distance_to(words, n, queries, query, n_words, i) < limit
        found |= np.uint64(near) << (i - first)
        i += np.uint64(1)
    return found & ((np.uint64(1) << (last - first)) - np.uint64(1))


@kernel
def distance_to(words: Any, n: Any, queries: Any, query: Any, n_words: Any, item: Any) -> Any:
    """The distance of one item."""
    total = np.uint64(0)
    for w in range(n_words):
        total += popcount(words[w * n + item] ^ queries[query + w])
    return total


@kernel
def lowest(found: Any) -> Any:
    """The place of the lowest one bit."""
    return popcount((found & (~found + np.uint64(1))) - np.uint64(1))
