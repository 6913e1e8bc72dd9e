"""The border between tables and scan in `MultiIndex`, and what other searches cost beside the scan; processor time.

`python benchmarks/border.py` fits the time of searches by tables, ``a`` ns per bucket and ``b`` ns per code in it, and
compares both with the time in which the scan compares a word: ``PROBE_COST`` of `hashgrove.index.buckets` should be
near the first ratio for batches, and ``MEMORY`` of `hashgrove.index.multi_index` near that of one query to a batch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from math import comb
from typing import Any

import numpy as np

from environment import machine
from hashgrove import FlatIndex
from hashgrove.codes import as_words
from hashgrove.index import pairs_within
from hashgrove.index.buckets import PROBE_COST
from hashgrove.index.flat import _counts
from hashgrove.index.multi_index import _by_tables
from hashgrove.index.plan import Plan
from hashgrove.index.prepared import Prepared
from hashgrove.index.scan import ALL

BATCH = 64


def cpu(run: Callable[[], Any], rounds: int = 5) -> float:
    """The least processor time of some runs, in seconds; the first one is not counted."""
    run()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def flipped(codes: Any, n_flips: int, n: int) -> Any:
    """Items with some bits flipped."""
    rng = np.random.default_rng(1)
    queries = codes[rng.integers(len(codes), size=n)].copy()
    for query in queries:
        for bit in rng.choice(8 * codes.shape[1], n_flips, replace=False):
            query[bit // 8] ^= 1 << (bit % 8)
    return queries


def border(n: int, n_bits: int) -> dict[str, Any]:
    """Cost of buckets and of codes in them, as words of a scan."""
    codes = np.random.default_rng(0).integers(256, size=(n, n_bits // 8), dtype=np.uint8)
    flat, n_words = FlatIndex(codes), n_bits // 64
    queries = flipped(codes, 3, BATCH)
    batch = cpu(lambda: flat.search(queries, 10, n_jobs=1)) / BATCH
    one = cpu(lambda: [flat.search(query[None], 10, n_jobs=1) for query in queries[:8]]) / 8
    rows, times = [], []
    for n_tables in (-(-n_bits // 24), -(-n_bits // 20), -(-n_bits // 16)):
        plan = Plan.of(codes, n_tables)
        prepared = Prepared.of(plan.tables(), flat._now())
        for n_flips in (0, 2, 4, 6, 8) if n_bits == 64 else (0, 4, 8, 12):
            asked = flipped(codes, n_flips, BATCH)
            permuted = plan.permuted(asked)
            spent = _by_tables(prepared, permuted, 1, 2**60)[3]
            seconds = cpu(partial(_by_tables, prepared, permuted, 1, 2**60), rounds=3) / BATCH
            n_buckets, n_codes = split_costs(plan, flat.search(asked, 1).distances[:, 0], spent)
            rows.append([n_buckets, n_codes, 1.0])
            times.append(seconds)
    weights = 1 / np.array(times)  # relative errors count alike
    a, b, _ = np.linalg.lstsq(np.array(rows) * weights[:, None], np.ones(len(times)), rcond=None)[0]
    word = batch / n / n_words
    return {
        "scan, ns per word, batch": round(word * 1e9, 4),
        "scan, one query / batch": round(one / batch, 2),
        "ns per bucket": round(a * 1e9, 1),
        "ns per code in a bucket": round(b * 1e9, 3),
        "a bucket costs words": round(a / word),
        "PROBE_COST": PROBE_COST,
        "a code in a bucket costs words": round(b / word, 1),
    }


def split_costs(plan: Plan, reach: Any, spent: Any) -> tuple[float, float]:
    """The mean number of buckets that queries read, and of codes in them."""
    lengths, m = (plan.parts[:, 1] - plan.parts[:, 0]).tolist(), plan.n_tables
    buckets = np.array([sum(comb(lengths[s % m], s // m) for s in range(int(r) + 1)) for r in reach])
    cost = max(PROBE_COST // plan.words.shape[1], 1)
    return float(buckets.mean()), float((spent - cost * buckets).mean())


def others(n: int) -> dict[str, Any]:
    """Other searches of codes of 64 bits, as multiples of a batch of the scan, per query."""
    codes = np.random.default_rng(0).integers(256, size=(n, 8), dtype=np.uint8)
    flat, queries = FlatIndex(codes), np.random.default_rng(1).integers(256, size=(BATCH, 8), dtype=np.uint8)
    words, weights = as_words(queries), np.random.default_rng(2).random((8, 64))
    scan = cpu(lambda: flat.search(queries, 10, n_jobs=1)) / BATCH
    found = {
        "radius 10": cpu(lambda: flat.search_radius(queries, 10, n_jobs=1)) / BATCH,
        "radius 20": cpu(lambda: flat.search_radius(queries, 20, n_jobs=1)) / BATCH,
        "count": cpu(lambda: _counts(flat.columns, ALL, words)) / BATCH,
        "weighted": cpu(lambda: flat.search(queries[:8], 10, weights=weights, n_jobs=1), 3) / 8,
        "one query": cpu(lambda: flat.search(queries[:1], 10, n_jobs=1)),
    }
    few = codes[: n // 10]
    start = time.process_time()
    pairs_within(FlatIndex(few), 4, n_jobs=1)
    found[f"pairs within 4 of {len(few):,}, per item"] = (time.process_time() - start) / len(few)
    ratios = {name: f"{seconds * 1e6:.1f} us, {seconds / scan:.1f}x" for name, seconds in found.items()}
    return {"scan, batch of 64": f"{scan * 1e6:.1f} us"} | ratios


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"machine": machine()}
    for n in options.rows:
        results[f"{n:,}"] = {f"{bits} bits": border(n, bits) for bits in options.bits} | {"others": others(n)}
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
