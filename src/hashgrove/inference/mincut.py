"""Exact minimum of a sub-modular quadratic function of signs, by minimum cut. Knows nothing of hashing.

minimise sum_i field_i z_i - sum_{i<j} weight_ij z_i z_j over z in {-1, +1}^n, with weight_ij >= 0; integers
throughout, so the minimum is exact. The graph is CSR, symmetric, rows sorted by neighbour, without a diagonal.

Most nodes need no flow. In order: a node whose field outweighs all its undecided neighbours is fixed (persistency); if
the lighter side's field can flow away into direct neighbours, the rest takes the heavier side's sign (one-hop
certificate); only then push-relabel (Goldberg & Tarjan 1988; FIFO, with gaps and global relabelling) on what is left.
Where several minima exist, which one is returned is deterministic but otherwise unspecified.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel

__all__ = ["minimise"]


@kernel
def minimise(indptr, indices, weights, field, z):
    """Write a minimiser to ``z`` (int8); ``field`` (int64) is overwritten.

    ``indptr`` int64 (n + 1,), ``indices`` uint32, ``weights`` int32.
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
    # field > 0 asks for z = -1; the lighter side is the source of the flow
    heavy = np.int64(-1) if negative <= positive else np.int64(1)
    if _one_hop(indptr, indices, weights, field, z, heavy):
        for i in range(n):
            if z[i] == 0:
                z[i] = heavy
        return
    _cut(indptr, indices, weights, field, z, heavy, undecided)


@kernel
def _fix_persistent(indptr, indices, weights, field, z):
    """Fix every node whose field decides it whatever its open neighbours do, to a fixpoint; 0 in ``z`` is undecided.

    Folds what is fixed into the field of the neighbours. Returns the number of undecided nodes. O(entries).
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
    if n < 2 * tail:  # fewer nodes are open than fixed: let these look at their neighbours
        head = tail
        _fold_fixed_neighbours(indptr, indices, weights, field, pending, z)
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
def _fold_fixed_neighbours(indptr, indices, weights, field, pending, z):
    """Fold the fixed neighbours of each open node into its field. O(entries of open nodes)."""
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
    """Whether the lighter side's field can flow into direct neighbours of the heavier side: then all of it yields.

    ``heavy`` is the sign that the heavier side asks for; the light nodes are those with heavy * field > 0. Reads only;
    O(entries).
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
    """Decide the undecided nodes by maximum flow on the graph that they induce."""
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
    """The graph on ``nodes``, where z is 0: indptr, indices and weights."""
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
    """Position of arc (j, i) for each arc (i, j); rows are sorted, so the arcs into j come in the order of its row."""
    cursor = ptr[:-1].copy()
    reverse = np.empty(len(heads), np.uint32)
    for e in range(np.uint64(len(heads))):
        reverse[e] = cursor[heads[e]]
        cursor[heads[e]] += 1
    return reverse


@kernel
def _distances_to_sink(ptr, heads, reverse, residual, room, height, queue):
    """Exact residual distance of every node to the sink, n + 1 where there is no path (breadth-first, backwards)."""
    n = len(room)
    head = tail = 0
    for i in range(n):
        height[i] = n + 1
        if room[i] > 0:
            height[i] = 1
            queue[tail] = i
            tail += 1
    while head < tail < n:  # once all are reached, nothing is left to find
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
    """Maximum preflow from ``excess`` to ``room`` (both int64, consumed); returns the final distances to the sink.

    Nodes whose distance is above n are the source side of a minimum cut.
    """
    n = len(excess)
    reverse = _reverse_arcs(ptr, heads)
    height = np.empty(n, np.int64)
    scratch = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)  # circular; a node is in it at most once
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
            if at_height[old] == 0 and old <= n:  # a gap: nothing above it reaches the sink any more
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
