import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove.codes import pack
from hashgrove.index import FlatIndex
from hashgrove.storage import modelfile


def random_codes(n, n_bits, seed=0):
    return pack(np.random.default_rng(seed).random((n, n_bits)) < 0.5)


def assert_nearest(index, queries, k, **options):
    distances, ids = index.search(queries, k, **options)
    width = min(k, len(index))
    assert distances.shape == ids.shape == (len(queries), width)
    assert (distances.dtype, ids.dtype) == (np.uint16, np.int64)
    truth = naive.hamming(queries, index.codes) if len(index) else np.empty((len(queries), 0))
    for q in range(len(queries)):
        assert (distances[q].tolist(), ids[q].tolist()) == naive.nearest(truth[q], index.ids, k)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 60),
    n_bits=st.sampled_from([1, 3, 9, 64, 130, 1024]),
    k=st.integers(1, 70),
    n_queries=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_search_is_the_sort_by_distance_and_id(n, n_bits, k, n_queries, seed):
    ids = np.random.default_rng(seed).choice(10 * n + 1, n, replace=False) - 5
    index = FlatIndex(random_codes(n, n_bits, seed), ids=ids)
    assert_nearest(index, random_codes(n_queries, n_bits, seed + 1), k)


@pytest.mark.parametrize("n_bits", [8, 64, 200])
@pytest.mark.parametrize("k", [1, 100, 129, 3000, 20000, 20001])
def test_search_of_many_codes_agrees_with_a_stable_argsort(n_bits, k):
    """Long enough for the buffered scan, full buffers, several tiles, and the counting scan of large k."""
    n = 20000
    codes, queries = random_codes(n, n_bits, 1), random_codes(40, n_bits, 2)
    distances, ids = FlatIndex(codes).search(queries, k)
    bits = np.unpackbits(codes, axis=1).astype(np.int32)
    for q in (0, 33, 39):
        truth = (bits != np.unpackbits(queries[q])).sum(axis=1)
        order = np.argsort(truth, kind="stable")[:k]
        np.testing.assert_array_equal(ids[q], order)
        np.testing.assert_array_equal(distances[q], truth[order])


def test_search_when_every_next_code_is_nearer():
    """The worst case of the buffer: each item enters it."""
    values = np.sort(np.random.default_rng(0).integers(0, 65, 30000))[::-1]
    codes = pack(np.arange(64) < values[:, None])
    distances, ids = FlatIndex(codes).search(np.zeros((1, 8), np.uint8), 200)
    order = np.argsort(values, kind="stable")[:200]
    np.testing.assert_array_equal(ids[0], order)
    np.testing.assert_array_equal(distances[0], values[order])


@pytest.mark.parametrize("k", [7, 9000])
def test_equal_codes_come_in_order_of_id(k):
    index = FlatIndex(np.full((10000, 8), 5, np.uint8))
    distances, ids = index.search(np.full((2, 8), 4, np.uint8), k)
    assert (distances == 8).all()
    np.testing.assert_array_equal(ids, np.tile(np.arange(k), (2, 1)))


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(0, 50),
    n_bits=st.sampled_from([1, 9, 64, 130]),
    radius=st.integers(0, 140),
    n_queries=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_radius_is_inclusive_and_sorted(n, n_bits, radius, n_queries, seed):
    ids = np.random.default_rng(seed).choice(10 * n + 1, n, replace=False)
    index = FlatIndex(random_codes(n, n_bits, seed), ids=ids)
    queries = random_codes(n_queries, n_bits, seed + 1)
    distances, found = index.search_radius(queries, radius)
    assert len(distances) == len(found) == n_queries
    truth = naive.hamming(queries, index.codes)
    for q in range(n_queries):
        inside = truth[q] <= radius
        expected = naive.nearest(truth[q][inside], index.ids[inside], n)
        assert (distances[q].tolist(), found[q].tolist()) == expected
        assert (distances[q].dtype, found[q].dtype) == (np.uint16, np.int64)


def test_threads_do_not_change_results():
    index, queries = FlatIndex(random_codes(9000, 32, 1)), random_codes(100, 32, 2)
    for k in (10, 5000):
        for one, two in zip(index.search(queries, k, n_jobs=1), index.search(queries, k, n_jobs=2), strict=True):
            np.testing.assert_array_equal(one, two)
    one, two = index.search_radius(queries, 9, n_jobs=1), index.search_radius(queries, 9, n_jobs=2)
    for part_one, part_two in zip(one, two, strict=True):
        for a, b in zip(part_one, part_two, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_index_without_codes():
    index = FlatIndex()
    assert (len(index), index.n_bytes, repr(index)) == (0, None, "FlatIndex(0 codes)")
    distances, ids = index.search(np.zeros((3, 8), np.uint8), 5)
    assert distances.shape == ids.shape == (3, 0)
    distances, ids = index.search_radius(np.zeros((3, 8), np.uint8), 5)
    assert [len(d) for d in distances] == [len(i) for i in ids] == [0, 0, 0]
    index.add(np.empty((0, 4), np.uint8))
    assert (len(index), index.n_bytes) == (0, 4)


def test_additions_in_parts_equal_one_addition():
    codes = random_codes(500, 20, 3)
    ids = np.random.default_rng(0).permutation(5000)[:500]
    index = FlatIndex()
    for start in range(0, 500, 7):
        index.add(codes[start : start + 7], ids=ids[start : start + 7])
    order = np.argsort(ids)
    np.testing.assert_array_equal(index.ids, ids[order])
    np.testing.assert_array_equal(index.codes, codes[order])
    assert_nearest(index, codes[:3], 20)


def test_search_sees_codes_added_after_a_search():
    index = FlatIndex(np.array([[255]], np.uint8))
    index.search(np.array([[0]], np.uint8), 1)
    index.add(np.array([[0]], np.uint8))
    assert index.search(np.array([[0]], np.uint8), 1)[1].tolist() == [[1]]


def test_ids_go_on_after_the_largest():
    index = FlatIndex(random_codes(2, 8), ids=[7, -3])
    index.add(random_codes(2, 8))
    assert index.ids.tolist() == [-3, 7, 8, 9]


def test_codes_are_copied_and_views_are_read_only_and_stay():
    codes = random_codes(2, 64)
    index = FlatIndex(codes, ids=[5, 6])
    kept, before = index.codes, codes.copy()
    codes[:] = 0
    index.add(random_codes(1, 64, 9), ids=[1])
    np.testing.assert_array_equal(kept, before)
    for array in (index.codes, index.ids, index.columns):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 1], "no duplicates. Got 1 twice"),
        ([11, 10], "new to the index. Got 10 instead, which it has already"),
        ([1], r"shape \(2,\), one id a code. Got \(1,\) instead"),
        ([1.0, 2.0], "must be integers. Got float64 instead"),
        (np.array([1, 2**63], np.uint64), "must fit int64. Got 9223372036854775808 instead"),
    ],
)
def test_wrong_ids_are_refused_and_nothing_is_added(ids, message):
    index = FlatIndex(random_codes(1, 8), ids=[10])
    with pytest.raises(ValueError, match=message):
        index.add(random_codes(2, 8), ids=ids)
    assert index.ids.tolist() == [10]


def test_own_ids_up_to_the_largest_int64():
    largest = 2**63 - 1
    index = FlatIndex(random_codes(1, 8), ids=[largest])
    assert index.search(random_codes(1, 8), 1)[1].tolist() == [[largest]]
    with pytest.raises(ValueError, match="no int64 is left"):
        index.add(random_codes(1, 8))
    with pytest.raises(ValueError, match="'ids' parameter must come with 'codes'"):
        FlatIndex(ids=[1])


@pytest.mark.parametrize("method", ["search", "search_radius"])
def test_wrong_queries_are_refused(method):
    search = getattr(FlatIndex(random_codes(3, 64)), method)
    with pytest.raises(ValueError, match=r"dtype uint8.* Got int64 instead"):
        search(np.zeros((1, 8), np.int64), 1)
    with pytest.raises(ValueError, match=r"must have 8 bytes a code. Got 4 instead"):
        search(np.zeros((1, 4), np.uint8), 1)
    for wrong in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match=f"must be an integer, at least .* Got {wrong} instead"):
            search(np.zeros((1, 8), np.uint8), wrong)
    with pytest.raises(ValueError, match="'n_jobs' parameter"):
        search(np.zeros((1, 8), np.uint8), 1, n_jobs=0)


def test_k_zero_is_refused_and_numpy_integers_are_not():
    index = FlatIndex(random_codes(3, 8))
    with pytest.raises(ValueError, match=r"'k' parameter must be an integer, at least 1. Got 0 instead"):
        index.search(random_codes(1, 8), 0)
    assert index.search(random_codes(1, 8), np.int32(2))[1].shape == (1, 2)


@pytest.mark.parametrize("index", [FlatIndex(random_codes(9, 20), ids=range(90, 0, -10)), FlatIndex()], ids=repr)
def test_save_and_load(tmp_path, index):
    path = tmp_path / "codes.index"
    index.save(path)
    loaded = FlatIndex.load(path)
    assert loaded.n_bytes == index.n_bytes
    np.testing.assert_array_equal(loaded.codes, index.codes)
    np.testing.assert_array_equal(loaded.ids, index.ids)
    loaded.add(np.zeros((1, index.n_bytes or 3), np.uint8))
    assert len(loaded) == len(index) + 1


GOOD = {"codes": np.zeros((2, 1), np.uint8), "ids": np.arange(2)}
HEADER = {"index": "FlatIndex", "n": 2, "n_bytes": 1}


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"index": "Other"}, {}, "type 'FlatIndex'. Got 'Other' instead"),
        ({"n": 3}, {}, r"header says.* = \(3, 1\). Got \(2, 1\) instead"),
        ({}, {"ids": np.array([1, 1])}, "duplicates"),
        ({}, {"ids": np.arange(3)}, "one id a code"),
        ({}, {"codes": np.zeros((2, 1), np.int8)}, "dtype uint8"),
        ({}, {"more": np.arange(2)}, "not .*'more'"),
    ],
)
def test_inconsistent_files_are_refused(tmp_path, header, arrays, message):
    path = tmp_path / "codes.index"
    modelfile.write(path, kind="index", header=HEADER | header, arrays=GOOD | arrays)
    with pytest.raises(modelfile.ModelFileError, match=message) as caught:
        FlatIndex.load(path)
    assert str(path) in str(caught.value)
    modelfile.write(path, kind="index", header=HEADER, arrays=GOOD)
    assert len(FlatIndex.load(path)) == 2


def test_few_queries_share_out_the_database(monkeypatch):
    """With fewer chunks of queries than threads, slices of the database are searched apart and merged."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (40_000, 2)).astype(np.uint8)  # 16 codes: ties everywhere, across slices too
    queries = rng.integers(0, 4, (3, 2)).astype(np.uint8)
    index = FlatIndex(codes)
    expected = index.search(queries, 100, n_jobs=1)
    monkeypatch.setattr("hashgrove.index.flat.MIN_SLICE", 9_000)
    for n_jobs in (2, 3, 4):
        distances, ids = index.search(queries, 100, n_jobs=n_jobs)
        assert (distances == expected[0]).all()
        assert (ids == expected[1]).all()
