"""Every index that keeps the contract of `hashgrove.index.Index`. A new one is one line in `UNDER_TEST`.

Each entry is a function with the parameters ``codes=None, *, ids=None, model=None`` that makes a new index with these
items, whatever it needs for that. `tests/test_index_contract.py` runs all of its tests on every entry. If the function
has the attribute ``examples``, property-based tests try that many examples.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import servers
from hashgrove.index import INDEXES, FlatIndex, MultiIndex, connect


class ByTables(MultiIndex):
    """A `MultiIndex` that uses its tables for the first query and for every query, however few items it has."""

    _min_items, _patience, _budget, _share = 1, 1, 1e12, 1


class ByBoth(MultiIndex):
    """A `MultiIndex` that answers some queries by tables and scans for others."""

    _min_items, _patience, _budget, _share = 1, 1, 300.0, 1


def in_folder(index_class):
    """A function that makes an index whose every change is written to a folder."""

    def make(codes=None, *, ids=None, model=None):
        folder = Path(tempfile.mkdtemp(prefix="hashgrove-test-")) / "test.hgi"
        index_class(model=model).save(folder)
        return filled(index_class.load(folder, writable=True), codes, ids)

    return make


def in_engine(url, *, examples):
    """A function that makes an index in an engine. The URL has ``{folder}`` where a new folder is to stand."""

    def make(codes=None, *, ids=None, model=None):
        return filled(connect(url.format(folder=tempfile.mkdtemp(prefix="hashgrove-test-")), model=model), codes, ids)

    make.examples = examples
    return make


def in_server(url, name):
    """A function that makes an index on a server, in a table of its own; ``name`` is what the engine calls that."""

    def make(codes=None, *, ids=None, model=None):
        return filled(connect(url(), model=model, **{name: f"t{uuid.uuid4().hex}"}), codes, ids)

    return make


def filled(index, codes, ids):
    if codes is not None:
        index.add(codes, ids=ids)
    elif ids is not None:
        FlatIndex(ids=ids)  # raises
    return index


ENGINES = {
    "sqlite": in_engine("sqlite:///{folder}/codes.db", examples=30),
    "duckdb": in_engine("duckdb:///{folder}/codes.duckdb", examples=10),
    "lance": in_engine("lance:///{folder}/codes.lance", examples=10),
    "faiss": in_engine("faiss:///{folder}/codes.faiss", examples=30),
    "postgres": in_server(servers.postgres, "table"),
}


UNDER_TEST = {
    **INDEXES,
    "multi by tables": ByTables,
    "multi by both": ByBoth,
    **{f"{name} in a folder": in_folder(index_class) for name, index_class in INDEXES.items()},
    "multi by tables in a folder": in_folder(ByTables),
    **ENGINES,
}
