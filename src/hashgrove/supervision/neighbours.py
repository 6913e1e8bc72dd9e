"""The kernels behind `Affinity`: they draw neighbours of each point and make the relation symmetric.

A draw returns (number of neighbours per row, int64; neighbours of all rows, one row after the other, uint32). What is
drawn for a row depends on the seed and the row only, so chunks of rows can be drawn by any thread.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.streams import below, draw, draw_few, stream

__all__ = ["draw_by_class", "draw_by_tags", "draw_of_rows", "interleave", "transpose", "union"]


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
def transpose(indptr, indices):
    """The transpose of a square sparse pattern, with sorted rows. O(entries)."""
    n = len(indptr) - 1
    transposed_ptr = np.zeros(n + 1, np.int64)
    for e in range(len(indices)):
        transposed_ptr[indices[e] + 1] += 1
    for i in range(n):
        transposed_ptr[i + 1] += transposed_ptr[i]
    cursor = transposed_ptr[:-1].copy()
    transposed = np.empty(len(indices), np.uint32)
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            transposed[cursor[j]] = i
            cursor[j] += 1
    return transposed_ptr, transposed


@kernel
def union(indptr, indices):
    """The union of a square sparse pattern and its transpose, with sorted rows. O(entries)."""
    n = len(indptr) - 1
    back_ptr, back = transpose(indptr, indices)
    forth_ptr, forth = transpose(back_ptr, back)
    union_ptr = np.zeros(n + 1, np.int64)
    merged = np.empty(len(forth) + len(back), np.uint32)
    size = 0
    for i in range(n):
        a, b = forth_ptr[i], back_ptr[i]
        while a < forth_ptr[i + 1] or b < back_ptr[i + 1]:
            if b == back_ptr[i + 1] or (a < forth_ptr[i + 1] and forth[a] < back[b]):
                merged[size] = forth[a]
                a += 1
            elif a == forth_ptr[i + 1] or back[b] < forth[a]:
                merged[size] = back[b]
                b += 1
            else:
                merged[size] = forth[a]
                a += 1
                b += 1
            size += 1
        union_ptr[i + 1] = size
    return union_ptr, merged[:size]


@kernel
def interleave(similar_ptr, similar, dissimilar_ptr, dissimilar, indptr, first_dissimilar, out):
    """Write each row to ``out`` as its similar points, followed by its dissimilar points. O(entries)."""
    for i in range(len(first_dissimilar)):  # (numba compiles 1.7 s longer for an assignment of slices)
        to_similar, to_dissimilar = indptr[i] - similar_ptr[i], first_dissimilar[i] - dissimilar_ptr[i]
        for e in range(similar_ptr[i], similar_ptr[i + 1]):
            out[to_similar + e] = similar[e]
        for e in range(dissimilar_ptr[i], dissimilar_ptr[i + 1]):
            out[to_dissimilar + e] = dissimilar[e]
