"""The exact minimum of a sub-modular quadratic function of signs, by minimum cut. Nothing here is about hashing.

It minimises sum_i field_i z_i - sum_{i<j} weight_ij z_i z_j over z in {-1, +1}^n, where weight_ij >= 0. All numbers are
integers, so the minimum is exact. The weights are a symmetric CSR matrix without a diagonal and with sorted rows.

Most nodes need no flow. First, a node whose field outweighs all its undecided neighbours is fixed (persistency). Then,
if the field of the lighter side can flow into direct neighbours of the heavier side, all undecided nodes take the sign
of the heavier side (one-hop certificate). Otherwise push-relabel (Goldberg & Tarjan 1988; FIFO, with gaps and global
relabelling) decides the remaining nodes. If there are several minima, the one that is returned is deterministic but
otherwise unspecified.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel

__all__ = ["minimise"]


@kernel
def minimise(indptr, indices, weights, field, z):
    """Write a minimiser to ``z`` (int8). ``field`` (int64) is overwritten.

    The graph is ``indptr`` (int64, shape (n + 1,)), ``indices`` (uint32) and ``weights`` (int32).
    """
    n = len(field)
    undecided = _fix_persistent(indptr, indices, weights, field, z)
    if undecided == 0:
        return
    positive = negative = np.int64(0)
    for i in range(n):
        if z[i] == 0:
            if field[i] > 0:
                positive += field[i]
            else:
                negative -= field[i]
    # a positive field asks for z = -1; the flow starts from the lighter side
    heavy = np.int64(-1) if negative <= positive else np.int64(1)
    if _one_hop(indptr, indices, weights, field, z, heavy):
        for i in range(n):
            if z[i] == 0:
                z[i] = heavy
        return
    _cut(indptr, indices, weights, field, z, heavy, undecided)


@kernel
def _fix_persistent(indptr, indices, weights, field, z):
    """Fix every node whose field decides it, whatever its undecided neighbours are, until no more can be fixed.

    In ``z``, 0 means undecided. The values of fixed nodes are added to the field of their neighbours. Returns the
    number of undecided nodes. O(entries).
    """
    n = len(field)
    pending = np.empty(n, np.int64)  # weight to undecided neighbours
    queue = np.empty(n, np.uint32)
    head = tail = 0
    for i in range(n):
        total = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += weights[e]
        pending[i] = total
        z[i] = 0
        if abs(field[i]) >= pending[i]:
            z[i] = -1 if field[i] >= 0 else 1
            queue[tail] = i
            tail += 1
    if n < 2 * tail:  # fewer nodes are undecided than fixed, so visit the undecided ones
        head = tail
        _add_fixed_neighbours(indptr, indices, weights, field, pending, z)
        for i in range(n):
            if z[i] == 0 and abs(field[i]) >= pending[i]:
                z[i] = -1 if field[i] >= 0 else 1
                queue[tail] = i
                tail += 1
    while head < tail:
        i = queue[head]
        head += 1
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + np.uint32(1)])):
            j = indices[e]
            if z[j] == 0:
                field[j] -= weights[e] * z[i]
                pending[j] -= weights[e]
                if abs(field[j]) >= pending[j]:
                    z[j] = -1 if field[j] >= 0 else 1
                    queue[tail] = j
                    tail += 1
    return n - tail


@kernel
def _add_fixed_neighbours(indptr, indices, weights, field, pending, z):
    """Add the fixed neighbours of each undecided node to its field. O(entries of undecided nodes)."""
    for i in range(len(field)):
        if z[i] != 0:
            continue
        total = known = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            sign = z[indices[e]]
            total += weights[e] * sign
            known += weights[e] * abs(sign)
        field[i] -= total
        pending[i] -= known


@kernel
def _one_hop(indptr, indices, weights, field, z, heavy):
    """Whether the whole field of the lighter side can flow into direct neighbours on the heavier side.

    If so, all undecided nodes may take the sign ``heavy`` that the heavier side asks for. The lighter side are the
    nodes with heavy * field > 0. Changes nothing. O(entries).
    """
    n = len(field)
    room = np.empty(n, np.int64)
    for i in range(n):
        room[i] = max(-heavy * field[i], 0) if z[i] == 0 else 0
    for i in range(n):
        if z[i] != 0 or heavy * field[i] <= 0:
            continue
        rest = heavy * field[i]
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = indices[e]
            if room[j] > 0:
                moved = min(rest, min(np.int64(weights[e]), room[j]))
                room[j] -= moved
                rest -= moved
                if rest == 0:
                    break
        if rest > 0:
            return False
    return True


@kernel
def _cut(indptr, indices, weights, field, z, heavy, undecided):
    """Decide the undecided nodes by a maximum flow on the graph of these nodes."""
    n = len(field)
    nodes = np.empty(undecided, np.uint32)
    m = 0
    for i in range(n):
        if z[i] == 0:
            nodes[m] = i
            m += 1
    if undecided == n:
        ptr, heads, residual = indptr, indices[: indptr[n]], weights[: indptr[n]].copy()
    else:
        ptr, heads, residual = _induced(indptr, indices, weights, z, nodes)
    excess, room = np.zeros(undecided, np.int64), np.zeros(undecided, np.int64)
    for s in range(undecided):
        value = heavy * field[nodes[s]]
        if value > 0:
            excess[s] = value
        else:
            room[s] = -value
    height = _push_relabel(ptr, heads, residual, excess, room)
    for s in range(undecided):
        # a node that can still reach the sink is on the heavy side
        z[nodes[s]] = heavy if height[s] <= undecided else -heavy


@kernel
def _induced(indptr, indices, weights, z, nodes):
    """The part of the graph between ``nodes``, for which z is 0: its indptr, indices and weights. O(entries)."""
    position = np.empty(len(z), np.uint32)
    ptr = np.zeros(len(nodes) + 1, np.int64)
    entries = 0
    for s in range(len(nodes)):
        i = nodes[s]
        position[i] = s
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + np.uint32(1)])):
            entries += z[indices[e]] == 0
        ptr[s + 1] = entries
    heads, kept = np.empty(entries, np.uint32), np.empty(entries, np.int32)
    t = np.uint64(0)
    for s in range(len(nodes)):
        i = nodes[s]
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + np.uint32(1)])):
            if z[indices[e]] == 0:
                heads[t] = position[indices[e]]
                kept[t] = weights[e]
                t += np.uint64(1)
    return ptr, heads, kept


@kernel
def _reverse_arcs(ptr, heads):
    """The position of arc (j, i) for each arc (i, j). Rows are sorted, so arcs into j come in the order of row j."""
    cursor = ptr[:-1].copy()
    reverse = np.empty(len(heads), np.uint32)
    for e in range(np.uint64(len(heads))):
        reverse[e] = cursor[heads[e]]
        cursor[heads[e]] += 1
    return reverse


@kernel
def _distances_to_sink(ptr, heads, reverse, residual, room, height, queue):
    """Write to ``height`` the exact residual distance of every node to the sink, n + 1 without a path. O(entries)."""
    n = len(room)
    head = tail = 0
    for i in range(n):
        height[i] = n + 1
        if room[i] > 0:
            height[i] = 1
            queue[tail] = i
            tail += 1
    while head < tail < n:  # stops as soon as all nodes are reached
        i = queue[head]
        head += 1
        for e in range(np.uint64(ptr[i]), np.uint64(ptr[i + 1])):
            j = heads[e]
            if height[j] == n + 1 and residual[reverse[e]] > 0:
                height[j] = height[i] + 1
                queue[tail] = j
                tail += 1


@kernel
def _push_relabel(ptr, heads, residual, excess, room):
    """Push a maximum preflow from ``excess`` to ``room`` (both int64, updated); returns the distances to the sink.

    Nodes with a distance above n are the source side of a minimum cut.
    """
    n = len(excess)
    reverse = _reverse_arcs(ptr, heads)
    height = np.empty(n, np.int64)
    scratch = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)  # circular; it holds each node at most once
    queued = np.zeros(n, np.bool_)
    at_height = np.zeros(n + 2, np.int64)
    current = np.empty(n, np.int64)
    relabels = n  # so that the first round computes exact distances
    head = size = 0
    while True:
        if relabels >= n:
            relabels = 0
            _distances_to_sink(ptr, heads, reverse, residual, room, height, scratch)
            at_height[:] = 0
            head = size = 0
            for i in range(n):
                at_height[height[i]] += 1
                current[i] = ptr[i]
                queued[i] = excess[i] > 0 and height[i] <= n
                if queued[i]:
                    queue[size] = i
                    size += 1
        if size == 0:
            break
        i = queue[head]
        head = head + 1 if head + 1 < n else 0
        size -= 1
        queued[i] = False
        if height[i] > n:
            continue
        absorbed = min(excess[i], room[i])
        excess[i] -= absorbed
        room[i] -= absorbed
        e = np.uint64(current[i])
        while excess[i] > 0 and e < np.uint64(ptr[i + 1]):
            j = heads[e]
            if residual[e] > 0 and height[i] == height[j] + 1:
                moved = min(excess[i], np.int64(residual[e]))
                residual[e] -= moved
                residual[reverse[e]] += moved
                excess[i] -= moved
                excess[j] += moved
                if not queued[j]:
                    queued[j] = True
                    queue[(head + size) % n] = j
                    size += 1
                if excess[i] == 0:
                    break
            e += np.uint64(1)
        current[i] = np.int64(e)
        if excess[i] > 0:
            relabels += 1
            lowest = n
            for arc in range(np.uint64(ptr[i]), np.uint64(ptr[i + 1])):
                if residual[arc] > 0:
                    lowest = min(lowest, height[heads[arc]])
            old = height[i]
            at_height[old] -= 1
            height[i] = min(lowest + 1, n + 1)
            at_height[height[i]] += 1
            if at_height[old] == 0 and old <= n:  # a gap: no node above it can reach the sink
                for j in range(n):
                    if old < height[j] <= n:
                        at_height[height[j]] -= 1
                        height[j] = n + 1
                        at_height[n + 1] += 1
            current[i] = ptr[i]
            if height[i] <= n:
                queued[i] = True
                queue[(head + size) % n] = i
                size += 1
    _distances_to_sink(ptr, heads, reverse, residual, room, height, scratch)
    return height
