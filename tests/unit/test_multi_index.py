"""What is special to `MultiIndex`: its tables, when it uses them, and what becomes of them when the index changes."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import naive
from hashgrove.codes import as_words, pack
from hashgrove.index import FlatIndex, MultiIndex, build_folder, build_index, load_index
from hashgrove.index.buckets import probe_costs
from hashgrove.index.folder import Folder
from hashgrove.index.items import in_memory
from hashgrove.index.keys import keys_of
from hashgrove.index.manifest import Manifest
from hashgrove.index.multi_index import _by_tables
from hashgrove.index.plan import Plan, bucket_sizes, fill_buckets, gather_columns, split_bits
from hashgrove.index.prepared import Prepared, first_alive
from hashgrove.index.probe import within_by_tables
from hashgrove.index.tables import Tables, choose_n_tables, divide, part_of, permute_bits
from hashgrove.runtime.threads import chunks
from indexes import ByBoth, ByTables
from makers import random_codes


def clustered(n, n_bits, seed=0, noise=0.05):
    """Codes like those of a trained model: few centres, little noise, many duplicates."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).random((10, n_bits)) < 0.5
    return pack(centres[rng.integers(10, size=n)] ^ (rng.random((n, n_bits)) < noise))


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_bits", [8, 24, 64, 100, 130])
def test_bits_change_places(n_bits):
    codes = random_codes(20, n_bits)
    n_words = -(-codes.shape[1] // 8)
    bits, out = np.random.default_rng(0).permutation(64 * n_words), np.empty((20, n_words), np.uint64)
    permute_bits(as_words(codes), bits, out)
    padded = np.pad(codes, ((0, 0), (0, 8 * n_words - codes.shape[1])))
    np.testing.assert_array_equal(out, as_words(naive.permuted(padded, bits)))


@pytest.mark.parametrize(("first", "last"), [(0, 8), (60, 68), (60, 64), (64, 80), (100, 124)])
def test_buckets(first, last):
    codes = random_codes(500, 128) & np.uint8(0b10010011)
    words, offsets = as_words(codes), np.zeros(2 ** (last - first) + 1, np.uint32)
    truth = naive.buckets(codes, first, last)
    assert [int(part_of(row, first, last)) for row in words[:5]] == [
        key for row in range(5) for key, rows in truth.items() if row in rows
    ]
    bucket_sizes(words, first, last, offsets)
    assert {key: int(size) for key, size in enumerate(np.diff(offsets.astype(int))) if size} == {
        key: len(rows) for key, rows in truth.items()
    }
    columns, numbers, cursors = np.empty((2, 500), np.uint64), np.empty(500, np.uint32), offsets.copy()
    for low, high in chunks(2 ** (last - first), 2 ** (last - first) // 3):
        fill_buckets(words, first, last, low, high, cursors, numbers)
    assert numbers.tolist() == [row for rows in truth.values() for row in rows]
    for a, b in chunks(500, 97):
        gather_columns(words, numbers, a, b, columns)
    np.testing.assert_array_equal(columns.T, words[numbers])


@pytest.mark.parametrize("n_bits", [4, 64, 130])
def test_a_plan_makes_the_arrays_of_its_tables(n_bits):
    """One after the other, as they are written to a folder."""
    plan = Plan.of(clustered(700, n_bits), None)
    tables = plan.tables()
    layout = Tables.layout(8 * -(-n_bits // 8), plan.n_tables, plan.n_distinct, plan.n)
    made = [array.tobytes() for array in plan.arrays()]
    assert b"".join(made) == b"".join(array.tobytes() for array in tables.arrays())
    assert len(b"".join(made)) == sum(np.dtype(type_).itemsize * math.prod(shape) for type_, shape in layout.values())
    assert sum(map(len, made[:6])) % 64 == 0


def test_the_cost_of_a_search_is_known_without_it():
    """As `nearest_by_tables` and `within_by_tables` count it, up to what they give up at."""
    codes, queries = clustered(3000, 64), np.concatenate([clustered(20, 64, 1), random_codes(20, 64)])
    plan = Plan.of(codes, 4)
    prepared = Prepared.of(plan.tables(), in_memory(codes, keys_of(np.arange(3000))))
    permuted, reach = plan.permuted(queries), FlatIndex(codes).search(queries, 7).distances[:, -1].astype(np.int64)
    for budget in (10**4, 10**9):
        costs, expected = np.empty(40, np.int64), _by_tables(prepared, permuted, 7, budget)[3]
        probe_costs(1, plan.parts, plan.offsets, plan.bases, permuted, reach, budget, costs)
        assert (costs > budget).tolist() == (expected > budget).tolist()
        assert costs[costs <= budget].tolist() == expected[costs <= budget].tolist()
        probe_costs(1, plan.parts, plan.offsets, plan.bases, permuted, np.full(40, 9), budget, costs)
        expected = np.array([within_by_tables(*prepared.arrays(), query, 9, budget)[2] for query in permuted])
        assert costs[costs <= budget].tolist() == expected[costs <= budget].tolist()


def test_tables_hold_each_code_once_and_all_items():
    codes = clustered(3000, 40)
    tables = Plan.of(codes, 3).tables()
    assert tables.n_distinct == len({code.tobytes() for code in codes})
    groups = np.split(tables.order.astype(int), tables.starts[1:-1])
    assert sorted(tables.order.tolist()) == list(range(3000))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    for group in groups:
        assert (codes[group] == codes[group[0]]).all()
        assert (np.diff(group) > 0).all()
    assert tables.nbytes > 0


def test_the_first_item_alive():
    tables = Plan.of(clustered(300, 12), 1).tables()
    alive = np.random.default_rng(0).random(300) < 0.3
    firsts = tables.order[tables.starts[:-1]]
    truth = naive.first_alive(range(tables.n_distinct), tables.starts, tables.order, alive, firsts)
    first_alive(np.arange(tables.n_distinct), tables.starts, tables.order, alive, firsts)
    assert firsts.tolist() == truth


def test_the_number_of_tables_and_their_parts():
    assert divide(64, 3).tolist() == [[0, 22], [22, 43], [43, 64]]
    for n in (1, 10**4, 10**7, 10**9):
        for n_bits in (8, 64, 128, 1024):
            parts = divide(n_bits, choose_n_tables(n, n_bits))
            assert (np.diff(parts) <= 24).all()


def test_correlated_bits_are_put_into_different_tables():
    """Each bit occurs twice: as they are, a table of neighbouring bits would have half as many different values."""
    bits = np.random.default_rng(0).random((5000, 12)) < 0.5
    codes, parts = pack(np.repeat(bits, 2, axis=1)), divide(24, 2)
    order = split_bits(codes, parts)
    assert sorted(order) == list(range(24))
    assert all(len({bit // 2 for bit in order[first:last]}) == 12 for first, last in parts)
    even = split_bits(random_codes(5000, 24), parts)  # nothing to gain: any order will do
    assert sorted(even) == list(range(24))


@pytest.mark.parametrize("make", [ByTables, ByBoth])
@pytest.mark.parametrize("n_bits", [16, 64, 72, 200])
def test_results_are_those_of_the_scan(make, n_bits):
    """Many duplicates and ties, so that buffers of codes and of items are full and cut back."""
    codes, queries = clustered(20_000, n_bits), clustered(40, n_bits, seed=1, noise=0.1)
    multi, flat = make(codes), FlatIndex(codes)
    for k in (1, 10, 500, 20_000):
        assert_same(multi.search(queries, k), flat.search(queries, k))
    for radius in (0, 3, 9):
        for one, two in zip(multi.search_radius(queries, radius), flat.search_radius(queries, radius), strict=True):
            assert_same(one, two)


@pytest.mark.parametrize("n_tables", [3, 5, 12])
def test_any_number_of_tables_gives_the_same(n_tables):
    codes, queries = random_codes(3000, 64), random_codes(10, 64, 1)
    assert_same(ByTables(codes, n_tables=n_tables).search(queries, 7), FlatIndex(codes).search(queries, 7))
    with pytest.raises(ValueError, match=r"'n_tables' parameter must be an integer from 3 to 64 or None. Got 2"):
        ByTables(codes, n_tables=2).search(queries, 7)


def test_removed_items_and_new_ones_at_the_end_need_no_new_tables():
    codes, queries = clustered(8000, 32), clustered(20, 32, seed=1)
    multi, flat = ByTables(codes), FlatIndex(codes)
    multi.prepare()
    tables = multi._prepared.tables
    rng = np.random.default_rng(0)
    for step in range(6):
        gone = rng.choice(multi.ids, 150, replace=False)
        for index in (multi, flat):
            index.remove(gone)
            index.add(clustered(30, 32, seed=step))
        assert_same(multi.search(queries, 40), flat.search(queries, 40))
        assert_same(*(np.concatenate(index.search_radius(queries, 3).ids)[None] for index in (multi, flat)))
        assert multi._prepared.tables is tables
    for index in (multi, flat):
        index.add(clustered(2000, 32, seed=9))
    assert_same(multi.search(queries, 40), flat.search(queries, 40))
    assert multi._prepared.tables is not tables


def wait_for_tables(index):
    """Wait until the thread that prepares tables has ended; there is a limit of time for every test."""
    while index._prepared is None or index._preparing.locked():
        time.sleep(0.001)


def test_a_thread_builds_tables_when_they_pay():
    codes, queries = random_codes(2**16, 32), random_codes(100, 32, 1)
    index, flat = MultiIndex(codes), FlatIndex(codes)
    index._patience = 250
    for _ in range(2):
        index.search(queries, 3)
        assert index._prepared is None
        assert not index._preparing.locked()
    assert_same(index.search(queries, 3), flat.search(queries, 3))
    wait_for_tables(index)
    assert_same(index.search(queries, 3), flat.search(queries, 3))
    few = MultiIndex(codes[:100])
    few.prepare()
    assert few._prepared is None


def test_no_search_waits_for_tables():
    """As if another thread were building them: searches scan, and none of them begins to build."""
    codes, queries = random_codes(2**16, 32), random_codes(100, 32, 1)
    index, flat = MultiIndex(codes), FlatIndex(codes)
    index._patience = 1
    with index._preparing:
        assert_same(index.search(queries, 3), flat.search(queries, 3))
        assert_same(*(np.concatenate(found.search_radius(queries, 3).ids)[None] for found in (index, flat)))
        index.prepare(wait=False)
        index._prepare_in_background()
    assert index._prepared is None


def test_a_thread_that_cannot_build_tables_says_so(caplog):
    index = MultiIndex(random_codes(2**16, 32), n_tables=1)
    index._prepare_in_background()
    assert "The tables of an index are not used: The 'n_tables' parameter must be" in caplog.text
    assert index.search(random_codes(3, 32), 3).ids.shape == (3, 3)


def saved_by_tables(folder, codes, **options):
    index = ByTables(codes, **options)
    index.prepare()
    index.save(folder)
    return folder


def built(monkeypatch):
    """The numbers of codes that tables are built of from now on."""
    calls, of = [], Plan.of
    monkeypatch.setattr(Plan, "of", lambda codes, n_tables: calls.append(len(codes)) or of(codes, n_tables))
    return calls


@pytest.mark.parametrize("n_bits", [16, 64, 130])
@pytest.mark.parametrize("descending", [False, True])
def test_tables_are_saved_and_mapped(tmp_path, monkeypatch, n_bits, descending):
    codes, queries = clustered(2000, n_bits), clustered(20, n_bits, seed=1)
    ids = np.arange(2000)[:: -1 if descending else 1]
    folder = saved_by_tables(tmp_path / "index", codes, ids=ids)
    calls = built(monkeypatch)
    for copy in (folder, tmp_path / "copy"):
        multi, flat = ByTables.load(folder), FlatIndex(codes, ids=ids)
        assert_same(multi.search(queries, 7), flat.search(queries, 7))
        for one, two in zip(multi.search_radius(queries, 3), flat.search_radius(queries, 3), strict=True):
            assert_same(one, two)
        multi.remove(ids[:50])
        flat.remove(ids[:50])
        assert_same(multi.search(queries, 7), flat.search(queries, 7))
        if copy is folder:
            ByTables.load(folder).save(tmp_path / "copy")
            folder = tmp_path / "copy"
    assert calls == []
    files = [(tmp_path / name / "tables-2.bin").read_bytes() for name in ("index", "copy")]
    assert files[0] == files[1]


def test_tables_in_a_folder_are_kept_until_they_do_not_fit(tmp_path, monkeypatch):
    codes, queries, folder = clustered(2000, 32), clustered(20, 32, seed=1), tmp_path / "index"
    ByTables(codes).save(folder)
    calls, flat = built(monkeypatch), FlatIndex(codes)
    n_built = {"prepare": [2000], "append": [], "remove": [], "update": [2011], "compact": [2008], "between": [2009]}
    for step, expected in n_built.items():
        with ByTables.load(folder, writable=True) as writer:
            for index in (writer, flat):
                if step == "append":
                    index.add(codes[:10])
                elif step == "remove":
                    index.remove([3])
                elif step == "update":
                    index.update(codes[:1], ids=[7])
                elif step == "compact":
                    index.remove([8]) if index is flat else (index.remove([8]), index.compact())
                elif step == "between":
                    index.add(codes[:1], ids=[3])
            kept = Manifest.read(Folder(folder)).n_tables > 0
            assert kept == (step in ("append", "remove"))
        with ByTables.load(folder, writable=True) as writer:
            writer.prepare()
            assert_same(writer.search(queries, 7), flat.search(queries, 7))
        assert len(list(folder.glob("tables-*.bin"))) == 1
        assert_same(ByTables.load(folder).search(queries, 7), flat.search(queries, 7))
        assert calls == expected
        calls.clear()


def test_a_save_after_a_removal_has_no_tables(tmp_path):
    index = ByTables(clustered(2000, 32))
    index.prepare()
    index.remove([0])
    index.save(tmp_path / "index")
    assert Manifest.read(Folder(tmp_path / "index")).n_tables == 0
    index.compact()
    index.prepare()
    index.save(tmp_path / "index")
    assert Manifest.read(Folder(tmp_path / "index")).n_tabled == 1999


def test_build_chooses_by_what_a_query_costs():
    uniform, near = random_codes(2**16, 64), clustered(2**16, 64, noise=0.01)
    assert type(build_index(uniform)) is FlatIndex
    assert type(build_index(near)) is MultiIndex
    assert type(build_index(near[:1000])) is FlatIndex
    assert type(build_index(uniform, radius=2)) is MultiIndex
    assert type(build_index(uniform, radius=20)) is FlatIndex
    assert type(build_index(uniform, k=1, queries=uniform[:50])) is MultiIndex
    chosen = build_index(near, ids=np.arange(2**16)[::-1], model="m")
    assert (chosen.model, chosen.ids[0]) == ("m", 2**16 - 1)
    assert_same(chosen.search(near[:3], 5, model="m"), FlatIndex(near[::-1]).search(near[:3], 5))


def test_an_index_is_built_in_a_folder_as_in_memory(tmp_path):
    """With tables where these are faster, whatever the order of the ids."""
    near, uniform = clustered(2**16, 64, noise=0.01), random_codes(2**16, 64)
    ids = np.random.default_rng(0).permutation(2**17)[: 2**16]
    for codes, chosen in (near, MultiIndex), (uniform, FlatIndex), (near[:100], FlatIndex):
        build_folder(tmp_path / "index", codes, ids=ids[: len(codes)], features=np.ones((len(codes), 2)), model="m")
        found = load_index(tmp_path / "index")
        assert type(found) is chosen
        assert (found.model, len(found.features)) == ("m", len(codes))
        found.prepare()
        truth = FlatIndex(codes, ids=ids[: len(codes)])
        assert_same(found.search(codes[:40], 7, model="m"), truth.search(codes[:40], 7))
        np.testing.assert_array_equal(found.ids, truth.ids)
