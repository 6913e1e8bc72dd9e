"""Small computations that together reach every kernel, and what is needed to run kernels without compiling them.

With ``NUMBA_DISABLE_JIT=1`` Python interprets the kernels: an index out of bounds raises, a debugger can stop inside,
and coverage sees their lines. The functions that emit vector instructions (`numba.extending.intrinsic`) have no Python
body, so `install_twins` gives each of them a slow one.

``NUMBA_DISABLE_JIT=1 python tests/interpreted.py results.npz`` writes what `COMPUTATIONS` give;
`tests/test_interpreted.py` compares it with what they give when compiled.
"""

from __future__ import annotations

import sys
import warnings
from inspect import getclosurevars, signature

import numpy as np
from numba import extending
from scipy import sparse
from sklearn.datasets import load_digits

from example_encoders import example, some_rows
from hashgrove import BoostedTrees, Codebook, FastHash, FlatIndex, Gist, MultiIndex, evaluate, hamming, pack
from hashgrove.index import groups
from hashgrove.inference import SOLVERS
from hashgrove.inference.mincut import minimise
from hashgrove.numerics.wide_rows import ConjugateSteps, WideRows


def popcount(word):
    return np.uint64(int(word).bit_count())


def prefetch(array, offset):
    """A hint to the processor: nothing to do."""


def distance(words, n, queries, query, n_words, item):
    return sum(popcount(words[w * n + item] ^ queries[query + w]) for w in range(n_words))


def pass_over(words, n, queries, query, n_words, width, limit, first, last):
    """`hashgrove.index.strips._pass_over`: the first strip with a near item, or ``last``."""
    for strip in range(int(first), int(last), 64):
        if least_distance(words, n, queries, query, n_words, width, strip) < limit:
            return np.uint64(strip)
    return last


def near_in_strip(words, n, queries, query, n_words, width, limit, first, n_items=64):
    """`hashgrove.index.strips.near_in_strip`: which items are nearer to a query than ``limit``, one bit per item."""
    assert len(width) in (0, n_words)
    near = [distance(words, n, queries, query, n_words, int(first) + i) < limit for i in range(n_items)]
    return np.uint64(sum(int(flag) << i for i, flag in enumerate(near)))


def near_in_vector(*arguments):
    """`hashgrove.index.strips._near_in_vector`: the same for 8 items."""
    return near_in_strip(*arguments, n_items=8)


def least_distance(words, n, queries, query, n_words, width, first):
    """`hashgrove.index.strips.least_distance`: the smallest distance of 64 items."""
    return min(distance(words, n, queries, query, n_words, int(first) + i) for i in range(64))


def next_query(words, n, queries, n_words, width, limits, first, query, last):
    """`hashgrove.index.batch._next_query`: the first query that is near to one of 64 items, or ``last``."""
    for q in range(int(query), int(last)):
        if least_distance(words, n, queries, q * int(n_words), n_words, width, first) < limits[q]:
            return np.uint64(q)
    return last


def copy_word(words, first, out, to):
    """`hashgrove.index.batch._copy_word`: copy 64 words."""
    out[int(to) : int(to) + 64] = words[int(first) : int(first) + 64]


def fewest_queries():
    """`hashgrove.index.sliced.fewest_queries`: as on a processor that does not count the ones of vectors."""
    return 16


def slice_word(words, first, tables, to):
    """`hashgrove.index.sliced._slice_word`: the sums of three bits of 512 items, for all values of these bits."""
    bits = np.unpackbits(words[int(first) : int(first) + 512, None].view(np.uint8), axis=1, bitorder="little")
    for place in range(21 * 8 + 2):
        group, value = divmod(place, 8)
        flips = np.array([value >> bit & 1 for bit in range(3)], np.uint8)[: 64 - 3 * group]
        sums = (bits[:, 3 * group : 3 * group + 3] ^ flips).sum(axis=1)
        for digit in range(2 if group < 21 else 1):
            at = int(to) + 16 * place + 8 * digit
            tables[at : at + 8] = np.packbits(sums >> digit & 1, bitorder="little").view(np.uint64)


def near_in_tables(tables, offsets, at, width, limit, found):
    """`hashgrove.index.sliced._near_in_tables`: add up the sums that the tables have for a query."""
    distances = np.zeros(512, np.int64)
    for place in range(22 * len(width)):
        for digit in range(2 if place % 22 < 21 else 1):
            start = int(offsets[int(at) + place]) + 8 * digit
            distances += np.unpackbits(tables[start : start + 8].view(np.uint8), bitorder="little").astype(int) << digit
    found[:] = np.packbits(distances < int(limit), bitorder="little").view(np.uint64)
    return np.uint64(found.any())


def strip_distances(words, n, queries, query, n_words, width, first, out, to):
    """`hashgrove.index.counting._strip_distances`: write the distances of 64 items."""
    for i in range(64):
        out[int(to) + i] = distance(words, n, queries, query, n_words, int(first) + i)


def extent(tile, n_blocks):
    """`hashgrove.index.counting._extent`: the smallest value of whole blocks, and 256 times the largest one."""
    values = tile[: 512 * int(n_blocks)]
    return np.uint64(int(values.min()) + 256 * int(values.max()))


def count_group(tile, n_blocks, first, table):
    """`hashgrove.index.counting._count_group`: add how often eight values occur in whole blocks."""
    for value in range(int(first), int(first) + 8):
        table[value] += (tile[: 512 * int(n_blocks)] == value).sum()


def tree(levels, first, records, start, n_tests):
    """`hashgrove.trees.prediction._tree_of`: the rows among 64 where a tree with ``n_tests`` nodes says +1."""
    record = records[int(start) : int(start) + 2 * n_tests + (n_tests + 1) // 8]
    flips = record[2 * n_tests :].view(np.uint8)
    found = 0
    for row in range(64):
        k = 0
        while k < n_tests:
            passed = levels[int(record[k]) + int(first) + row] > record[n_tests + k] & 255
            lowest, k = k, 2 * k + 1 + int(passed)
        found |= int(passed != (flips[lowest - n_tests // 2] > 0)) << row
    return np.uint64(found)


def sum_records(levels, place, records, start, stop, sums, *, n_tests, size):
    """`hashgrove.trees.prediction._leaf_sums_of`: the sums of the leaves of compiled trees for 64 rows."""
    sums[:64] = 0
    for t in range(int(start), int(stop)):
        record = records[t * size : (t + 1) * size]
        leaves = record[2 * n_tests :].view(np.uint8)
        for row in range(64):
            passed = [
                levels[int(f) + int(place) + row] > limit & 255 for f, limit in record[: 2 * n_tests].reshape(2, -1).T
            ]
            k = 0
            while k < n_tests:
                k = 2 * k + 1 + int(passed[k])
            sums[row] += int(leaves[k - n_tests]) - 128


def add_where(votes, rows, weight):
    """`hashgrove.trees.prediction._add_where`: add a weight to the votes of the rows whose bit is one."""
    for row in range(64):
        if int(rows) >> row & 1:
            votes[row] += weight


def bin_lanes(values, at, low, scale, feature, out, to):
    """`hashgrove.trees.binning._bin_lanes`: write the levels of 16 values; one bit for each that is not finite."""
    at, feature, to = int(at), int(feature), int(to)
    read = values[at : at + 16].astype(np.float64)
    level = (read - low[feature : feature + 16]) * scale[feature : feature + 16] + 0.5
    out[to : to + 16] = np.clip(np.nan_to_num(level), 0, 255)
    return np.uint16((~np.isfinite(read) << np.arange(16)).sum())


def write_extremes(histogram, extremes):
    """`hashgrove.trees.splitting._write_extremes`: the largest and smallest cumulative sums of eight lanes."""
    sums = np.zeros((256, 8), np.int32)
    np.cumsum(histogram.reshape(256, 8)[:255], axis=0, out=sums[1:])
    extremes[:8], extremes[8:] = sums.max(axis=0), sums.min(axis=0)


TWINS = {
    "popcount": popcount,
    "prefetch": prefetch,
    "_pass_over": pass_over,
    "near_in_strip": near_in_strip,
    "_near_in_vector": near_in_vector,
    "least_distance": least_distance,
    "_next_query": next_query,
    "_copy_word": copy_word,
    "fewest_queries": fewest_queries,
    "_slice_word": slice_word,
    "_near_in_tables": near_in_tables,
    "_strip_distances": strip_distances,
    "_extent": extent,
    "_count_group": count_group,
    "tree": tree,
    "_add_where": add_where,
    "sum_records": sum_records,
    "_bin_lanes": bin_lanes,
    "_write_extremes": write_extremes,
}


def install_twins():
    """Let Python call intrinsics; and let integers wrap around without a warning, as they do in compiled code."""

    def call(intrinsic, *arguments):
        # what an intrinsic is made for (the size of a tree) is in the function that makes it
        twin, made_for = TWINS[intrinsic._name], getclosurevars(intrinsic._defn).nonlocals
        return twin(
            *arguments, **{name: made_for[name] for name in signature(twin).parameters.keys() & made_for.keys()}
        )

    extending._Intrinsic.__call__ = call
    warnings.filterwarnings("ignore", "(overflow|invalid value|divide by zero) encountered", RuntimeWarning)


# 70 rows, so that there is a full tile of 64 and a part of one; 20 features: a full vector of 16 and a part of one
X, Y = load_digits(return_X_y=True)
X, Y = np.ascontiguousarray(X[:70, 20:40]), Y[:70] % 4
TAGS = (Y[:, None] % np.array([2, 3, 4]) == 0).astype(np.int64)
TAGS[:, 0] = 1
PAIRS = np.array([(i, i + 1, 1 if Y[i] == Y[i + 1] else -1) for i in range(69)])
IMAGES = load_digits().images[:12].astype(np.uint8)
CODES = pack(np.random.default_rng(0).integers(2, size=(200, 72)).astype(bool))
CLASSES = np.arange(200) % 5
MANY_CODES = pack(np.random.default_rng(2).integers(2, size=(650, 72)).astype(bool))
MARKS = np.random.default_rng(1).integers(2, size=(200, 70))

NEWTON = {"leaves": "newton", "min_hessian": 0.1, "regularisation": 0.5}


def fit(y=Y, affinity=None, trees=(), **settings):
    learner = BoostedTrees.paper(**{"n_trees": 3, "features_per_node": 6, "max_depth": 3, **dict(trees)})
    hasher = FastHash(3, hash_function=learner, random_state=0, **{"n_similar": 6, "n_dissimilar": 6, **settings})
    hasher.fit(X, y, affinity=affinity)
    return [hasher.transform(X), hasher.decision_function(X)]


def measure(y, n_queries=5, **settings):
    report = evaluate(
        FlatIndex(CODES), CODES[:n_queries], y_queries=y[:n_queries], y_database=y, k=7, knn=3, **settings
    )
    return [report.map, report.pr_area, report.precision_curve]


def measure_many():
    """Enough items for histograms by vector code, of classes and of all."""
    y = np.arange(len(MANY_CODES)) // 600
    report = evaluate(FlatIndex(MANY_CODES), MANY_CODES[:3], y_queries=y[:3], y_database=y, k=7, knn=None)
    return [report.map, *FlatIndex(MANY_CODES).search(MANY_CODES[:2], 600)]


def codebook(**settings):
    features = Codebook(5, patch_size=3, n_patches=60, n_iter=2, sparsity=2, random_state=0, **settings)
    return [features.fit_transform(IMAGES)]


def search():
    """By both methods of the flat index: few of many codes are kept in a buffer, many of few are found by counting."""
    index = FlatIndex(CODES)
    by_radius = index.search_radius(CODES[:3], 30)
    return [*index.search(CODES[:3], 150), *FlatIndex(MANY_CODES).search(CODES[:3], 2), *map(np.concatenate, by_radius)]


def search_many():
    """So many short codes that the limit of the buffered scan is guessed; the second time in vain."""
    codes = np.random.default_rng(3).integers(256, size=(2**15 + 70, 1)).astype(np.uint8)
    tight = codes | 1
    tight[: 70 * 256 : 256] = 0
    return [array for part in (codes, tight) for array in FlatIndex(part).search(np.zeros((1, 1), np.uint8), 100)]


def search_batch():
    """So many queries that strips are copied for them, and that blocks are sliced; with and without a mask."""
    codes = np.concatenate([MANY_CODES, MANY_CODES, CODES])
    index, found = FlatIndex(codes), []
    for queries in (MANY_CODES[100:105], MANY_CODES[100:116]):
        found += [*index.search(queries, 2), *index.search(queries, 2, allowed=np.arange(len(codes)) % 9 > 0)]
        found += map(np.concatenate, index.search_radius(queries, 25))
    return found


class ByTables(MultiIndex):
    """A `MultiIndex` that uses its tables for every query."""

    _min_items, _budget, _share = 1, 1e12, 1

    def _prepared_for(self, items, n_queries):
        self.prepare()
        return super()._prepared_for(items, n_queries)


def text_ids():
    """Ids in no order, look-up of some that are there and of others, and a longer one that comes in between."""
    ids = [f"{'common' * (i % 3)}{i * 7 % 41}é" for i in range(40)]
    index = FlatIndex(CODES[:40], ids=ids)
    known = index.contains(["", *ids[3:6], "zz", "a"][1:])
    index.add(CODES[:1], ids=["common2"])
    return [known, index.search(CODES[:2], 5).ids]


def search_tables():
    """Codes of two words with duplicates, some of them removed, and a tail; k small enough for full buffers."""
    index = ByTables(np.concatenate([MANY_CODES, MANY_CODES[:200], CODES]))
    by_radius = index.search_radius(CODES[:2], 33)
    found = [*index.search(CODES[:2], 3), *map(np.concatenate, by_radius)]
    index.remove([0, 3, 651, 700, 850])
    index.add(CODES[:3])
    short = ByTables(np.arange(600, dtype=np.uint16)[:, None].view(np.uint8))
    return [*found, *index.search(CODES[:2], 3), *short.search(np.full((1, 2), 255, np.uint8), 2)]


def cuts():
    """Minimum cuts of random graphs, from weak to strong fields, so that every rule and the flow have work to do."""
    rng = np.random.default_rng(0)
    found = []
    for strength in (1, 5, 20, 40, 60, 100):
        upper = np.triu(rng.integers(0, 9, (30, 30)) * (rng.random((30, 30)) < 0.4), 1)
        graph = sparse.csr_array(upper + upper.T)
        arrays = graph.indptr.astype(np.int64), graph.indices.astype(np.uint32), graph.data.astype(np.int32)
        found.append(np.zeros(30, np.int8))
        minimise(*arrays, rng.integers(-strength, strength + 1, 30), found[-1])
    return found


def wide():
    rows = WideRows(X, low=np.ones(20), span=np.full(20, 16.0))
    steps = ConjugateSteps(rows)
    return [rows @ np.arange(21.0), rows.T @ Y, steps.solve(Y > 1, np.arange(21.0), 10.0)]


COMPUTATIONS = {
    **{f"solver {name}": lambda name=name: fit(inference=name) for name in SOLVERS},
    "all pairs": lambda: fit(n_similar=None, n_dissimilar=None),
    "tags": lambda: fit(TAGS, min_shared=2),
    "most pairs of tags": lambda: fit(TAGS, min_shared=2, n_dissimilar=30),
    "pairs": lambda: fit(None, PAIRS, n_similar=None, n_dissimilar=None),
    "trees of depth 6": lambda: fit(trees={"max_depth": 6}),
    "trees of depth 9": lambda: fit(trees={"max_depth": 9, "trimming": 0.0, "min_points": 2}),
    "features per tree": lambda: fit(trees={"subset": "tree"}),
    "features per level": lambda: fit(trees={"subset": "level"}),
    "newton trees": lambda: fit(trees=NEWTON),
    "newton trees of depth 6": lambda: fit(trees=NEWTON | {"max_depth": 6, "trimming": 0.0}),
    "newton trees of depth 7": lambda: fit(trees=NEWTON | {"max_depth": 7, "features_per_node": 20}),
    "newton trees of depth 9": lambda: fit(trees=NEWTON | {"max_depth": 9, "subset": "tree"}),
    "hamming": lambda: [hamming(CODES[:3], CODES)],
    "search": search,
    "search of many": search_many,
    "search of some": lambda: [
        *FlatIndex(CODES).search(CODES[:3], 50, allowed=np.arange(0, 200, 2)),
        *FlatIndex(MANY_CODES).search(CODES[:3], 2, allowed=np.arange(0, 650, 2)),
    ],
    "search of a batch": search_batch,
    "search by tables": search_tables,
    "text_ids": text_ids,
    "groups": lambda: [np.concatenate(groups(FlatIndex(CODES[:, :1]), 2))],
    "minimum cuts": cuts,
    "wide rows": wide,
    "decodable codes": lambda: [example("decodable", 11).scores(some_rows(9))],
    "search weighted": lambda: [*FlatIndex(CODES).search(CODES[:2], 5, weights=np.arange(144.0).reshape(2, 72))],
    "measures of classes": lambda: measure(CLASSES),
    "measures of many": lambda: measure_many(),
    "measures by id": lambda: measure(CLASSES, ties="id"),
    "measures of the first items": lambda: measure(CLASSES, depth=20, normalise="retrieved"),
    "measures without self": lambda: measure(CLASSES, len(CODES), exclude_self=True),
    "measures of tags": lambda: measure(MARKS, min_shared=17),
    "measures weighted": lambda: measure(CLASSES, weights=np.ones((5, 72))),
    "gist": lambda: [Gist((2, 2), n_cells=2).fit_transform(IMAGES[:2])],
    "codebook": codebook,
    "codebook k-means": lambda: codebook(dictionary="kmeans", encoding="absolute", pooling="max"),
    "codebook split": lambda: codebook(encoding="split", output="uint8"),
}


def main():
    install_twins()
    results = {
        f"{name}/{place}": array for name, compute in COMPUTATIONS.items() for place, array in enumerate(compute())
    }
    np.savez(sys.argv[1], **results)


if __name__ == "__main__":
    main()
