"""The kernels behind `Affinity`: they draw neighbours of each point and make the relation symmetric.

A pair counts for both of its points, so each draw is two ends. Ends are collected in buckets of a fixed number of
points, and sorted there: memory is never read or written in random order, however many points there are.

A draw returns (number of neighbours per row, int64; neighbours of all rows, one row after the other, uint32). What is
drawn for a row depends on the seed and the row only, so chunks of rows can be drawn by any thread.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.streams import below, draw, draw_few, stream

__all__ = ["count_ends", "draw_by_class", "draw_by_tags", "draw_of_rows", "join_ends", "scatter_ends"]


@kernel
def draw_by_class(classes, by_class, starts, n_similar, n_dissimilar, seed, first, last):
    """Draw similar and dissimilar neighbours of rows [first, last), given their classes. O(neighbours drawn).

    The points of class c are ``by_class[starts[c]:starts[c + 1]]``.
    """
    n = len(classes)
    rows = last - first
    most = 1
    similar_counts, dissimilar_counts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for row in range(rows):
        label = classes[first + row]
        size = starts[label + 1] - starts[label]
        similar_counts[row] = min(n_similar, size - 1)
        dissimilar_counts[row] = min(n_dissimilar, n - size)
        most = max(most, similar_counts[row], dissimilar_counts[row])
    size = 2
    while size < 2 * most:
        size *= 2
    numbers, stamp, drawn = np.empty(size, np.int64), np.zeros(size, np.int64), np.empty(most, np.int64)
    similar = np.empty(similar_counts.sum(), np.uint32)
    dissimilar = np.empty(dissimilar_counts.sum(), np.uint32)
    a = b = 0
    for row in range(rows):
        i = first + row
        start, stop = starts[classes[i]], starts[classes[i] + 1]
        state = stream(seed, i)
        for t in range(draw_few(state, stop - start - 1, n_similar, numbers, stamp, 2 * i + 1, drawn)):
            # the range leaves out the last point of the class; it is drawn in place of point i, which is no neighbour
            j = by_class[start + drawn[t]]
            similar[a] = by_class[stop - 1] if j == i else j
            a += 1
        for t in range(draw_few(state, n - (stop - start), n_dissimilar, numbers, stamp, 2 * i + 2, drawn)):
            position = drawn[t] if drawn[t] < start else drawn[t] + stop - start
            dissimilar[b] = by_class[position]
            b += 1
    return (similar_counts, similar), (dissimilar_counts, dissimilar)


@kernel
def draw_by_tags(row_ptr, row_tags, tag_ptr, tag_rows, n, min_shared, n_similar, n_dissimilar, seed, first, last):
    """Draw similar and dissimilar neighbours of rows [first, last), given their tags.

    Row i has the tags ``row_tags[row_ptr[i]:row_ptr[i + 1]]``; tag t belongs to the rows
    ``tag_rows[tag_ptr[t]:tag_ptr[t + 1]]``. Shared tags are counted along these lists of rows. O(points + length of the
    lists + neighbours drawn), plus O(points) for each row that needs most of its dissimilar points.
    """
    rows = last - first
    stamp = np.zeros(n, np.int64)
    shared = np.zeros(n, np.uint16)
    touched, drawn, candidates = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    similar_counts, dissimilar_counts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    similar = np.empty(rows * min(n_similar, n), np.uint32)
    dissimilar = np.empty(rows * min(n_dissimilar, n), np.uint32)
    a = b = 0
    for row in range(rows):
        i = first + row
        n_touched = m = 0
        for t in range(row_ptr[i], row_ptr[i + 1]):
            for p in range(tag_ptr[row_tags[t]], tag_ptr[row_tags[t] + 1]):
                j = tag_rows[p]
                if shared[j] == 0:
                    touched[n_touched] = j
                    n_touched += 1
                shared[j] += 1
        for t in range(n_touched):
            if shared[touched[t]] >= min_shared and touched[t] != i:
                candidates[m] = touched[t]
                m += 1
        state = stream(seed, i)
        similar_counts[row] = draw(state, m, n_similar, stamp, 2 * i + 1, drawn)
        for t in range(similar_counts[row]):
            similar[a] = candidates[drawn[t]]
            a += 1
        others = n - 1 - m
        dissimilar_counts[row] = min(n_dissimilar, others)
        if 2 * dissimilar_counts[row] <= others and 2 * others >= n:  # at least one draw in four is accepted
            for _ in range(dissimilar_counts[row]):
                j = np.int64(below(state, n))
                while j == i or stamp[j] == 2 * i + 2 or shared[j] >= min_shared:
                    j = np.int64(below(state, n))
                stamp[j] = 2 * i + 2
                dissimilar[b] = j
                b += 1
        else:
            m = 0
            for j in range(n):
                if j != i and shared[j] < min_shared:
                    candidates[m] = j
                    m += 1
            for t in range(draw(state, m, n_dissimilar, stamp, 2 * i + 2, drawn)):
                dissimilar[b] = candidates[drawn[t]]
                b += 1
        for t in range(n_touched):
            shared[touched[t]] = 0
    return (similar_counts, similar[:a].copy()), (dissimilar_counts, dissimilar[:b].copy())


@kernel
def draw_of_rows(indptr, indices, limit, seed, first_stream, first, last):
    """Draw at most ``limit`` entries of each row in [first, last) of a sparse matrix. O(entries drawn + widest row)."""
    rows = last - first
    counts = np.empty(rows, np.int64)
    widest = 0
    for row in range(rows):
        width = indptr[first + row + 1] - indptr[first + row]
        counts[row] = min(limit, width)
        widest = max(widest, width)
    out = np.empty(counts.sum(), np.uint32)
    stamp, drawn = np.zeros(widest, np.int64), np.empty(widest, np.int64)
    a = 0
    for row in range(rows):
        start = indptr[first + row]
        state = stream(seed, first_stream + first + row)
        for t in range(draw(state, indptr[first + row + 1] - start, limit, stamp, row + 1, drawn)):
            out[a] = indices[start + drawn[t]]
            a += 1
    return counts, out


@kernel
def count_ends(bucket_rows, counts, drawn, first, totals):
    """Add the ends of pairs that lie in each bucket of points to ``totals``: both ends of each pair. O(pairs).

    Point k is in bucket ``k // bucket_rows``. The points from ``first`` on have drawn ``counts`` neighbours each, and
    ``drawn`` has these, one point after the other.
    """
    e = 0
    for row in range(len(counts)):
        totals[(first + row) // bucket_rows] += counts[row]
        for _ in range(counts[row]):
            totals[drawn[e] // bucket_rows] += 1
            e += 1


@kernel
def scatter_ends(known, bucket_rows, counts, drawn, first, kind, cursor, ends, places):
    """Write both ends of each pair to their buckets: who the other end is, and the place of this end in the bucket.

    ``cursor[b]`` is where bucket b goes on in ``ends`` (uint32) and ``places`` (uint16); it is moved on. A place is
    4 x the number of the point in its bucket, + 2 for dissimilar pairs (``kind`` is 2, otherwise 0), + 1 if this point
    drew the other. ``known[k]`` is the number of point k. O(pairs), in as many streams of memory as there are buckets.
    """
    e = 0
    for row in range(len(counts)):
        i = first + row
        mine = i // bucket_rows
        for _ in range(counts[row]):
            j = np.int64(drawn[e])
            e += 1
            its = j // bucket_rows
            here, there = cursor[mine], cursor[its] + (mine == its)
            ends[here], places[here] = known[j], 4 * (i - mine * bucket_rows) + kind + 1
            ends[there], places[there] = known[i], 4 * (j - its * bucket_rows) + kind
            cursor[mine] += 1
            cursor[its] += 1


@kernel
def join_ends(ends, places, n_similar, n_all):
    """Sort the ends in a bucket by point, similar ones first, then by number, and leave out those that are there twice.

    Those that the point did not draw must be in the order of their numbers. Returns how many are left; they are at the
    front of ``ends``. Adds their number per point, of similar ones and of all, to ``n_similar`` and ``n_all``, int64
    arrays of zeros. O(ends log(ends per point)).
    """
    n_groups = 4 * len(n_all)
    starts = np.zeros(n_groups + 1, np.int64)
    for e in range(np.uint64(len(ends))):
        starts[np.uint64(places[e]) + np.uint64(1)] += 1
    for group in range(n_groups):
        starts[group + 1] += starts[group]
    cursor, grouped = starts[:-1].copy(), np.empty(len(ends), np.uint32)
    for e in range(np.uint64(len(ends))):
        place = np.uint64(places[e])
        grouped[cursor[place]] = ends[e]
        cursor[place] += 1
    size = 0
    for group in range(0, n_groups, 2):
        a, middle, stop = starts[group], starts[group + 1], starts[group + 2]
        grouped[middle:stop].sort()
        b, before = middle, size
        while a < middle or b < stop:
            if b == stop or (a < middle and grouped[a] <= grouped[b]):
                b += b < stop and grouped[a] == grouped[b]
                ends[size] = grouped[a]
                a += 1
            else:
                ends[size] = grouped[b]
                b += 1
            size += 1
        if group % 4 == 0:
            n_similar[group // 4] = size - before
        n_all[group // 4] += size - before
    return size
