"""The contract of `hashgrove.index.Index`, checked for every index in `indexes.UNDER_TEST` against a naive search."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove import ParameterError, evaluate
from hashgrove.codes import Codes
from hashgrove.encoders.decodable import Decodable, as_bytes
from hashgrove.index import INDEXES, Decoded, Index, groups, load_index, pairs_within, suggest_radius
from indexes import UNDER_TEST, at_once
from makers import random_codes

MINE, OTHER = (partial(Codes, model=name) for name in ("mine", "other"))
LABELS = {"y_queries": [0, 1], "y_database": [0, 1, 0]}
every_index = pytest.mark.parametrize("make", UNDER_TEST.values(), ids=UNDER_TEST)
every_class = pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES)


def on_examples(make, most, **strategies):
    """Run the decorated function on examples of hypothesis: ``most`` of them, or as many as the index has time for."""

    def run(check):
        settings(deadline=None, max_examples=getattr(make, "examples", most))(given(**strategies)(check))()

    return run


def share_of(make, most):
    """``most``, or the share of it that the index has time for."""
    return round(most * getattr(make, "share", 1))


def by_id(index):
    """Codes and ids in ascending order of the ids."""
    ids, codes = index.items()
    order = np.argsort(ids)
    return codes[order], ids[order]


def assert_nearest(index, queries, k, **options):
    distances, ids = index.search(queries, k, **options)
    assert distances.shape == ids.shape == (len(queries), min(k, len(index)))
    assert (distances.dtype, ids.dtype) == (np.uint16, np.int64)
    assert (distances.tolist(), ids.tolist()) == naive.search(*by_id(index), queries, k)


def assert_within(index, queries, radius, **options):
    distances, ids = index.search_radius(queries, radius, **options)
    assert len(distances) == len(ids) == len(queries)
    assert all(part.dtype == np.uint16 for part in distances)
    assert all(part.dtype == np.int64 for part in ids)
    found = [part.tolist() for part in distances], [part.tolist() for part in ids]
    assert found == naive.search_radius(*by_id(index), queries, radius)


def a_decodable(rng):
    """A model of 16 bits whose codes state which of four classes is how likely."""
    words = rng.choice(np.array([-1, 1], np.int8), (16, 4))
    return Decodable(
        weights=3 * rng.standard_normal((4, 5)).astype(np.float32),
        bias=np.zeros(4, np.float32),
        words=words,
        table=0.4 * words.astype(np.float32),
        offset=np.zeros(4, np.float32),
        temperature=np.array(1, np.float32),
        names=as_bytes(list("abcd")),
    )


# ids of both kinds: small integers of either sign, and texts that are prefixes of each other or are not ASCII
INTEGERS = st.integers(-30, 30)
TEXTS = st.text(alphabet="abé日🌳", min_size=1, max_size=4)


def draw_items(data, ids):
    """Ids without duplicates and a code for each, of few different bytes, so that there are ties everywhere."""
    chosen = data.draw(st.lists(ids, unique=True, max_size=12))
    rows = st.lists(st.sampled_from([0, 1, 3, 255]), min_size=N_BYTES, max_size=N_BYTES)
    codes = data.draw(st.lists(rows, min_size=len(chosen), max_size=len(chosen)))
    return chosen, np.array(codes, np.uint8).reshape(-1, N_BYTES)


N_BYTES = 3


def assert_holds(index, items, queries, k, radius, allowed):
    """Compare everything that can be asked of an index with what a dictionary, which keeps its order, says."""
    assert (len(index), index.ids.tolist()) == (len(items), list(items))
    assert index.codes.reshape(-1, N_BYTES).tolist() == list(items.values())
    mask = np.isin(np.array(list(items)), allowed) if items and allowed else None
    ids = sorted(items)
    codes = np.array([items[i] for i in ids], np.uint8).reshape(-1, N_BYTES)
    for only in (None, allowed, mask):
        chosen = [place for place, i in enumerate(ids) if only is None or i in allowed]
        part = codes[chosen], [ids[place] for place in chosen]
        distances, found = index.search(queries, k, allowed=only)
        assert (distances.tolist(), found.tolist()) == naive.search(*part, queries, k)
        distances, found = index.search_radius(queries, radius, allowed=only)
        assert ([d.tolist() for d in distances], [f.tolist() for f in found]) == naive.search_radius(
            *part, queries, radius
        )
    distances, pairs = pairs_within(index, radius)
    assert [(d, *pair) for d, pair in zip(distances.tolist(), pairs.tolist(), strict=True)] == naive.pairs_within(
        codes, ids, radius
    )
    assert [group.tolist() for group in groups(index, radius)] == naive.groups(codes, ids, radius)


@every_index
def test_any_changes_leave_what_a_dictionary_would_hold(make):
    @on_examples(make, 60, data=st.data())
    def check(data):
        ids = data.draw(st.sampled_from([INTEGERS, TEXTS]))
        index, items = make(), {}
        for _ in range(data.draw(st.integers(0, 6))):
            change = data.draw(st.sampled_from(["add", "add", "remove", "update", "insert"]))
            chosen, codes = draw_items(data, ids)
            known = [i for i in chosen if i in items]
            kept = np.array([i not in items for i in chosen], bool)
            if change == "add":
                index.add(codes[kept], ids=[i for i in chosen if i not in items])
                items |= {i: code for i, code, new in zip(chosen, codes.tolist(), kept, strict=True) if new}
            elif change == "remove":
                assert index.remove(chosen, missing_ok=True) == len(known)
                items = {i: code for i, code in items.items() if i not in chosen}
            elif change == "update":
                index.update(codes[~kept], ids=known)
                items |= {i: code for i, code, new in zip(chosen, codes.tolist(), kept, strict=True) if not new}
            else:
                index.add(codes, ids=chosen, replace=True)
                items |= dict(zip(chosen, codes.tolist(), strict=True))
            for i in [*chosen, *items]:
                assert (i in index) == (i in items)
        _, queries = draw_items(data, ids)
        allowed = data.draw(st.lists(ids, max_size=8))
        assert_holds(index, items, queries, data.draw(st.integers(1, 20)), data.draw(st.integers(0, 26)), allowed)


@every_index
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_a_filter_of_many_items_is_an_index_of_these_items(make, share):
    """Enough items and queries for every way to scan: with a mask, or on a copy of the allowed items."""
    rng = np.random.default_rng(0)
    codes, queries = random_codes(9000, 16, 1), random_codes(share_of(make, 70), 16, 2)
    index, allowed = make(codes), np.flatnonzero(rng.random(9000) < share)
    truth = make(codes[allowed], ids=allowed)
    for k in (3, 40, 4000):
        for part in (queries, queries[:1]):
            for one, two in zip(index.search(part, k, allowed=allowed), truth.search(part, k), strict=True):
                np.testing.assert_array_equal(one, two)
    for radius in (0, 2, 16):
        found, expected = index.search_radius(queries, radius, allowed=allowed), truth.search_radius(queries, radius)
        for one, two in zip(found, expected, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)


@every_index
def test_most_items_removed(make):
    codes = random_codes(5000, 24, 1)
    index = make(codes)
    kept = np.sort(np.random.default_rng(0).permutation(5000)[:700])
    for part in np.array_split(np.setdiff1d(np.arange(5000), kept), 9):
        assert index.remove(part) == len(part)
    np.testing.assert_array_equal(index.ids, kept)
    np.testing.assert_array_equal(index.codes, codes[kept])
    assert_nearest(index, codes[:2], 10)
    assert 0 in index or 0 not in kept
    index.remove(kept)
    assert (len(index), index.n_bytes) == (0, 3)
    assert_nearest(index, codes[:2], 10)
    index.add(codes[:2])
    assert index.ids.tolist() == [0, 1]


@every_index
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index, c: index.remove([1, 7]), "must have ids of items of the index. Got 7 instead"),
        (lambda index, c: index.update(MINE(c), ids=[1, 7]), "must have ids of items of the index. Got 7 instead"),
        (lambda index, c: index.update(MINE(c), ids=[1, 1]), "no duplicates. Got 1 twice"),
        (lambda index, c: index.add(MINE(c), ids=["a", "b"]), "must be integers, as in the index. Got texts instead"),
        (lambda index, c: index.add(MINE(c), ids=["a", 1.5]), "must be integers, as in the index|integers or texts"),
        (lambda index, c: index.search(MINE(c), 1, allowed=[True]), "must have 3 entries, one per item"),
        (lambda index, c: index.search(MINE(c), 1, allowed=[1.5]), "'allowed' parameter must be integers or texts"),
        (lambda index, c: index.search(MINE(c), 1, features=[[1.0]]), "together with 'rerank'"),
        (lambda index, c: index.search(c, 1, model="other"), "must be the model of the index, mine. Got other instead"),
        (lambda index, c: index.search_radius(c, 1, model="other"), "codes of different models cannot be compared"),
        (lambda index, c: index.add(c, model="other"), "codes of different models cannot be compared"),
        (lambda index, c: index.add(OTHER(c)), "codes of different models cannot be compared"),
        (lambda index, c: index.add(OTHER(c), model="mine"), "must be the model that made the codes, other. Got mine"),
        (lambda index, c: index.add(c), "must be given, because the index has codes of the model mine"),
        (lambda index, c: index.add(np.concatenate([MINE(c), MINE(c)])), "must be given, because"),
        (lambda index, c: index.update(c, ids=[1, 2]), "must be given, because"),
        (lambda index, c: index.update(OTHER(c), ids=[1, 2]), "codes of different models cannot be compared"),
        (lambda index, c: index.search(c, 1), "must be given, because"),
        (lambda index, c: index.search(OTHER(c), 1), "must be the model of the index, mine. Got other instead"),
        (lambda index, c: index.search(OTHER(c), 1, weights=np.ones((2, 8))), "must be the model of the index, mine"),
        (lambda index, c: index.search_radius(c, 1), "must be given, because"),
        (lambda index, c: index.search_radius(OTHER(c), 1), "codes of different models cannot be compared"),
        (lambda index, c: evaluate(index, c, **LABELS), "must be given, because"),
        (lambda index, c: evaluate(index, OTHER(c), **LABELS), "codes of different models cannot be compared"),
        (lambda index, c: index.add(c, model=3), "must be a digest or a model that has one. Got an object of type int"),
        (lambda index, c: pairs_within(index, -1), "'radius' parameter must be an integer of at least 0"),
        (lambda index, c: pairs_within(index, 8, max_pairs=2), "at most max_pairs=2 pairs. Got more at radius 8"),
        (lambda index, c: groups(index, 8, max_pairs=2), "at most max_pairs=2 pairs. Got more at radius 8"),
        (
            lambda index, c: suggest_radius(index, [[0, 9]], [True]),
            "must have ids of items of the index. Got 9 instead",
        ),
        (lambda index, c: suggest_radius(index, [0, 1], [True]), r"must have shape \(n_pairs, 2\)"),
        (lambda index, c: suggest_radius(index, [[0, 1]], [1]), "must be bool of shape"),
        (lambda index, c: suggest_radius(index, [[0, 1]], [True]), "mark both similar and other pairs"),
    ],
)
def test_wrong_calls_are_refused_and_change_nothing(make, call, message):
    codes = np.array([[1], [2], [4]], np.uint8)
    index = make(codes, model="mine")
    assert index.model == "mine"
    with pytest.raises(ValueError, match=message):
        call(index, codes[:2])
    assert (index.ids.tolist(), index.codes.tolist()) == ([0, 1, 2], codes.tolist())


@every_index
def test_an_index_learns_its_model_from_the_first_codes(make):
    index, codes = make(), random_codes(4, 16)
    assert index.model is None
    index.add(Codes(codes, model="mine"))
    assert index.model == index.codes.model == index.items()[1][1:].model == "mine"
    with pytest.raises(ParameterError, match="Got other instead") as caught:
        index.search(OTHER(codes), 1)
    assert caught.value.parameter == "model"
    index.add(codes, model="mine")
    np.testing.assert_array_equal(index.search(MINE(codes), 2).ids, index.search(codes, 2, model="mine").ids)
    assert evaluate(index, index.codes, y_queries=range(8), y_database=range(8), knn=None).map > 0.5
    unknown = make(codes)
    unknown.add(MINE(codes))  # which may be of the same model: nobody knows
    assert unknown.model is None
    assert len(unknown.search(OTHER(codes), 9).ids[0]) == 8


@every_index
@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_what_is_given_per_item_is_in_the_order_in_which_items_were_added(make, kind):
    """Labels, masks, ids and codes, with ids in random order, after every kind of change."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(1000)[:60]
    ids = numbers if kind == "integers" else np.array([f"é{number}" for number in numbers])
    y = np.arange(60) % 4
    codes = np.repeat(np.array([[0], [15], [51], [240]], np.uint8)[y], 2, axis=1) ^ rng.integers(
        0, 2, (60, 2), np.uint8
    )
    index = make(codes[:30], ids=ids[:30])

    def check(expected):
        np.testing.assert_array_equal(index.ids, ids[expected])
        np.testing.assert_array_equal(index.codes, codes[expected])
        order = np.argsort(ids[expected])
        for ties in ("expected", "id"):
            found = evaluate(index, codes[:9], y_queries=y[:9], y_database=y[expected], ties=ties, knn=5)
            sure = evaluate(codes[expected][order], codes[:9], y_queries=y[:9], y_database=y[expected][order],
                            ties=ties, knn=5)  # fmt: skip
            assert found.to_dict() == sure.to_dict()
        assert found.map > 0.9
        labels = dict(zip(ids[expected].tolist(), y[expected].tolist(), strict=True))
        assert evaluate(index, codes[:9], y_queries=y[:9], y_database=labels, ties="id", knn=5).map == found.map
        mask = y[expected] == 2
        near = index.search(codes[:2], 60, allowed=mask).ids
        assert set(near[0].tolist()) == set(ids[expected][mask].tolist())
        assert set(index.search_radius(codes[:1], 16, allowed=mask).ids[0].tolist()) == set(near[0].tolist())

    check(np.arange(30))
    index.add(codes[30:], ids=ids[30:])
    check(np.arange(60))
    index.update(codes[[40, 3]], ids=ids[[40, 3]])
    check(np.arange(60))
    kept = np.flatnonzero(np.arange(60) % 7 != 3)
    index.remove(ids[np.arange(60) % 7 == 3])
    check(kept)
    index.add(codes[[58, 3]], ids=ids[[58, 3]], replace=True)
    check(np.append(kept, 3))
    if hasattr(index, "compact"):
        index.compact()
        check(np.append(kept, 3))
        index.add(codes[[10]], ids=ids[[10]])
        check(np.append(kept, [3, 10]))


@every_index
@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_another_order_has_the_codes_of_its_candidates_at_hand(make, kind):
    """`Decoded` for ids in random order, an id with a quote among them, ties, filters, and changed codes."""
    rng = np.random.default_rng(0)
    model = a_decodable(rng)
    numbers = rng.permutation(1000)[:60] - 30
    ids = numbers if kind == "integers" else np.array([f"é'{number}" for number in numbers])
    X = rng.standard_normal((60, 5))
    index = make(model.encode(X), ids=ids, model=model)
    X[7] = -X[7]
    index.update(model.encode(X[[7]]), ids=ids[[7]])
    queries, p = model.encode(X[:4]), model.as_queries(X[:4]).probabilities
    truth = 1 - p @ model.decoder.decode(model.encode(X)).T
    for allowed in (None, np.arange(60) % 2 == 0):
        found = index.search(queries, 60, rerank=Decoded(model), features=X[:4], allowed=allowed)
        rows = np.arange(60) if allowed is None else np.flatnonzero(allowed)
        for near, names, row in zip(found.distances, found.ids, truth, strict=True):
            np.testing.assert_allclose(near, np.sort(row[rows]), rtol=1e-5, atol=1e-6)
            places = [np.flatnonzero(ids == name)[0] for name in names]
            assert sorted(places) == rows.tolist()
            np.testing.assert_allclose(near, row[places], rtol=1e-5, atol=1e-6)
    near = index.search(queries, 3, rerank=Decoded(model, n_candidates=60), features=X[:4])
    np.testing.assert_array_equal(near.ids, index.search(queries, 60, rerank=Decoded(model), features=X[:4]).ids[:, :3])
    index.remove(ids)
    assert index.search(queries, 3, rerank=Decoded(model), features=X[:4]).ids.shape == (4, 0)


@every_index
def test_contains_items_and_next_ids(make):
    codes = random_codes(3, 16)
    index = make(codes, ids=[2, 5, 9])
    assert index.contains([9, 4, 2]).tolist() == [True, False, True]
    assert index.next_ids(2).tolist() == [10, 11]
    ids, found = index.items()
    assert (ids.tolist(), found.tolist()) == ([2, 5, 9], codes.tolist())


@every_index
def test_a_limited_radius_search_says_that_it_was_cut(make):
    index = make(np.array([[0], [1], [3], [255]], np.uint8))
    found = index.search_radius(np.array([[0], [255]], np.uint8), 2, limit=2)
    assert [part.tolist() for part in found.ids] == [[0, 1], [3]]
    assert (found.truncated.tolist(), found.truncated.dtype) == ([True, False], np.bool_)
    assert not index.search_radius(np.array([[0]], np.uint8), 2, limit=3).truncated.any()
    with pytest.raises(ParameterError, match="'limit' parameter must be an integer of at least 1 or None"):
        index.search_radius(np.array([[0]], np.uint8), 2, limit=0)


@every_index
@pytest.mark.parametrize("text", ["", "a\0", "\0", "é" * 600, "\udcff"])
def test_texts_that_cannot_be_ids_are_refused(make, text):
    index = make(random_codes(1, 8), ids=["b"])
    with pytest.raises(ValueError, match="texts of 1 to 1024 bytes in UTF-8, without control characters"):
        index.add(random_codes(1, 8), ids=[text])
    with pytest.raises(ValueError, match="must be given, as the ids of the index are texts"):
        index.add(random_codes(1, 8))
    assert (text in index, 3 in index, None in index, "b" in index) == (False, False, False, True)


@every_index
def test_texts_of_growing_length_are_found_in_the_order_of_their_code_points(make):
    rng = np.random.default_rng(0)
    ids = ["ab", "a", "日本" * 30, "Z", "é", "a" * 1024, "🌳"]
    codes, index = random_codes(len(ids), 16), make()
    for i, code in zip(ids, codes, strict=True):
        index.add(code[None], ids=[i])
    assert index.ids.tolist() == ids
    assert index.search(codes[:1], 7).ids.dtype.kind == "U"
    same = make(np.zeros((len(ids), 1), np.uint8), ids=ids)
    assert same.search(np.zeros((1, 1), np.uint8), 9).ids.tolist() == [sorted(ids)]
    for wanted in rng.permutation(ids)[:3].tolist():
        index.remove([wanted])
        assert wanted not in index


@every_index
def test_pairs_of_many_items(make):
    """Against all distances of random codes with many duplicates, in several chunks."""
    codes = np.concatenate([random_codes(5000, 20, 1), random_codes(100, 3, 2).repeat(3, axis=1)])
    distances, pairs = pairs_within(make(codes), 2)
    truth = np.unpackbits(codes[:, None] ^ codes[None, -200:], axis=2).sum(axis=2) <= 2
    first, second = np.nonzero(truth)
    second += len(codes) - 200
    wanted = {(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True) if a < b}
    assert {(a, b) for a, b in pairs.tolist() if b >= len(codes) - 200} == wanted
    assert (np.diff(distances.astype(int)) >= 0).all()


@every_index
def test_suggested_radii(make):
    index = make(np.array([[0], [1], [3], [7], [255]], np.uint8))
    pairs, similar = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2]], np.array([True, True, False, False, True])
    choice = suggest_radius(index, pairs, similar)
    assert (choice.radius, choice.precision, choice.recall) == (2, 1.0, 1.0)
    assert suggest_radius(index, pairs, similar, precision=0.75).radius == 3
    assert suggest_radius(index, pairs, similar, precision=0.5).radius == 8
    with pytest.raises(ValueError, match=r"must be reached at some radius. Got 0.9 instead; the best is 0.500"):
        suggest_radius(index, pairs[2:], np.array([True, False, False]), precision=0.9)


def test_the_registry_names_each_class_once():
    assert all(issubclass(make, Index) for make in INDEXES.values())
    assert len({make.__name__ for make in INDEXES.values()}) == len(INDEXES)


@every_index
def test_search_sorts_by_distance_and_then_id_without_padding(make):
    @on_examples(
        make,
        60,
        n=st.integers(0, 60),
        n_bits=st.sampled_from([1, 3, 9, 64, 130, 1024]),
        k=st.integers(1, 70),
        n_queries=st.integers(0, 3),
        seed=st.integers(0, 1000),
    )
    def check(n, n_bits, k, n_queries, seed):
        ids = np.random.default_rng(seed).choice(10 * n + 1, n, replace=False) - 5
        index = make(random_codes(n, n_bits, seed), ids=ids)
        assert_nearest(index, random_codes(n_queries, n_bits, seed + 1), k)


@every_index
def test_radius_is_inclusive_and_sorted(make):
    @on_examples(
        make,
        40,
        n=st.integers(0, 50),
        n_bits=st.sampled_from([1, 9, 64, 130]),
        radius=st.integers(0, 140),
        n_queries=st.integers(0, 40),
        seed=st.integers(0, 1000),
    )
    def check(n, n_bits, radius, n_queries, seed):
        ids = np.random.default_rng(seed).choice(10 * n + 1, n, replace=False)
        index = make(random_codes(n, n_bits, seed), ids=ids)
        assert_within(index, random_codes(n_queries, n_bits, seed + 1), radius)


@every_index
def test_distance_counts_whole_bytes(make):
    """Bits that pad the last byte count like any other; transform and pack leave them zero."""
    index = make(np.array([[0b0000_0000], [0b1000_0000]], np.uint8))
    distances, ids = index.search(np.array([[0b1000_0000]], np.uint8), 2)
    assert (distances.tolist(), ids.tolist()) == ([[0, 1]], [[1, 0]])


@every_index
@pytest.mark.parametrize("k", [7, 9000])
def test_equal_codes_come_in_order_of_id(make, k):
    index = make(np.full((10000, 8), 5, np.uint8))
    distances, ids = index.search(np.full((2, 8), 4, np.uint8), k)
    assert (distances == 8).all()
    np.testing.assert_array_equal(ids, np.tile(np.arange(k), (2, 1)))


@every_index
def test_the_number_of_threads_does_not_change_results(make):
    index, queries = make(random_codes(9000, 32, 1)), random_codes(share_of(make, 100), 32, 2)
    for k in (10, 5000):
        for one, two in zip(index.search(queries, k, n_jobs=1), index.search(queries, k, n_jobs=2), strict=True):
            np.testing.assert_array_equal(one, two)
    one, two = index.search_radius(queries, 9, n_jobs=1), index.search_radius(queries, 9, n_jobs=2)
    for part_one, part_two in zip(one, two, strict=True):
        for a, b in zip(part_one, part_two, strict=True):
            np.testing.assert_array_equal(a, b)


@every_index
def test_several_threads_search_at_the_same_time(make):
    index, queries = make(random_codes(3000, 64, 1)), random_codes(20, 64, 2)
    expected = index.search(queries, 30).ids.tolist()
    start = threading.Barrier(4, timeout=300)

    def search():
        start.wait()
        return index.search(queries, 30, n_jobs=1).ids.tolist()

    assert at_once(*[search] * 4) == [expected] * 4


@every_index
@pytest.mark.parametrize("first", ["first", "last"])
def test_search_while_another_thread_adds(make, first):
    """Each code is its id in binary, so a result shows whether codes and ids belong to the same moment."""
    width = 50
    n = width * share_of(make, 80)
    all_codes = np.arange(n, dtype="<u4").view(np.uint8).reshape(n, 4)
    starts = list(range(0, n, width)) if first == "first" else list(range(n - width, -1, -width))
    index, done, wrong, sizes = make(), threading.Event(), [], []

    def add():
        try:
            for start in starts:
                index.add(all_codes[start : start + width], ids=np.arange(start, start + width))
        finally:  # else the searches would go on for ever
            done.set()

    def search():
        queries = all_codes[:40]
        while not done.is_set():
            for distances, ids in (index.search(queries, 10, n_jobs=1), index.search_radius(queries, 2, n_jobs=1)):
                for q, (row, found) in enumerate(zip(distances, ids, strict=True)):
                    expected = np.unpackbits(all_codes[found] ^ queries[q], axis=1).sum(axis=1)
                    if row.tolist() != expected.tolist():
                        wrong.append((q, row.tolist(), found.tolist()))
            sizes.append(len(index))

    at_once(search, search, add)
    assert not wrong
    assert all(size % width == 0 for size in sizes)
    np.testing.assert_array_equal(by_id(index)[0], all_codes)


@every_index
def test_several_threads_add(make):
    index, n_times = make(), share_of(make, 100)

    def add():
        for _ in range(n_times):
            index.add(random_codes(3, 8))

    at_once(*[add] * 4)
    assert index.ids.tolist() == list(range(4 * n_times * 3))


@every_index
def test_an_index_without_codes(make):
    index = make()
    assert (len(index), index.n_bytes, repr(index)) == (0, None, f"{type(index).__name__}(0 codes)")
    assert (index.codes.shape, index.ids.shape) == ((0, 0), (0,))
    distances, ids = index.search(np.zeros((3, 8), np.uint8), 5)
    assert distances.shape == ids.shape == (3, 0)
    distances, ids = index.search_radius(np.zeros((3, 9), np.uint8), 5)
    assert [len(d) for d in distances] == [len(i) for i in ids] == [0, 0, 0]
    index.add(np.empty((0, 4), np.uint8))
    assert (len(index), index.n_bytes) == (0, 4)
    assert_nearest(index, np.zeros((2, 4), np.uint8), 3)


@every_index
def test_no_queries(make):
    index = make(random_codes(5, 16))
    assert_nearest(index, np.empty((0, 2), np.uint8), 3)
    assert_within(index, np.empty((0, 2), np.uint8), 3)


@every_index
def test_additions_in_parts_equal_one_addition(make):
    codes = random_codes(500, 20, 3)
    ids = np.random.default_rng(0).permutation(5000)[:500]
    index = make()
    for start in range(0, 500, 7):
        index.add(codes[start : start + 7], ids=ids[start : start + 7])
    np.testing.assert_array_equal(index.ids, ids)
    np.testing.assert_array_equal(index.codes, codes)
    assert_nearest(index, codes[:3], 20)


@every_index
def test_search_sees_codes_added_after_a_search(make):
    index, query = make(np.array([[255]], np.uint8)), np.array([[0]], np.uint8)
    index.search(query, 1)
    index.search_radius(query, 1)
    index.add(np.array([[0]], np.uint8))
    assert index.search(query, 1).ids.tolist() == [[1]]
    assert index.search_radius(query, 1).ids[0].tolist() == [1]


@every_index
def test_ids_go_on_after_the_largest(make):
    index = make(random_codes(2, 8), ids=[7, -3])
    index.add(random_codes(2, 8))
    assert index.ids.tolist() == [7, -3, 8, 9]


@every_index
def test_codes_are_copied_and_views_are_read_only_and_stay(make):
    codes = random_codes(2, 64)
    index = make(codes, ids=[5, 6])
    kept, before = index.codes, codes.copy()
    codes[:] = 0
    index.add(random_codes(1, 64, 9), ids=[1])
    np.testing.assert_array_equal(kept, before)
    for array in (index.codes, index.ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@every_index
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 1], "no duplicates. Got 1 twice"),
        ([11, 10], "new to the index. Got 10 instead, which is already in it"),
        ([1], r"shape \(2,\), one id per code. Got \(1,\) instead"),
        ([1.0, 2.0], "must be integers or texts. Got float64 instead"),
        (np.array([1, 2**63], np.uint64), "must fit int64. Got 9223372036854775808 instead"),
    ],
)
def test_wrong_ids_are_refused_and_nothing_is_added(make, ids, message):
    index = make(random_codes(1, 8), ids=[10])
    with pytest.raises(ValueError, match=message):
        index.add(random_codes(2, 8), ids=ids)
    assert index.ids.tolist() == [10]


@every_index
def test_ids_up_to_the_largest_int64(make):
    largest = 2**63 - 1
    index = make(random_codes(1, 8), ids=[largest])
    assert index.search(random_codes(1, 8), 1).ids.tolist() == [[largest]]
    with pytest.raises(ValueError, match="no int64 is left"):
        index.add(random_codes(1, 8))
    with pytest.raises(ValueError, match="'ids' parameter must be given together with 'codes'"):
        make(ids=[1])


@every_index
@pytest.mark.parametrize(("method", "name", "least"), [("search", "k", 1), ("search_radius", "radius", 0)])
def test_wrong_queries_are_refused(make, method, name, least):
    search = getattr(make(random_codes(3, 64)), method)
    with pytest.raises(ValueError, match=r"dtype uint8.* Got int64 instead"):
        search(np.zeros((1, 8), np.int64), 1)
    with pytest.raises(ValueError, match=r"must have 8 bytes per code. Got 4 instead"):
        search(np.zeros((1, 4), np.uint8), 1)
    for wrong in (least - 1, 1.0, True, None, "1"):
        with pytest.raises(
            ValueError, match=f"'{name}' parameter must be an integer of at least {least}. Got {wrong!r} instead"
        ):
            search(np.zeros((1, 8), np.uint8), wrong)
    with pytest.raises(ValueError, match="'n_jobs' parameter"):
        search(np.zeros((1, 8), np.uint8), 1, n_jobs=0)
    assert len(search(np.zeros((1, 8), np.uint8), np.int32(2)).ids) == 1


@every_index
def test_wrong_codes_are_refused_and_nothing_is_added(make):
    index = make(random_codes(3, 64))
    with pytest.raises(ValueError, match=r"dtype uint8.* Got int64 instead"):
        index.add(np.zeros((1, 8), np.int64))
    with pytest.raises(ValueError, match=r"must have 8 bytes per code. Got 4 instead"):
        index.add(np.zeros((1, 4), np.uint8))
    assert len(index) == 3


@every_class
@pytest.mark.parametrize("n", [9, 0])
def test_save_and_load(tmp_path, make, n):
    index = make(random_codes(n, 20), ids=range(10 * n, 0, -10)) if n else make()
    if n:
        index.update(random_codes(1, 20, 3), ids=[70])
        assert index.ids.tolist() == [90, 80, 70, 60, 50, 40, 30, 20, 10]
    path = tmp_path / "codes.index"
    index.save(path)
    for load in (make.load, load_index):
        loaded = load(path)
        assert type(loaded) is make
        assert loaded.n_bytes == index.n_bytes
        np.testing.assert_array_equal(loaded.codes, index.codes)
        np.testing.assert_array_equal(loaded.ids, index.ids)
        loaded.add(np.zeros((1, index.n_bytes or 3), np.uint8))
        assert len(loaded) == len(index) + 1
