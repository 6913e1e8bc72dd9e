"""Items that are near each other: all pairs within a radius, groups of near items, and a radius from labelled pairs.

All of it works on distinct codes: items with equal codes are near the same items, and learned codes have many of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_words
from hashgrove.index.base import Index
from hashgrove.index.building import build_index
from hashgrove.index.distinct import group_equal
from hashgrove.index.ids import check_ids, encode, find
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Integer, Number, ParameterError
from hashgrove.runtime.simd import popcount

__all__ = ["RadiusChoice", "choose_radius", "greedy_groups", "groups", "pairs_within", "suggest_radius"]

MAX_PAIRS = 10_000_000
CODES_PER_SEARCH = 4096


@dataclass(frozen=True)
class RadiusChoice:
    """A radius, and how it does on the pairs that it was chosen from.

    Attributes
    ----------
    radius : int
    precision : float
        The share of similar pairs among those within the radius.
    recall : float
        The share of the similar pairs that are within the radius.
    """

    radius: int
    precision: float
    recall: float


def pairs_within(
    index: Index, radius: int, *, max_pairs: int = MAX_PAIRS, n_jobs: int | None = None
) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Find all pairs of items within ``radius`` (inclusive) of each other, such as near-duplicates.

    Parameters
    ----------
    index : Index
    radius : int
        At least 0; 0 finds items with equal codes.
    max_pairs : int
        An error is raised if there are more pairs: there can be as many as the square of the number of items.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    distances : uint16 array of shape (n_pairs,)
        Ascending.
    ids : int64 or str array of shape (n_pairs, 2)
        The smaller id first; pairs at equal distances are in ascending order.

    Examples
    --------
    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[0], [15], [1]], np.uint8))
    >>> distances, ids = pairs_within(index, 3)
    >>> distances.tolist(), ids.tolist()
    ([1, 3], [[0, 2], [1, 2]])
    """
    Integer(1).check("max_pairs", max_pairs)
    ids, codes = _by_id(index)
    near = _Near.of(codes, radius, max_pairs, n_jobs)
    later = near.second >= near.first
    first, second, distances = near.first[later], near.second[later], near.distances[later]
    n_first, n_second = near.counts[first], near.counts[second]
    sizes = np.where(first == second, n_first * (n_first - 1) // 2, n_first * n_second)
    if sizes.sum() > max_pairs:
        raise _too_many(max_pairs, radius)
    products = n_first * n_second
    of, place = np.repeat(np.arange(len(first)), products), _places(products)
    a = near.order[near.starts[first[of]] + place // n_second[of]]
    b = near.order[near.starts[second[of]] + place % n_second[of]]
    kept = (first[of] != second[of]) | (a < b)
    a, b, found = np.minimum(a, b)[kept], np.maximum(a, b)[kept], distances[of][kept]
    by_distance = np.lexsort((b, a, found))
    return found[by_distance], ids[np.stack([a, b], axis=1)[by_distance]]


def groups(index: Index, radius: int, *, max_pairs: int = MAX_PAIRS, n_jobs: int | None = None) -> list[NDArray[Any]]:
    """Find groups of items of which every two are within ``radius`` (inclusive) of each other.

    Near items do not chain: if a is near b and b is near c, but a is not near c, only two of them form a group.
    An item is in one group at most. Groups grow from the items with the most others within the radius (ties by
    id), nearest items first, so which items come together is decided, but not always the best way to do so.

    Parameters
    ----------
    index : Index
    radius : int
        At least 0.
    max_pairs : int
        An error is raised if more pairs of different codes are within the radius.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    groups : list of int64 or str arrays
        The ids of each group of at least two items, ascending. Large groups come first, then small ids.

    Examples
    --------
    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[0b0], [0b11], [0b1111], [0b11]], np.uint8))
    >>> groups(index, 2)
    [array([0, 1, 3])]
    """
    Integer(1).check("max_pairs", max_pairs)
    ids, codes = _by_id(index)
    near = _Near.of(codes, radius, max_pairs, n_jobs)
    n_near = np.bincount(near.first, weights=near.counts[near.second], minlength=len(near.counts))
    leaders = np.argsort(-n_near, kind="stable")
    group_of = np.full(len(near.counts), -1, np.int64)
    edges = np.searchsorted(near.first, np.arange(len(near.counts) + 1))
    greedy_groups(as_words(near.codes), edges, near.second, leaders, int(radius), group_of)
    number = np.empty(len(codes), np.int64)  # of each item's group
    number[near.order] = np.repeat(group_of, near.counts)
    by_group = np.argsort(number, kind="stable")
    parts = np.split(by_group, np.flatnonzero(np.diff(number[by_group])) + 1)
    several = [part for part in parts if len(part) > 1]
    return [ids[part] for part in sorted(several, key=lambda part: (-len(part), part[0]))]


def suggest_radius(
    index: Index, pairs: ArrayLike, similar: ArrayLike, *, precision: float | None = None
) -> RadiusChoice:
    """Choose a radius from labelled pairs of items.

    Precision depends on how many of the pairs are similar: take pairs as they come in your data, or such that a
    search would find, and not all similar ones and a few others.

    Parameters
    ----------
    index : Index
    pairs : array-like of int or str, shape (n_pairs, 2)
        Ids of items in the index.
    similar : array-like of bool, shape (n_pairs,)
    precision : float, optional
        At least this share of the pairs within the radius must be similar; the largest such radius is chosen.
        Without it, the radius with the best F1 (the harmonic mean of precision and recall) is chosen.

    Returns
    -------
    choice : RadiusChoice
        ``radius``, and the ``precision`` and ``recall`` that it has on these pairs.

    Examples
    --------
    >>> from hashgrove.index import FlatIndex
    >>> index = FlatIndex(np.array([[0], [1], [255]], np.uint8))
    >>> suggest_radius(index, [[0, 1], [0, 2], [1, 2]], [True, False, False])
    RadiusChoice(radius=1, precision=1.0, recall=1.0)
    """
    table, marks = np.asarray(pairs), np.asarray(similar)
    if table.ndim != 2 or table.shape[1] != 2 or len(table) == 0:
        raise ParameterError("pairs", f"must have shape (n_pairs, 2). Got {table.shape} instead.")
    if marks.shape != (len(table),) or marks.dtype != np.bool_:
        raise ParameterError(
            "similar",
            f"must be bool of shape ({len(table)},), one per pair. Got {marks.dtype} of shape {marks.shape} instead.",
        )
    ids, codes = _by_id(index)
    wanted = check_ids(table.reshape(-1), name="pairs")
    positions, known = find(encode(ids), encode(wanted))
    if not known.all():
        raise ParameterError("pairs", f"must have ids of items of the index. Got {wanted[~known][0]} instead.")
    both = codes[positions].reshape(len(table), 2, -1)
    distances = np.unpackbits(both[:, 0] ^ both[:, 1], axis=1).sum(axis=1, dtype=np.uint16)
    return choose_radius(distances, marks, precision=precision)


def choose_radius(
    distances: NDArray[np.uint16], similar: NDArray[np.bool_], *, precision: float | None
) -> RadiusChoice:
    """The radius with the best F1, or the largest one with at least some precision; see `suggest_radius`.

    >>> choose_radius(np.array([0, 2, 3, 9]), np.array([True, True, False, False]), precision=None)
    RadiusChoice(radius=2, precision=1.0, recall=1.0)
    """
    Number(above=0, or_none=True).check("precision", precision)
    if not similar.any() or similar.all():
        raise ParameterError("similar", "must mark both similar and other pairs. Got only one kind of them instead.")
    n_distances = int(distances.max()) + 1
    found = np.bincount(distances, minlength=n_distances).cumsum()
    hits = np.bincount(distances, weights=similar, minlength=n_distances).cumsum()
    precisions, recalls = hits / np.maximum(found, 1), hits / hits[-1]
    if precision is None:
        best = int(np.argmax(2 * hits / (found + hits[-1])))
    else:
        enough = np.flatnonzero((precisions >= precision) & (hits > 0))
        if len(enough) == 0:
            raise ParameterError(
                "precision",
                f"must be reached at some radius. Got {precision} instead; the best is {precisions.max():.3f}.",
            )
        best = int(enough[-1])
        best = int(np.flatnonzero(found == found[best])[0])  # the smallest of the radii with the same pairs
    return RadiusChoice(best, float(precisions[best]), float(recalls[best]))


def _by_id(index: Index) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Ids, ascending, and the codes in this order."""
    ids, codes = index.items()
    order = np.argsort(ids, kind="stable")
    return ids[order], np.asarray(codes)[order]


class _Near:
    """Pairs of distinct codes that are within a radius of each other.

    Codes are numbered in the order of their first items. ``counts``, ``starts`` and ``order`` say which items have a
    code. Edges (``first``, ``second``, ``distances``) go both ways, from each code to itself too; they are sorted by
    ``first``, then by distance and then by ``second``.
    """

    def __init__(self, codes: NDArray[np.uint8]) -> None:
        codes = codes if codes.shape[1] else np.empty((0, 1), np.uint8)  # an index that never held a code
        order, starts = group_equal(codes)
        self.order, self.starts = order.astype(np.int64), starts[:-1].astype(np.int64)
        self.codes = codes[self.order[self.starts]]
        self.counts: NDArray[np.int64] = np.diff(starts).astype(np.int64)

    @classmethod
    def of(cls, codes: NDArray[np.uint8], radius: int, max_pairs: int, n_jobs: int | None) -> _Near:
        Integer(0).check("radius", radius)
        near = cls(codes)
        index = build_index(near.codes, radius=radius) if len(near.codes) else None
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]] = []
        n_edges = 0
        for start in range(0, len(near.codes) if index is not None else 0, CODES_PER_SEARCH):
            chunk = near.codes[start : start + CODES_PER_SEARCH]
            assert index is not None
            distances, found = index.search_radius(chunk, radius, n_jobs=n_jobs)
            lengths = np.array([len(part) for part in found])
            first = start + np.repeat(np.arange(len(chunk)), lengths)
            parts.append((first, np.concatenate(found), np.concatenate(distances)))
            n_edges += int(lengths.sum()) - len(chunk)
            if n_edges > 2 * max_pairs:
                raise _too_many(max_pairs, radius)
        empty = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint16)
        near.first, near.second, near.distances = map(np.concatenate, zip(*(parts or [empty]), strict=True))
        return near

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distances: NDArray[np.uint16]


def _places(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ..., c - 1 for each count c, one after the other."""
    ends = counts.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _too_many(max_pairs: int, radius: int) -> ValueError:
    return ParameterError(
        "radius", f"must leave at most max_pairs={max_pairs:,} pairs. Got more at radius {radius} instead."
    )


@kernel
def greedy_groups(words: Any, edges: Any, neighbours: Any, leaders: Any, radius: int, group_of: Any) -> None:
    """Write the leader of each code's group to ``group_of``, int64 (n,), which is -1 at the start.

    ``words`` is uint64 (n, n_words); the neighbours of code i are ``neighbours[edges[i] : edges[i + 1]]``, in the order
    in which they may join, itself first. A code joins if it is within the radius of all that have joined before. Costs
    at most the sum of the squared numbers of neighbours.
    """
    members = np.empty(max(np.max(np.diff(edges)), 1) if len(leaders) else 1, np.int64)
    for leader in leaders:
        if group_of[leader] >= 0:
            continue
        size = 0
        for edge in range(edges[leader], edges[leader + 1]):
            candidate = neighbours[edge]
            if group_of[candidate] >= 0:
                continue
            fits = True
            for member in members[:size]:
                distance = np.uint64(0)
                for w in range(words.shape[1]):
                    distance += popcount(words[member, w] ^ words[candidate, w])
                if distance > radius:
                    fits = False
                    break
            if fits:
                members[size] = candidate
                size += 1
                group_of[candidate] = leader
