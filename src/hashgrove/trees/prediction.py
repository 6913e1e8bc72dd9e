"""Sums over trees: the votes or the leaves of all trees of a bit, for 64 rows at a time where trees are small.

The bins lie in memory feature by feature. Each test of a small tree compares 64 bytes and gives one flag per row,
without branches. For that a tree is compiled to a record: the places of the features that it tests, the thresholds, and
one byte per leaf, or per pair of sibling leaves. There is vector code for trees of depth 4 and of depth 6; a tree is
filled up to one of them.

- **Votes** (leaves -1 and +1): the flags of a tree, 15 words at depth 4, are combined by selection, and one masked
  addition gives the votes of the tree to the rows where it says +1.
- **Leaves** (one byte each): the flags give the number of each row's leaf, and a table lookup gives the leaf
  (`hashgrove.runtime.simd.look_up`).

Deeper trees are walked row by row, which costs as much as their paths instead of all their nodes. Sums are int16 and
exact, so they do not depend on the order of the trees, and training rows get the same sums as rows that are encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import constant, look_up, pointer, splat
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.trees.binning import TILE

__all__ = [
    "MAX_DEPTH_IN_VECTORS",
    "MAX_LEAF",
    "MAX_SUM",
    "Forest",
    "compile_leaves",
    "compile_votes",
    "constant_forest",
    "sum_leaves",
    "sum_votes",
    "sums_of_bins",
    "walk",
]

SHALLOW, DEEP = 4, 6  # depths with code without branches; a tree is filled up to one of them
MAX_DEPTH_IN_VECTORS = DEEP
MAX_LEAF = 2**7 - 1  # leaves are int8
MAX_SUM = 2**15 - 1  # sums are int16
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no bin is above
BIAS = 128  # is added to the leaves of a record, so that they are not negative
VISITS_PER_CHUNK = 2**20  # rows x trees; with fewer a second thread does not pay

BYTE, WORD = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, TILE)
PAIRS = ir.VectorType(ir.IntType(16), TILE // 2)  # the same vector, as pairs of rows


class Forest(NamedTuple):
    """The node tables of all trees of some bits, one after the other.

    Attributes
    ----------
    bit_ptr : int32 array of shape (n_bits + 1,)
        Bit b has the trees from ``bit_ptr[b]`` to ``bit_ptr[b + 1]``, without the latter.
    tree_ptr : int32 array of shape (n_trees + 1,)
        Tree t has the nodes from ``tree_ptr[t]`` to ``tree_ptr[t + 1]``, without the latter; the first is its root.
    feature, threshold : uint32 and uint8 arrays of shape (n_nodes,)
        A row goes to the left child if its bin of the feature is <= threshold, and otherwise to the right child.
    child : uint32 array of shape (n_nodes,)
        Number of the left child, counted from the root; the right child is the next node. 0 in a leaf.
    value : int8 array of shape (n_nodes,)
        The value of a leaf, 0 in an inner node.
    """

    bit_ptr: NDArray[np.int32]
    tree_ptr: NDArray[np.int32]
    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    value: NDArray[np.int8]


def constant_forest(value: float) -> Forest:
    """One bit with one tree that is a single leaf; the type of its value is that of ``value``."""
    one, zero = np.array([0, 1], np.int32), np.zeros(1, np.uint32)
    dtype = np.float64 if isinstance(value, float) else np.int8
    return Forest(one, one, zero, np.zeros(1, np.uint8), zero, np.array([value], dtype))


def sums_of_bins(
    sum_trees: Callable[..., None], bins: NDArray[np.uint8], compiled: tuple[Any, ...], *, n_jobs: int | None = None
) -> NDArray[np.int16]:
    """Sums, shape (n_bits, n), of rows that are binned already: ``bins`` of shape (n_features, n), contiguous.

    ``sum_trees`` is `sum_votes` or `sum_leaves`, and ``compiled`` the result of `compile_votes` or `compile_leaves` for
    a ``unit`` of n.
    """
    n, bit_ptr = bins.shape[1], compiled[0]
    sums = np.empty((len(bit_ptr) - 1, n), np.int16)
    rows_per_chunk = max(VISITS_PER_CHUNK // int(bit_ptr[-1]) // TILE, 1) * TILE
    tasks = [(bins.reshape(-1), n, TILE, *part, compiled, sums) for part in chunks(n, rows_per_chunk)]
    run_tasks(sum_trees, tasks, n_jobs=n_jobs)
    return sums


def compile_votes(
    forest: Forest, weights: NDArray[np.int16], *, unit: int, n_features: int
) -> tuple[NDArray[Any], ...]:
    """The arrays that `sum_votes` takes, for bins whose features are ``unit`` bytes apart."""
    records = _records(forest, _vote_record_size, True, unit, n_features)
    return forest.bit_ptr, records, weights, *forest[1:]


def compile_leaves(forest: Forest, *, unit: int, n_features: int) -> tuple[NDArray[Any], ...]:
    """The arrays that `sum_leaves` takes, for bins whose features are ``unit`` bytes apart."""
    return forest.bit_ptr, _records(forest, _leaf_record_size, False, unit, n_features), *forest[1:]


def _vote_record_size(depth: int) -> int:
    """Length of a record in uint32: place and threshold of each test, and one byte per lowest test."""
    return 2 * (2**depth - 1) + 2 ** (depth - 1) // 4


def _leaf_record_size(depth: int) -> int:
    """Length of a record in uint32: place and threshold of each test, and one byte per leaf.

    >>> _leaf_record_size(4), _leaf_record_size(6)
    (34, 142)
    """
    return 2 * (2**depth - 1) + 2**depth // 4


def _records(
    forest: Forest, record_size: Callable[[int], int], votes: bool, unit: int, n_features: int
) -> NDArray[np.uint32]:
    """Records of all trees, flat; empty if a tree is too deep, or if the place of a feature, j * unit, is too large."""
    if unit * n_features < 2**32:
        for depth in (SHALLOW, DEEP):
            records = np.zeros((len(forest.tree_ptr) - 1, record_size(depth)), np.uint32)
            if _compile(depth, votes, np.uint32(unit), *forest[1:], records):
                return records.reshape(-1)
    return np.zeros(0, np.uint32)


@kernel
def _compile(depth, votes, unit, tree_ptr, feature, threshold, child, value, records):
    """Fill in the records; return False if a tree is deeper than ``depth``.

    A tree is filled up to its full depth: below a leaf, tests that no row passes lead left to the same leaf. For votes,
    the result of a lowest test with the leaves (-1, +1) is its flags, with (+1, -1) their inverse. With equal leaves no
    row passes the test, and the result is inverted if the leaves are +1.
    """
    n_tests = 2**depth - 1
    place = np.zeros(2 * n_tests + 1, np.uint32)  # the node at each place of the full tree
    for t in range(len(records)):
        start = np.uint32(tree_ptr[t])
        place[0] = start
        for k in range(n_tests):
            node = place[k]
            is_leaf = child[node] == 0
            records[t, k] = np.uint32(0) if is_leaf else feature[node] * unit
            records[t, n_tests + k] = NEVER if is_leaf else np.uint32(threshold[node]) * np.uint32(0x01010101)
            place[2 * k + 1] = node if is_leaf else start + child[node]
            place[2 * k + 2] = node if is_leaf else start + child[node] + np.uint32(1)
        last = records[t, 2 * n_tests :].view(np.uint8)
        for k in range(n_tests + 1):
            node = place[n_tests + k]
            if child[node] > 0:
                return False
            if not votes:
                last[k] = np.uint8(np.int16(value[node]) + BIAS)
            elif k % 2 == 0:
                if value[node] == value[place[n_tests + k + 1]]:
                    records[t, n_tests + n_tests // 2 + k // 2] = NEVER
                last[k // 2] = 255 if value[node] > 0 else 0
    return True


@kernel
def walk(bins, unit, places, root, feature, threshold, child, nodes):
    """Write the leaf that each row reaches in the tree with this root to ``nodes``, uint64.

    The bin of feature j in row i is ``bins[j * unit + places[i]]``, where ``unit`` and ``places`` are uint64.
    """
    n = np.uint64(len(places))
    nodes[:n] = root
    n_moved = n
    while n_moved > 0:
        n_moved = np.uint64(0)
        for i in range(n):  # without a branch: a row in a leaf stays there
            node = nodes[i]
            left = np.uint64(child[node])
            passed = np.uint64(bins[np.uint64(feature[node]) * unit + places[i]] > threshold[node])
            moves = np.uint64(left > 0)
            nodes[i] = root + left + passed if moves > 0 else node
            n_moved += moves


class _TreeCode:
    """Emits the code of one tree for 64 rows; ``rows`` points to the bins of feature 0, ``record`` to the record."""

    def __init__(self, builder: Any, rows: Any, record: Any, n_tests: int) -> None:
        self.builder, self.rows, self.record, self.n_tests = builder, rows, record, n_tests

    def field(self, k: int) -> Any:
        """Entry k of the record."""
        return self.builder.load(self.builder.gep(self.record, [WORD(k)]))

    def bytes(self) -> Any:
        """Pointer to the bytes at the end of the record."""
        start = self.builder.gep(self.record, [WORD(2 * self.n_tests)])
        return self.builder.bitcast(start, BYTE.as_pointer())

    def test(self, k: int) -> Any:
        """Flags of the rows that pass test k and go to the right."""
        place = self.builder.gep(self.rows, [self.builder.zext(self.field(k), WORD)])
        bins = self.builder.load(self.builder.bitcast(place, BYTES.as_pointer()), align=1)
        limits = self.builder.bitcast(splat(self.builder, self.field(self.n_tests + k), TILE // 4), BYTES)
        return self.builder.icmp_unsigned(">", bins, limits)

    def says_one(self, k: int) -> Any:
        """A word with one bit per row: 1 where the tree says +1, as far as the rows are below test k."""
        rows, n_inner = self.builder.bitcast(self.test(k), WORD), self.n_tests // 2
        if k >= n_inner:
            flip = self.builder.load(self.builder.gep(self.bytes(), [WORD(k - n_inner)]))
            return self.builder.xor(rows, self.builder.sext(flip, WORD))
        left, right = self.says_one(2 * k + 1), self.says_one(2 * k + 2)
        return self.builder.xor(left, self.builder.and_(rows, self.builder.xor(left, right)))

    def leaf_number(self, k: int, depth: int) -> Any:
        """The number of each row's leaf among the leaves below test k, ``depth`` tests below it."""
        if depth == 1:
            return self.builder.zext(self.test(k), BYTES)
        left, right = self.leaf_number(2 * k + 1, depth - 1), self.leaf_number(2 * k + 2, depth - 1)
        further = self.builder.add(right, constant(BYTES, 2 ** (depth - 1)))
        return self.builder.select(self.test(k), further, left)


def _tree_of(depth: int) -> Any:
    """An intrinsic that evaluates a tree of this depth without branches."""
    n_tests = 2**depth - 1

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def tree(typing_context: Any, bins: Any, first: Any, records: Any, start: Any) -> Any:
        """Evaluate the tree whose record starts at ``records[start]`` on 64 rows: one bit per row, 1 for +1.

        The bin of row i is ``bins[place + first + i]``, where the record gives the place of the feature.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bins, first, records, start = arguments
            rows = pointer(context, builder, signature.args[0], bins, first, BYTE)
            record = pointer(context, builder, signature.args[2], records, start, ir.IntType(32))
            return _TreeCode(builder, rows, record, n_tests).says_one(0)

        return types.uint64(bins, types.uint64, records, types.uint64), generate

    return tree


SHALLOW_VOTES, DEEP_VOTES = _vote_record_size(SHALLOW), _vote_record_size(DEEP)
_shallow_tree, _deep_tree = _tree_of(SHALLOW), _tree_of(DEEP)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _add_where(typing_context: Any, votes: Any, rows: Any, weight: Any) -> Any:
    """votes[i] += weight (int16) where bit i of ``rows`` is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        votes, rows, weight = arguments
        vector = ir.VectorType(ir.IntType(16), TILE)
        place = pointer(context, builder, signature.args[0], votes, ir.Constant(ir.IntType(64), 0), vector)
        mask = builder.bitcast(rows, ir.VectorType(ir.IntType(1), TILE))
        added = builder.select(mask, splat(builder, weight, TILE), ir.Constant(vector, None))
        builder.store(builder.add(builder.load(place, align=2), added), place, align=2)
        return context.get_dummy_value()

    return types.void(votes, types.uint64, types.int16), generate


@kernel
def _vote_shallow(bins, first, records, weights, start, stop, votes):
    """Add the votes of the trees [start, stop) to ``votes`` (64): about 0.5 cycles per tree and row with AVX-512."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _shallow_tree(bins, first, records, t * np.uint64(SHALLOW_VOTES)), weights[t])


@kernel
def _vote_deep(bins, first, records, weights, start, stop, votes):
    """The same as `_vote_shallow`, for trees of depth 5 and 6."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _deep_tree(bins, first, records, t * np.uint64(DEEP_VOTES)), weights[t])


@kernel
def _vote_walking(bins, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes):
    """The same as `_vote_shallow`, for any depth and up to 64 rows; feature j starts at bins[j * unit + first]."""
    places, nodes = first + np.arange(size).astype(np.uint64), np.empty(size, np.uint64)
    for t in range(start, stop):
        walk(bins, unit, places, np.uint64(tree_ptr[t]), feature, threshold, child, nodes)
        for i in range(np.uint64(size)):
            if value[nodes[i]] > 0:
                votes[i] += weights[t]


@kernel
def _vote(bins, unit, first, size, forest, b, votes):
    """Write the votes for +1 of bit ``b`` to ``votes``, int16 (64), for ``size`` rows of ``bins``, at most 64."""
    bit_ptr, records, weights, tree_ptr, feature, threshold, child, value = forest
    record = len(records) // len(weights) if size == TILE else 0
    start, stop = bit_ptr[b], bit_ptr[b + 1]
    votes[:] = 0
    if record == SHALLOW_VOTES:
        _vote_shallow(bins, first, records, weights, start, stop, votes)
    elif record == DEEP_VOTES:
        _vote_deep(bins, first, records, weights, start, stop, votes)
    else:
        _vote_walking(bins, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes)


@kernel
def sum_votes(bins, unit, step, first, last, forest, out):
    """Write the votes for +1 of each bit and row to ``out``, int16 (n_bits, n), for the rows [first, last).

    ``forest`` is the result of `compile_votes`. The bin of feature j in row i is
    ``bins[j * unit + i // 64 * step + i % 64]``; ``first`` is a multiple of 64. If the unit is 64, the last tile is
    filled up. The trees of a bit are read once for all rows: their bins should fit into the cache.
    """
    votes = np.empty(TILE, np.int16)
    for b in range(out.shape[0]):
        for row in range(first, last, TILE):
            size = min(TILE, last - row)
            full = TILE if unit == TILE else size
            _vote(bins, np.uint64(unit), np.uint64(row // TILE * step), full, forest, b, votes)
            for i in range(size):
                out[b, row + i] = votes[i]


def _leaf_sums_of(depth: int) -> Any:
    """An intrinsic that sums the leaves of trees of this depth."""
    n_tests, size = 2**depth - 1, _leaf_record_size(depth)

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def sum_records(typing_context: Any, bins: Any, place: Any, records: Any, start: Any, stop: Any, sums: Any) -> Any:
        """Write the sums of the leaves of the trees [start, stop) for 64 rows to ``sums``, int16.

        The bin of row i is ``bins[f + place + i]``, where the record of a tree gives f for each of its tests. The
        leaves of two rows are read as one number, leaf + 256 x second leaf. These numbers and the second leaves are
        summed in 16 bits each, and the sums of the first leaves follow by subtraction.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bins, place, records, start, stop, sums = arguments
            rows = pointer(context, builder, signature.args[0], bins, place, BYTE)
            record = pointer(context, builder, signature.args[2], records, WORD(0), ir.IntType(32))
            both, second = (cgutils.alloca_once_value(builder, ir.Constant(PAIRS, None)) for _ in range(2))
            with cgutils.for_range_slice(builder, start, stop, WORD(1), intp=WORD) as (t, _):
                tree = _TreeCode(builder, rows, builder.gep(record, [builder.mul(t, WORD(size))]), n_tests)
                number = tree.leaf_number(0, depth)
                leaves = builder.bitcast(look_up(context, builder, tree.bytes(), 2**depth, number), PAIRS)
                builder.store(builder.add(builder.load(both), leaves), both)
                upper = builder.lshr(leaves, constant(PAIRS, 8))
                builder.store(builder.add(builder.load(second), upper), second)
            n = builder.trunc(builder.sub(stop, start), ir.IntType(16))
            _store_sums(context, builder, signature.args[5], sums, (both, second), n)
            return context.get_dummy_value()

        return types.void(bins, types.uint64, records, types.uint64, types.uint64, sums), generate

    return sum_records


def _store_sums(context: Any, builder: Any, kind: Any, sums: Any, pairs: tuple[Any, Any], n_trees: Any) -> None:
    """Emit code that separates the sums of pairs of rows, subtracts the bias of all trees, and stores the result."""
    both, second = (builder.load(part) for part in pairs)
    bias = splat(builder, builder.mul(n_trees, ir.IntType(16)(BIAS)), TILE // 2)
    first = builder.sub(builder.sub(both, builder.shl(second, constant(PAIRS, 8))), bias)
    order = [place for i in range(TILE // 2) for place in (i, TILE // 2 + i)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), TILE), order)
    vector = builder.shuffle_vector(first, builder.sub(second, bias), mask)
    builder.store(vector, pointer(context, builder, kind, sums, WORD(0), vector.type), align=2)


SHALLOW_LEAVES, DEEP_LEAVES = _leaf_record_size(SHALLOW), _leaf_record_size(DEEP)
_sum_shallow, _sum_deep = _leaf_sums_of(SHALLOW), _leaf_sums_of(DEEP)


@kernel
def _sum_walking(bins, unit, place, size, start, stop, tree_ptr, feature, threshold, child, value, sums):
    """Write the sums of the leaves of the trees [start, stop) to ``sums``, for up to 64 rows and trees of any depth.

    The bin of feature j in row i is ``bins[j * unit + place + i]``.
    """
    places, nodes = place + np.arange(size).astype(np.uint64), np.empty(size, np.uint64)
    sums[:] = 0
    for t in range(start, stop):
        walk(bins, unit, places, np.uint64(tree_ptr[t]), feature, threshold, child, nodes)
        for i in range(np.uint64(size)):
            sums[i] += value[nodes[i]]


@kernel
def sum_leaves(bins, unit, step, first, last, forest, out):
    """Write the sum of the leaves of each bit and row to ``out``, int16 (n_bits, n), for the rows [first, last).

    ``forest`` is the result of `compile_leaves`; the bins are those of `sum_votes`.
    """
    bit_ptr, records, tree_ptr, feature, threshold, child, value = forest
    sums = np.empty(TILE, np.int16)
    record = len(records) // (len(tree_ptr) - 1)
    for b in range(out.shape[0]):
        start, stop = np.uint64(bit_ptr[b]), np.uint64(bit_ptr[b + 1])
        for row in range(first, last, TILE):
            size = min(TILE, last - row)
            place = np.uint64(row // TILE * step)
            full = unit == TILE or size == TILE
            if full and record == SHALLOW_LEAVES:
                _sum_shallow(bins, place, records, start, stop, sums)
            elif full and record == DEEP_LEAVES:
                _sum_deep(bins, place, records, start, stop, sums)
            else:
                _sum_walking(bins, np.uint64(unit), place, size, start, stop,
                      tree_ptr, feature, threshold, child, value, sums)  # fmt: skip
            for i in range(size):
                out[b, row + i] = sums[i]
