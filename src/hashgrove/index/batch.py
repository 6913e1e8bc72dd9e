"""The comparison of several queries with one strip of 64 items after the other.

A strip is copied, and all queries are compared with the copy. The copy begins with a cache line: vectors that lie
across two lines take twice as long to read, and reading would then be slower than comparing. Its words follow each
other, however far apart they are in memory. While queries are compared, the next strip is copied, some of its words at
a time, so that memory and arithmetic work side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from hashgrove.index.strips import AHEAD, FLAGS, LANES, STRIP, VECTOR, WORD, Comparison, near_in_strip
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import fetch_line, pointer, splat

__all__ = ["aligned", "compare_strips"]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _next_query(
    typing_context: Any, words: Any, n: Any, queries: Any, n_words: Any, width: Any, limits: Any, first: Any,
    query: Any, last: Any,
) -> Any:  # fmt: skip
    """The number of the first query in [query, last) to which one of the 64 items from ``first`` on is near, or last.

    An item is near to query q if its distance is below ``limits[q]``, uint64. The others are those of
    `hashgrove.index.strips`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words, n, queries, n_words, width, limits, first, query, last = arguments
        places = pointer(context, builder, signature.args[5], limits, WORD(0), WORD)
        before = builder.block
        head, body, end = (builder.append_basic_block(f"queries.{name}") for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        number = builder.phi(WORD)
        number.add_incoming(query, before)
        builder.cbranch(builder.icmp_unsigned("<", number, last), body, end)
        builder.position_at_end(body)
        types_of_shared = types.void(*signature.args[:3], types.uint64, *signature.args[3:5])
        shared = [words, n, queries, builder.mul(number, n_words), n_words, width]
        compare = Comparison(context, builder, types_of_shared, shared, STRIP // LANES)
        limit = splat(builder, builder.load(builder.gep(places, [number])), LANES)
        near = compare.flags(compare.minimum(compare.sums(first)), limit)
        number.add_incoming(builder.add(number, WORD(1)), builder.block)
        builder.cbranch(builder.icmp_unsigned("==", near, FLAGS(0)), head, end)
        builder.position_at_end(end)
        return number

    number = types.uint64
    return number(words, number, queries, number, width, limits, number, number, number), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _copy_word(typing_context: Any, words: Any, first: Any, out: Any, to: Any) -> Any:
    """Copy ``words[first : first + 64]`` to ``out[to : to + 64]``, the start of a cache line; fetch words to come."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words, first, out, to = arguments
        items = pointer(context, builder, signature.args[0], words, first, WORD)
        copies = pointer(context, builder, signature.args[2], out, to, WORD)
        for lane in range(0, STRIP, LANES):
            fetch_line(builder, builder.gep(items, [WORD(AHEAD + lane)]))
            here, there = (builder.bitcast(builder.gep(p, [WORD(lane)]), VECTOR.as_pointer()) for p in (items, copies))
            builder.store(builder.load(here, align=8), there, align=8 * LANES)
        return context.get_dummy_value()

    return types.void(words, types.uint64, out, types.uint64), generate


@kernel
def aligned(size: Any) -> Any:
    """Room for some uint64, from the start of a cache line on."""
    room = np.empty(size + LANES, np.uint64)
    skipped = -(room.ctypes.data // 8) % LANES
    return room[skipped : skipped + size]


@kernel
def _copy(words: Any, first: Any, size: Any, copies: Any, to: Any) -> None:
    """Copy ``size`` words from ``words[first]`` on, at most 64, and then as many zeros as make 64."""
    if size >= np.uint64(STRIP):
        _copy_word(words, first, copies, to)
        return
    for i in range(np.uint64(STRIP)):
        copies[to + i] = words[first + i] if i < size else np.uint64(0)


@kernel
def compare_strips(
    width: Any, words: Any, n: Any, queries: Any, n_words: Any, limits: Any, mask: Any, start: Any, stop: Any,
    copies: Any, near: Any, where: Any,
) -> Any:  # fmt: skip
    """Compare all queries with the tile [start, stop): `hashgrove.index.tiles.compare_tile` says what is written.

    ``copies`` is `aligned` room for two strips.
    """
    n_hits, n_queries, step = 0, np.uint64(len(limits)), np.uint64(STRIP)
    here, there, share = np.uint64(0), n_words * step, (n_queries + n_words - np.uint64(1)) // n_words
    for w in range(n_words):
        _copy(words, w * n + start, stop - start, copies, here + w * step)
    for first in range(start, stop, step):
        after = first + step
        wanted = ~np.uint64(0) if after <= stop else (np.uint64(1) << (stop - first)) - np.uint64(1)
        if mask.size:
            wanted &= mask[first // step]
        for w in range(n_words):
            if after < stop:
                _copy(words, w * n + after, stop - after, copies, there + w * step)
            q = min(w * share, n_queries)
            last = min(q + share, n_queries)
            while wanted and q < last:
                q = _next_query(copies, step, queries, n_words, width, limits, here, q, last)
                if q < last:
                    found = wanted & near_in_strip(copies, step, queries, q * n_words, n_words, width, limits[q], here)
                    if found:
                        near[n_hits], where[n_hits, 0], where[n_hits, 1] = found, q, first
                        n_hits += 1
                    q += np.uint64(1)
        here, there = there, here
    return n_hits
