"""The comparison of many queries with a block of 512 items, as logic on bits: no ones of words are counted.

A block is transposed, so that a vector holds one bit of each of its items. Full adders then add up the bits of all
items at once, in a few instructions. What does not depend on the query is done once per block: for every three bits of
a code, their sum is written down for each of the eight values that these bits may have in a query, as two vectors: ones
and twos. A query looks up its vectors, 22 pairs per word, and adds them. That takes a fifth of an instruction per word
and item with AVX-512 and one with AVX2, so it is faster than `hashgrove.index.batch` if enough queries share a block.
With VPOPCNTDQ, comparing takes less time than reading the tables does, so no block is sliced.

The tables of a block are uint64 (n_words * `TABLE_WORDS`,). A pair of vectors has 16 words; word 8 l + j is for the
items 64 l to 64 l + 63 of the block, a bit for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hashgrove.index.strips import STRIP
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import has_feature, pointer, splat

__all__ = ["BLOCK", "MAX_SLICED", "TABLE_WORDS", "fewest_queries", "near_in_block", "offsets_of", "slice_block"]

BLOCK = 512  # items that are compared at once
LANES = 8  # words per plane, which has one bit of every item of a block
MAX_SLICED = 16  # words; longer codes are compared strip by strip
N_GROUPS = 22  # per word: 21 groups of 3 bits, and the last bit
PAIR = 2 * LANES
TABLE_WORDS = 21 * 8 * PAIR + 2 * PAIR
WORD, PLANE = ir.IntType(64), ir.VectorType(ir.IntType(64), LANES)
UNROLLED = 2  # words; longer codes have a loop over the words
FLAG = ir.IntType(1)
ROUNDS = (32, 16, 8, 4, 2, 1)  # of transposing 64 x 64 bits


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def fewest_queries(typing_context: Any) -> Any:
    """How many queries are worth the tables of a block: none are if the processor counts the ones of vectors itself."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return WORD(2**62 if has_feature(context, "avx512vpopcntdq") else 16)

    return types.int64(), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _slice_word(typing_context: Any, words: Any, first: Any, tables: Any, to: Any) -> Any:
    """Write the tables of the 512 words from ``words[first]`` on to ``tables[to:]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words, first, tables, to = arguments
        items = pointer(context, builder, signature.args[0], words, first, WORD)
        out = pointer(context, builder, signature.args[2], tables, to, WORD)
        planes = cgutils.alloca_once(builder, ir.ArrayType(PLANE, 64))
        scratch = builder.bitcast(planes, WORD.as_pointer())

        def load(place: Any, offset: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(place, [offset]), PLANE.as_pointer()), align=8)

        def store(vector: Any, place: Any, offset: Any) -> None:
            builder.store(vector, builder.bitcast(builder.gep(place, [offset]), PLANE.as_pointer()), align=8)

        with cgutils.for_range(builder, WORD(LANES)) as loop:  # the words of 64 items in a row become a lane
            column = builder.mul(loop.index, WORD(LANES))
            rows = _transposed(builder, [load(items, builder.add(column, WORD(r * STRIP))) for r in range(LANES)])
            for r, row in enumerate(rows):
                store(row, scratch, builder.mul(builder.add(column, WORD(r)), WORD(LANES)))
        for step in ROUNDS:  # swap the high bits of one row with the low bits of the other
            low = splat(builder, WORD(sum(1 << bit for bit in range(64) if not bit & step)), LANES)
            shift = splat(builder, WORD(step), LANES)
            with cgutils.for_range(builder, WORD(32)) as loop:
                inner = builder.and_(loop.index, WORD(step - 1))
                row = builder.add(builder.mul(builder.sub(loop.index, inner), WORD(2)), inner)
                here, there = (builder.mul(builder.add(row, WORD(more)), WORD(LANES)) for more in (0, step))
                one, two = load(scratch, here), load(scratch, there)
                differing = builder.and_(builder.xor(builder.lshr(one, shift), two), low)
                store(builder.xor(two, differing), scratch, there)
                store(builder.xor(one, builder.shl(differing, shift)), scratch, here)
        with cgutils.for_range(builder, WORD(N_GROUPS - 1)) as loop:
            start = builder.mul(loop.index, WORD(3 * LANES))
            bits = [load(scratch, builder.add(start, WORD(bit * LANES))) for bit in range(3)]
            for value in range(8):
                flipped = [builder.not_(b) if value >> place & 1 else b for place, b in enumerate(bits)]
                place = builder.add(builder.mul(loop.index, WORD(8 * PAIR)), WORD(value * PAIR))
                for part, vector in enumerate(full_adder(context, builder, *flipped)):
                    store(vector, out, builder.add(place, WORD(part * LANES)))
        last = load(scratch, WORD(63 * LANES))
        for value, vector in enumerate((last, builder.not_(last))):
            store(vector, out, WORD((N_GROUPS - 1) * 8 * PAIR + value * PAIR))
        return context.get_dummy_value()

    return types.void(words, types.uint64, tables, types.uint64), generate


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The transpose of 8 vectors of 8 words."""
    for step in (4, 2, 1):
        low = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
        high = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
        orders = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), order) for order in (low, high)]
        for r in range(LANES):
            if not r & step:
                pair = rows[r], rows[r + step]
                rows[r], rows[r + step] = (builder.shuffle_vector(*pair, order) for order in orders)
    return rows


def full_adder(context: Any, builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """The sum of three bits, as a low and a high bit, in each place of three vectors."""
    if a.type.count == LANES and has_feature(context, "avx512f"):
        kind = ir.FunctionType(a.type, [a.type] * 3 + [ir.IntType(32)])
        function = builder.module.declare_intrinsic("llvm.x86.avx512.pternlog.q.512", (), kind)
        odd, most = (builder.call(function, [a, b, c, ir.IntType(32)(table)]) for table in (0b10010110, 0b11101000))
        return odd, most
    differ = builder.xor(a, b)
    return builder.xor(differ, c), builder.or_(builder.and_(a, b), builder.and_(differ, c))


class Adders:
    """Writes the code that adds the bits of vectors: ``sums[level]`` is the vector of the digits that count 2^level.

    What is carried beyond the last level is collected in ``beyond``.
    """

    def __init__(self, context: Any, builder: Any, sums: list[Any], beyond: Any) -> None:
        self.context, self.builder, self.beyond = context, builder, beyond
        self.waiting = [[digit] for digit in sums]

    def add(self, vector: Any, level: int) -> None:
        """Add a vector of digits that count 2^level. Three digits are added as soon as there are as many."""
        if level == len(self.waiting):
            self.beyond = self.builder.or_(self.beyond, vector)
            return
        self.waiting[level].append(vector)
        if len(self.waiting[level]) == 3:
            digit, carry = full_adder(self.context, self.builder, *self.waiting[level])
            self.waiting[level] = [digit]
            self.add(carry, level + 1)

    def finish(self) -> list[Any]:
        """The digits of the sum, one vector per level."""
        for level, digits in enumerate(self.waiting):
            if len(digits) == 2:
                self.waiting[level] = [self.builder.xor(*digits)]
                self.add(self.builder.and_(*digits), level + 1)
        return [digits[0] for digits in self.waiting]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _near_in_tables(typing_context: Any, tables: Any, offsets: Any, at: Any, width: Any, limit: Any, found: Any) -> Any:
    """Write which items of a block are nearer to a query than ``limit`` to ``found``, uint64 (8,); 0 if none is.

    The query's row of `offsets_of` begins at ``offsets[at]``. The digits begin at 2^n - limit, where n is the number of
    levels; so a sum that is carried beyond the last level is a distance that is not below the limit.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tables, offsets, at, _, limit, found = arguments
        n_words = signature.args[3].count
        n_levels = (64 * n_words).bit_length()
        lanes = LANES if has_feature(context, "avx512f") else 4
        vector = ir.VectorType(WORD, lanes)
        places = pointer(context, builder, signature.args[1], offsets, at, ir.IntType(32))
        out = pointer(context, builder, signature.args[5], found, WORD(0), WORD)
        start = builder.sub(WORD(1 << n_levels), limit)
        digits = [builder.ashr(builder.shl(start, WORD(63 - level)), WORD(63)) for level in range(n_levels + 1)]
        any_near = FLAG(0)
        for part in range(0, LANES, lanes):
            place = pointer(context, builder, signature.args[0], tables, WORD(part), WORD)

            def load(at_word: Any, group: int, twos: int, place: Any = place) -> Any:
                number = builder.load(builder.gep(places, [builder.add(at_word, WORD(group))]))
                row = builder.gep(place, [builder.add(builder.zext(number, WORD), WORD(twos * LANES))])
                return builder.load(builder.bitcast(row, vector.as_pointer()), align=8)

            def add_word(at_word: Any, sums: list[Any], beyond: Any, load: Any = load) -> tuple[list[Any], Any]:
                adders = Adders(context, builder, sums, beyond)
                for group in range(N_GROUPS):
                    adders.add(load(at_word, group, 0), 0)
                    if group < N_GROUPS - 1:
                        adders.add(load(at_word, group, 1), 1)
                return adders.finish(), adders.beyond

            *sums, beyond = (splat(builder, digit, lanes) for digit in digits)
            if n_words <= UNROLLED:
                for w in range(n_words):
                    sums, beyond = add_word(WORD(w * N_GROUPS), sums, beyond)
            else:
                kept = [cgutils.alloca_once_value(builder, value) for value in (*sums, beyond)]
                for cell, value in zip(kept, (*sums, beyond), strict=True):
                    builder.store(value, cell)
                with cgutils.for_range(builder, WORD(n_words)) as loop:
                    *sums, beyond = (builder.load(cell) for cell in kept)
                    sums, beyond = add_word(builder.mul(loop.index, WORD(N_GROUPS)), sums, beyond)
                    for cell, value in zip(kept, (*sums, beyond), strict=True):
                        builder.store(value, cell)
                beyond = builder.load(kept[-1])
            near = builder.not_(beyond)
            builder.store(near, builder.bitcast(builder.gep(out, [WORD(part)]), vector.as_pointer()), align=8)
            flags = builder.icmp_unsigned("!=", near, ir.Constant(vector, None))
            kind = ir.IntType(lanes)
            some = builder.icmp_unsigned("!=", builder.bitcast(flags, kind), kind(0))
            any_near = builder.or_(any_near, some)
        return builder.zext(any_near, WORD)

    number = types.uint64
    return number(tables, offsets, number, width, number, found), generate


@kernel
def slice_block(words: Any, n: Any, n_words: Any, first: Any, tables: Any) -> None:
    """Write the tables of the 512 items from ``first`` on.

    ``words`` and ``n`` are those of `hashgrove.index.strips`. Costs about as much as comparing the block strip by strip
    with eight queries.
    """
    for w in range(n_words):
        _slice_word(words, w * n + first, tables, w * np.uint64(TABLE_WORDS))


@kernel
def offsets_of(queries: Any) -> Any:
    """Where the vectors of each query begin in the tables of a block: uint32 (n_queries, n_words, `N_GROUPS`)."""
    n_queries, n_words = queries.shape
    offsets = np.empty((n_queries, n_words, N_GROUPS), np.uint32)
    for q in range(n_queries):
        for w in range(n_words):
            for group in range(N_GROUPS):
                value = queries[q, w] >> np.uint64(3 * group) & np.uint64(7)
                offsets[q, w, group] = w * TABLE_WORDS + group * 8 * PAIR + np.int64(value) * PAIR
    return offsets


@kernel
def near_in_block(tables: Any, offsets: Any, query: Any, width: Any, limit: Any, found: Any) -> Any:
    """Write one bit per item of a block to ``found``, uint64 (8,), if it is near; return 0 if none is.

    ``offsets`` is `offsets_of`, flat. An item is near if its distance is below ``limit``, which is at most one more
    than the number of bits.
    """
    at = query * np.uint64(len(width) * N_GROUPS)
    return _near_in_tables(tables, offsets, at, width, limit, found)
