"""Every index that keeps the contract of `hashgrove.index.Index`. A new one is one line in `UNDER_TEST`.

Each entry is a function with the parameters ``codes=None, *, ids=None, model=None`` that makes a new index with these
items, whatever it needs for that. `tests/test_index_contract.py` runs all of its tests on every entry. If the function
has the attribute ``examples``, property-based tests try that many examples. If it has ``share``, tests of many changes
or queries use that share of them. The attribute ``fails`` has the names of tests that must fail, because an engine
cannot keep that point of the contract, each with the reason.
"""

from __future__ import annotations

import tempfile
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import servers
from hashgrove.codes import model_of
from hashgrove.index import INDEXES, FlatIndex, MultiIndex, connect


class ByTables(MultiIndex):
    """A `MultiIndex` that uses its tables for the first query and for every query, however few items it has."""

    _min_items, _budget, _share = 1, 1e12, 1

    def _prepared_for(self, items, n_queries):
        self.prepare()
        return super()._prepared_for(items, n_queries)


class ByBoth(ByTables):
    """A `MultiIndex` that answers some queries by tables and scans for others."""

    _budget = 300.0


def in_folder(index_class):
    """A function that makes an index whose every change is written to a folder."""

    def make(codes=None, *, ids=None, model=None):
        folder = Path(tempfile.mkdtemp(prefix="hashgrove-test-")) / "test.hgi"
        index_class(model=model).save(folder)
        return filled(index_class.load(folder, writable=True), codes, ids, model)

    return make


def in_engine(url, *, examples, share):
    """A function that makes an index in an engine. The URL has ``{folder}`` where a new folder is to stand."""

    def make(codes=None, *, ids=None, model=None):
        index = connect(url.format(folder=tempfile.mkdtemp(prefix="hashgrove-test-")), model=model)
        return filled(index, codes, ids, model)

    make.examples, make.share = examples, share
    return make


def in_postgres(codes=None, *, ids=None, model=None):
    """Make an index in a new table on the PostgreSQL server."""
    return filled(connect(servers.postgres(), model=model, table=f"t{uuid.uuid4().hex}"), codes, ids, model)


in_postgres.examples, in_postgres.share = 10, 1 / 8


def in_milvus(codes=None, *, ids=None, model=None):
    """Make an index on the Milvus server, in a new collection, or in one that a test has left.

    A new collection takes seconds, so those of indexes that are gone are emptied and used again for such items.
    """
    while GONE:
        kind, name = GONE.pop()
        with connect(servers.milvus(), collection=name) as index:
            index.remove(index.ids)
        LEFT.setdefault(kind, []).append(name)
    texts = ids is not None and len(ids) > 0 and isinstance(ids[0], str)
    kind = None if codes is None else (codes.shape[1], texts, model_of(codes, model))
    name = LEFT[kind].pop() if LEFT.get(kind) else f"t{uuid.uuid4().hex}"
    index = connect(servers.milvus(), model=model, collection=name)
    if kind is not None:
        weakref.finalize(index, GONE.append, (kind, name))  # only noted: it may happen in the middle of anything
    return filled(index, codes, ids, model)


GONE = []  # kind and name of the collections of indexes that are gone
LEFT = {}  # names of empty collections by kind: number of bytes, whether ids are texts, and model
in_milvus.examples, in_milvus.share = 3, 1 / 8
in_milvus.fails = {"test_ids_up_to_the_largest_int64": "Milvus does not find the largest int64 again, so it is refused"}


def filled(index, codes, ids, model):
    if codes is not None:
        index.add(codes, ids=ids, model=model)
    elif ids is not None:
        FlatIndex(ids=ids)  # raises
    return index


ENGINES = {
    "sqlite": in_engine("sqlite:///{folder}/codes.db", examples=30, share=1 / 2),
    "duckdb": in_engine("duckdb:///{folder}/codes.duckdb", examples=10, share=1 / 4),
    "lance": in_engine("lance:///{folder}/codes.lance", examples=10, share=1 / 8),
    "faiss": in_engine("faiss:///{folder}/codes.faiss", examples=30, share=1 / 2),
    "postgres": in_postgres,
    "milvus": in_milvus,
}


UNDER_TEST = {
    **INDEXES,
    "multi by tables": ByTables,
    "multi by both": ByBoth,
    **{f"{name} in a folder": in_folder(index_class) for name, index_class in INDEXES.items()},
    "multi by tables in a folder": in_folder(ByTables),
    **ENGINES,
}


def at_once(*calls):
    """Call all functions, each in a thread of its own, and return what they return; an exception of one is raised."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]
