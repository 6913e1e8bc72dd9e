import json
from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import naive
from hashgrove.codes import TILE, as_words, hamming, pack
from hashgrove.index import FlatIndex
from hashgrove.metrics import Report, count_distinct, describe_codes, evaluate, expected_average_precision
from hashgrove.metrics.ranking import count_relevant
from hashgrove.metrics.relevance import Relevance
from makers import random_codes


def rankings(queries, database, relevant, exclude_self):
    """For each query: distances and relevance of the items that are ranked, in order of position."""
    distances = naive.hamming(queries, database)
    for q in range(len(queries)):
        items = [i for i in range(len(database)) if not (exclude_self and i == q)]
        yield [int(distances[q, i]) for i in items], [bool(relevant[q][i]) for i in items], items


def by_id(distances, marks):
    return [r for _, _, r in sorted(zip(distances, range(len(marks)), marks, strict=True))]


def naive_report(queries, database, relevant, k, *, ties, exclude_self, classes=None, knn=None):
    maps, precisions, pooled, wrong = [], [], ([], []), []
    for q, (distances, marks, items) in enumerate(rankings(queries, database, relevant, exclude_self)):
        if not any(marks):
            continue
        orders = naive.tie_orders(distances, marks) if ties == "expected" else [by_id(distances, marks)]
        maps.append(np.mean([naive.average_precision(order) for order in orders]))
        precisions.append(np.mean([np.mean(order[:k]) for order in orders]))
        pooled[0].append(distances)
        pooled[1].append(marks)
        if classes is not None:
            nearest = naive.nearest(distances, items, knn)[1]
            wrong.append(naive.majority([classes[1][i] for i in nearest]) != classes[0][q])
    radii, recall, precision = naive.precision_recall(*pooled)
    area = recall[0] * precision[0]
    for i in range(1, len(radii)):
        area += (recall[i] - recall[i - 1]) * (precision[i] + precision[i - 1]) / 2
    error = np.mean(wrong) if wrong else None
    return np.mean(maps), np.mean(precisions), radii, recall, precision, area, error


def assert_agrees(report, truth):
    mean, at_k, radii, recall, precision, area, error = truth
    assert isclose(report.map, mean, rel_tol=1e-12)
    assert isclose(report.precision_at_k, at_k, rel_tol=1e-12)
    assert report.radii.tolist() == radii
    np.testing.assert_allclose(report.recall, recall)
    np.testing.assert_allclose(report.precision, precision)
    assert isclose(report.pr_area, area, rel_tol=1e-12)
    assert report.knn_error == (None if error is None else pytest.approx(error))


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 6),
    n_bits=st.sampled_from([1, 2, 9, 70]),
    k=st.integers(1, 8),
    knn=st.integers(1, 8),
    ties=st.sampled_from(["expected", "id"]),
    exclude_self=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_report_of_classes_agrees_with_the_definitions(n, n_bits, k, knn, ties, exclude_self, seed):
    rng = np.random.default_rng(seed)
    database = random_codes(n, n_bits, seed)
    n_queries = n if exclude_self else 3
    queries = database if exclude_self else random_codes(n_queries, n_bits, seed + 1)
    y_database, y_query = rng.integers(0, 3, n), rng.integers(0, 3, n_queries)
    y_query[0] = y_database[-1]  # some query has a relevant item, also when it is left out itself
    relevant = y_query[:, None] == y_database
    ranked = relevant & ~np.eye(n_queries, n, dtype=bool) if exclude_self else relevant
    options = {"ties": ties, "exclude_self": exclude_self}
    report = evaluate(FlatIndex(database), queries, y_queries=y_query, y_database=y_database, k=k, knn=knn, **options)
    length = n - exclude_self
    truth = naive_report(
        queries,
        database,
        relevant,
        min(k, length),
        classes=(y_query, y_database),
        knn=min(knn, length),
        **options,
    )
    assert_agrees(report, truth)
    assert (report.n_queries, report.n_database) == (n_queries, n)
    assert report.n_without_relevant == (~ranked.any(axis=1)).sum()
    assert (report.k, report.knn, report.labels, report.min_shared) == (
        min(k, length),
        min(knn, length),
        "classes",
        None,
    )


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 6),
    n_tags=st.sampled_from([3, 64, 130]),
    min_shared=st.integers(1, 3),
    form=st.sampled_from(["bool", "float", "csr", "coo"]),
    ties=st.sampled_from(["expected", "id"]),
    seed=st.integers(0, 10**6),
)
def test_report_of_tags_agrees_with_the_definitions(n, n_tags, min_shared, form, ties, seed):
    rng = np.random.default_rng(seed)
    database, queries = random_codes(n, 3, seed), random_codes(3, 3, seed + 1)
    y_database, y_query = rng.random((n, n_tags)) < 3 / n_tags, rng.random((3, n_tags)) < 3 / n_tags
    y_query[0, -min_shared:] = y_database[0, -min_shared:] = True
    convert = {"bool": np.asarray, "float": np.float64, "csr": sparse.csr_matrix, "coo": sparse.coo_array}[form]
    relevant = [[sum(a & b) >= min_shared for b in y_database] for a in y_query]
    report = evaluate(
        FlatIndex(database),
        queries,
        y_queries=convert(y_query),
        y_database=convert(y_database),
        k=2,
        min_shared=min_shared,
        ties=ties,
    )
    assert_agrees(report, naive_report(queries, database, relevant, 2, ties=ties, exclude_self=False))
    assert (report.knn, report.labels, report.min_shared) == (None, "tags", min_shared)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 6),
    n_bits=st.sampled_from([1, 2, 9]),
    depth=st.integers(1, 8),
    normalise=st.sampled_from(["relevant", "retrieved"]),
    ties=st.sampled_from(["expected", "id"]),
    exclude_self=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_measures_of_the_first_items_agree_with_the_definitions(n, n_bits, depth, normalise, ties, exclude_self, seed):
    rng = np.random.default_rng(seed)
    database = random_codes(n, n_bits, seed)
    n_queries = n if exclude_self else 3
    queries = database if exclude_self else random_codes(n_queries, n_bits, seed + 1)
    y_database, y_query = rng.integers(0, 3, n), rng.integers(0, 3, n_queries)
    y_query[0] = y_database[-1]
    relevant = y_query[:, None] == y_database
    report = evaluate(
        database, queries, y_queries=y_query, y_database=y_database,
        k=3, ties=ties, exclude_self=exclude_self, depth=depth, normalise=normalise,
    )  # fmt: skip
    averages, precisions, curves = [], [], []
    for distances, marks, _ in rankings(queries, database, relevant, exclude_self):
        if any(marks):
            orders = naive.tie_orders(distances, marks) if ties == "expected" else [by_id(distances, marks)]
            parts = {"depth": depth, "normalise": normalise}
            averages.append(np.mean([naive.average_precision(order, **parts) for order in orders]))
            precisions.append(np.mean([np.mean(order[: min(3, depth)]) for order in orders]))
            curves.append(np.mean([naive.recall_at_ranks(order, depth) for order in orders], axis=0))
    recall, precision = np.mean(curves, axis=0)
    area = recall[0] * precision[0] + np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2)
    assert isclose(report.map, np.mean(averages), rel_tol=1e-12, abs_tol=1e-15)
    assert isclose(report.precision_at_k, np.mean(precisions), rel_tol=1e-12, abs_tol=1e-15)
    assert isclose(report.pr_area, area, rel_tol=1e-12, abs_tol=1e-15)
    np.testing.assert_allclose(report.recall, recall)
    np.testing.assert_allclose(report.precision, precision)
    assert report.radii is None
    assert report.precision_depths[-1] == min(depth, n - exclude_self)


@pytest.mark.parametrize("normalise", ["relevant", "retrieved"])
def test_a_large_group_of_ties_that_is_cut_has_the_mean_of_random_orders(normalise):
    rng = np.random.default_rng(0)
    totals, relevant = np.array([[300, 0, 5000, 40]]), np.array([[120, 0, 900, 30]])
    found = expected_average_precision(totals, relevant, depth=1100, normalise=normalise)
    groups = [np.arange(n) < r for n, r in zip(totals[0], relevant[0], strict=True)]
    drawn = []
    for _ in range(2000):
        marks = np.concatenate([rng.permutation(group) for group in groups])[:1100]
        precisions = (marks.cumsum() / np.arange(1, 1101))[marks]
        drawn.append(precisions.sum() / (marks.sum() if normalise == "retrieved" else relevant.sum()))
    assert abs(found[0] - np.mean(drawn)) < 5 * np.std(drawn) / np.sqrt(len(drawn))
    assert np.std(drawn) > 0


def test_protocols_are_names_of_a_depth_and_a_divisor():
    codes, y = clustered(300)
    named = evaluate(codes, codes, y_queries=y, y_database=y, protocol="fasthash-paper")
    spelled = evaluate(codes, codes, y_queries=y, y_database=y, depth=10_000, normalise="retrieved")
    assert named.protocol == spelled.protocol == named.to_dict()["protocol"] == "fasthash-paper"
    assert named.map == spelled.map
    assert "first 10,000 items" in str(named)
    assert "fasthash-paper" in str(named)
    full = evaluate(codes, codes, y_queries=y, y_database=y)
    assert full.protocol == "full-ranking"
    assert named.map == pytest.approx(full.map), "all items are among the first 10,000"
    assert evaluate(codes, codes, y_queries=y, y_database=y, depth=7).protocol is None


def clustered(n, n_bits=16, seed=0):
    """Codes around four centres, with many ties, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    centres = rng.random((4, n_bits)) < 0.5
    return pack(centres[y] ^ (rng.random((n, n_bits)) < 0.3)), y


@pytest.mark.parametrize("exclude_self", [False, True])
def test_ties_by_id_in_many_items_agree_with_a_stable_sort(exclude_self):
    """Several tiles and chunks."""
    codes, y = clustered(TILE + 300)
    n_queries = len(codes) if exclude_self else 70
    index, queries = FlatIndex(codes), codes[:n_queries]
    report = evaluate(index, queries, y_queries=y[:n_queries], y_database=y, ties="id", exclude_self=exclude_self, k=30)
    order = np.argsort(hamming(queries, codes), axis=1, kind="stable")
    if exclude_self:
        order = order[order != np.arange(n_queries)[:, None]].reshape(n_queries, -1)
    hits = y[order] == y[:n_queries, None]
    precision = hits.cumsum(axis=1) / np.arange(1, order.shape[1] + 1)
    assert isclose(report.map, ((precision * hits).sum(axis=1) / hits.sum(axis=1)).mean(), rel_tol=1e-12)
    np.testing.assert_allclose(report.precision_curve, precision[:, report.precision_depths - 1].mean(axis=0))
    assert report.precision_at_k == pytest.approx(precision[:, 29].mean())
    wrong = [naive.majority(y[row[:50]].tolist()) != y[q] for q, row in enumerate(order)]
    assert report.knn_error == pytest.approx(np.mean(wrong))


def test_expected_ties_in_many_items_agree_with_the_sum_over_places():
    codes, y = clustered(TILE + 300)
    report = evaluate(FlatIndex(codes), codes[:40], y_queries=y[:40], y_database=y)
    truth = [
        naive.expected_average_precision(row.tolist(), (y == y[q]).tolist())
        for q, row in enumerate(hamming(codes[:40], codes))
    ]
    assert isclose(report.map, np.mean(truth), rel_tol=1e-11)


def test_expected_ties_do_not_depend_on_the_order_of_the_database():
    codes, y = clustered(500, n_bits=6)
    order = np.argsort(y, kind="stable")
    reports = [
        evaluate(FlatIndex(codes[o]), codes[:9], y_queries=y[:9], y_database=y[o], knn=None)
        for o in (order, order[::-1])
    ]
    assert reports[0].to_dict() == reports[1].to_dict()
    by_id = [
        evaluate(FlatIndex(codes[o]), codes[:9], y_queries=y[:9], y_database=y[o], ties="id").map
        for o in (order, order[::-1])
    ]
    assert abs(by_id[0] - by_id[1]) > 0.01


@pytest.mark.parametrize("ties", ["expected", "id"])
def test_threads_do_not_change_the_report(ties):
    codes, y = clustered(600)
    one = evaluate(FlatIndex(codes), codes, y_queries=y, y_database=y, ties=ties, exclude_self=True, n_jobs=1)
    two = evaluate(FlatIndex(codes), codes, y_queries=y, y_database=y, ties=ties, exclude_self=True, n_jobs=2)
    assert one.to_dict() == two.to_dict()


def test_equal_codes_give_the_share_of_relevant_items():
    report = evaluate(
        FlatIndex(np.zeros((40, 2), np.uint8)), np.zeros((1, 2), np.uint8), y_queries=[0], y_database=[0, 1] * 20, k=7
    )
    assert report.precision_at_k == pytest.approx(0.5)
    assert report.radii.tolist() == [0]
    assert (report.recall.tolist(), report.precision.tolist(), report.pr_area) == ([1.0], [0.5], 0.5)


def test_expected_average_precision_of_no_relevant_item_is_nan():
    totals, relevant = np.array([[1, 0, 2], [1, 0, 2]]), np.array([[0, 0, 0], [1, 0, 2]])
    np.testing.assert_array_equal(expected_average_precision(totals, relevant), [np.nan, 1.0])


def test_labels_of_any_type_give_the_same_report():
    codes, y = clustered(60)
    names = np.array(["ant", "bee", "cat", "a longer name"])
    index = FlatIndex(codes)
    truth = evaluate(index, codes[:5], y_queries=y[:5], y_database=y).to_dict()
    forms = [names[y], names.astype(object)[y], y.astype(np.float32), [int(label) for label in y]]
    for labels in forms:
        found = evaluate(index, codes[:5], y_queries=labels[:5], y_database=labels).to_dict()
        # classes are listed in the order of their labels
        assert sorted(found.pop("class_map")) == sorted(truth["class_map"])
        assert found.pop("macro_map") == pytest.approx(truth["macro_map"])
        assert set(found.pop("classes")) == {np.asarray(labels).tolist()[i] for i in range(5)}
        assert found == {name: truth[name] for name in found}
    one_hot = np.eye(4, dtype=int)[y]
    tags = evaluate(index, codes[:5], y_queries=one_hot[:5], y_database=sparse.csr_array(one_hot), min_shared=1)
    assert (tags.map, tags.pr_area, tags.knn_error) == (truth["map"], truth["pr_area"], None)


def test_queries_without_relevant_items_are_left_out_of_every_measure():
    codes, y = clustered(50)
    index = FlatIndex(codes)
    alone = evaluate(index, codes[:5], y_queries=y[:5], y_database=y).to_dict()
    both = evaluate(index, codes[:7], y_queries=[*y[:5], 98, 99], y_database=y).to_dict()
    assert (both.pop("n_queries"), both.pop("n_without_relevant")) == (7, 2)
    assert (alone.pop("n_queries"), alone.pop("n_without_relevant")) == (5, 0)
    assert both == alone


@pytest.mark.parametrize("options", [{}, {"ties": "id"}, {"knn": None}, {"exclude_self": True}, {"weights": 1.0}])
def test_packed_codes_give_the_report_of_their_index(options):
    codes, y = clustered(80)
    n_queries = 80 if options.get("exclude_self") else 5
    if "weights" in options:
        options = {"weights": np.random.default_rng(0).random((n_queries, 16))}
    options = {"y_queries": y[:n_queries], "y_database": y} | options
    from_codes, from_index = (evaluate(c, codes[:n_queries], **options) for c in (codes, FlatIndex(codes)))
    assert from_codes.to_dict() == from_index.to_dict()


def test_a_query_does_not_vote_for_itself():
    codes = np.array([[0], [1], [3]], np.uint8)
    report = evaluate(FlatIndex(codes), codes, y_queries=[0, 1, 0], y_database=[0, 1, 0], exclude_self=True, knn=2)
    # Neighbours of the first and the last are of class 1, then 0: one vote each, and class 1 is nearer.
    assert (report.knn_error, report.n_without_relevant) == (1.0, 1)


def test_depths_of_the_precision_curve():
    codes, y = clustered(130)
    assert evaluate(FlatIndex(codes), codes[:3], y_queries=y[:3], y_database=y, k=30).precision_depths.tolist() == [
        1, 2, 5, 10, 20, 30, 50, 100, 130,
    ]  # fmt: skip
    assert evaluate(FlatIndex(codes), codes[:3], y_queries=y[:3], y_database=y, k=1000).k == 130


def test_report_is_json_and_reads_well():
    codes, y = clustered(50)
    report = evaluate(FlatIndex(codes), codes, y_queries=[99, *y[1:]], y_database=y, exclude_self=True, k=10, knn=5)
    assert isinstance(report, Report)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["map"] == report.map
    assert values["recall"] == report.recall.tolist()
    text = str(report)
    for part in (
        f"MAP                    {report.map:.4f}", "precision@10 ", "precision-recall area", "5-NN error",
        "50 queries on 50 items; relevant: same class; ties: expected over their orders",
        "each query was left out of its own ranking", "1 query without a relevant item was left out",
    ):  # fmt: skip
        assert part in text


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 30), k=st.integers(1, 40), exclude_self=st.booleans(), seed=st.integers(0, 10**6))
def test_measures_per_class_and_ties_agree_with_the_definitions(n, k, exclude_self, seed):
    rng = np.random.default_rng(seed)
    database, y = random_codes(n, 4, seed), rng.integers(0, 3, n)
    y[0] = y[1]
    report = evaluate(database, database, y_queries=y, y_database=y, k=k, exclude_self=exclude_self)
    maps, tied = {}, []
    for q, (distances, marks, _) in enumerate(rankings(database, database, y[:, None] == y, exclude_self)):
        if any(marks):
            single = evaluate(database, database[[q]], y_queries=y[[q]], y_database=y) if not exclude_self else None
            maps.setdefault(int(y[q]), []).append(single.map if single else None)
            tied.append(distances.count(sorted(distances)[min(k, len(distances)) - 1]))
    assert report.classes.tolist() == sorted(maps)
    if not exclude_self:
        np.testing.assert_allclose(report.class_map, [np.mean(maps[label]) for label in sorted(maps)])
    assert report.macro_map == pytest.approx(report.class_map.mean())
    weights = [len(maps[label]) for label in sorted(maps)]
    assert report.map == pytest.approx(np.average(report.class_map, weights=weights))
    assert report.tied_at_k == pytest.approx(np.mean(tied))
    assert report.n_distinct == len({code.tobytes() for code in database})


def test_tags_have_no_measures_per_class():
    report = evaluate(CODES, CODES, y_queries=TAGS, y_database=TAGS)
    assert (report.classes, report.class_map, report.macro_map) == (None, None, None)
    assert json.loads(json.dumps(report.to_dict()))["macro_map"] is None
    assert "macro" not in str(report)


@pytest.mark.parametrize("n_bytes", [1, 8, 9])
def test_distinct_codes_are_counted(n_bytes):
    rng = np.random.default_rng(0)
    codes = np.zeros((300, n_bytes), np.uint8)
    codes[:, -1] = rng.integers(0, 7, 300)
    assert count_distinct(codes) == len({code.tobytes() for code in codes})
    assert count_distinct(codes[:0]) == 0


def test_a_collapsed_database_is_warned_about():
    codes = np.repeat(np.arange(2, dtype=np.uint8), 300)[:, None]
    report = evaluate(codes, codes[:1], y_queries=[0], y_database=np.arange(600) % 2, k=10)
    assert (report.n_distinct, report.tied_at_k) == (2, 300.0)
    assert "2 distinct codes; 300.0 items tie at rank 10 with the item there, on average" in str(report)
    assert "warning: the codes have collapsed: 600 items share 2 codes" in str(report)
    assert describe_codes(codes)[0] == "2 distinct codes among 600 items"
    codes = np.arange(200, dtype=np.uint8)[:, None]
    report = evaluate(codes, codes[:1], y_queries=[0], y_database=np.arange(200) % 2)
    assert report.warning is None
    assert "warning" not in str(report)


@pytest.mark.parametrize("ids", [range(10, 50), [f"item {i:03}" for i in np.random.default_rng(1).permutation(40)]])
def test_labels_by_id(ids):
    """Rows of labels come in any order, with labels of items that are not in the database among them."""
    codes, y = clustered(40)
    ids, more = list(ids), "none" if isinstance(ids, list) else 7
    order = np.argsort(ids)
    truth = evaluate(codes[order], codes[:5], y_queries=y[:5], y_database=y[order]).to_dict()
    index = FlatIndex(codes, ids=ids)
    by_id = {more: 99} | {item: int(label) for item, label in zip(ids, y, strict=True)}
    assert evaluate(index, codes[:5], y_queries=y[:5], y_database=by_id, knn=None).map == truth["map"]
    arrays = np.array([more, *ids]), np.array([99, *y])
    assert (
        evaluate(index, codes[:5], y_queries=y[:5], y_database=arrays[1], ids=arrays[0], knn=None).map == truth["map"]
    )
    tags = np.eye(4, dtype=int)[y] + np.eye(4, dtype=int)[3 - y]
    by_rows = evaluate(codes[order], codes[:5], y_queries=tags[:5], y_database=tags[order])
    for form in (tags, sparse.csr_array(tags)):
        assert evaluate(index, codes[:5], y_queries=tags[:5], y_database=form, ids=ids).map == by_rows.map


def test_labels_by_id_of_packed_codes_are_labels_by_row():
    codes, y = clustered(30)
    assert (
        evaluate(codes, codes[:3], y_queries=y[:3], y_database=dict(enumerate(y))).map
        == evaluate(codes, codes[:3], y_queries=y[:3], y_database=y).map
    )


@pytest.mark.parametrize(
    ("y_database", "ids", "message"),
    [
        ({0: 0, 1: 1}, None, "a label for every item .* Got none for the id 2 and 1 others"),
        ({0: 0}, [0], "must not be given together with a mapping"),
        ([0, 1, 0, 1], [0, 1, 2], "one id for each of the 4 rows of 'y_database'. Got 3 instead"),
        ([0, 1, 0, 1], [0, 1, 2, 2], "no duplicates"),
    ],
)
def test_wrong_labels_by_id_are_named(y_database, ids, message):
    with pytest.raises(ValueError, match=message):
        evaluate(CODES, CODES, y_queries=[0, 1, 0, 1], y_database=y_database, ids=ids)


CODES = np.arange(4, dtype=np.uint8)[:, None]
TAGS = np.ones((4, 3), int)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"queries": CODES.astype(int)},
            "'queries' parameter must be packed codes of dtype uint8.* Got int64",
        ),
        (
            {"queries": np.zeros((4, 2), np.uint8)},
            "'queries' parameter must have 1 bytes per code. Got 2 instead",
        ),
        ({"queries": CODES[:0], "y_queries": []}, "'queries' parameter must have at least one code"),
        (
            {"database": FlatIndex(), "y_database": []},
            "'database' parameter must have at least 1 codes. Got 0 instead",
        ),
        (
            {"y_queries": [0, 1, 2]},
            "'y_queries' parameter must have 4 rows, one for each of the query codes. Got 3",
        ),
        ({"y_database": [0] * 5}, "'y_database' parameter must have 4 rows, .* codes in the database. Got 5"),
        ({"y_queries": ["a", "b", "c", "d"]}, "labels of the same type as 'y_queries'. Got <U1 and int64 instead"),
        ({"y_queries": [0, 1, 2, np.nan]}, "'y_queries' parameter must have a label in every row"),
        ({"y_database": np.array(["a", None, "b", "c"])}, "'y_database' .* Got missing values instead"),
        (
            {"y_database": np.array(["a", 1, "b", "c"], object)},
            "labels that can be sorted together with those of 'y_queries'",
        ),
        ({"y_queries": TAGS}, r"1-D labels or 2-D tags, whichever 'y_queries' is. Got shapes \(4, 3\) and \(4,\)"),
        ({"y_queries": TAGS, "y_database": TAGS[:, :2]}, "3 columns, one per tag, as 'y_queries'. Got 2"),
        (
            {"y_queries": TAGS[:, :1], "y_database": TAGS[:, :1]},
            "min_shared=2 .* for class labels, pass a 1-D array",
        ),
        (
            {"y_queries": 2 * TAGS, "y_database": TAGS},
            "'y_queries' parameter must be a tag matrix of 0 and 1. Got 2",
        ),
        (
            {"y_queries": TAGS, "y_database": sparse.csr_array(-TAGS)},
            "'y_database' .* tag matrix of 0 and 1. Got -1",
        ),
        ({"y_queries": TAGS[None]}, r"1-D labels or a 2-D tag matrix. Got shape \(1, 4, 3\)"),
        ({"y_queries": [[1, 2], [1], [2], [3]]}, "'y_queries' parameter must be an array of labels or tags"),
        ({"y_queries": [7, 8, 9, 10]}, "give at least one query a relevant item .* Got 4 queries without any"),
        ({"ties": "random"}, r"'ties' parameter must be one of \['expected', 'id'\]. Got 'random'"),
        ({"k": 0}, "'k' parameter must be an integer of at least 1. Got 0"),
        ({"knn": 2.5}, "'knn' parameter must be an integer of at least 1 or None. Got 2.5"),
        ({"min_shared": 0}, "'min_shared' parameter must be an integer of at least 1. Got 0"),
        ({"exclude_self": 1}, "'exclude_self' parameter must be True or False. Got 1"),
        ({"n_jobs": 0}, "'n_jobs' parameter"),
        ({"depth": 0}, "'depth' parameter must be an integer of at least 1 or None. Got 0"),
        ({"normalise": "all"}, r"'normalise' parameter must be one of \['relevant', 'retrieved'\]. Got 'all'"),
        ({"protocol": "paper"}, "'protocol' parameter must be one of .* Got 'paper'"),
        ({"protocol": "fasthash-paper", "depth": 5}, "'protocol' parameter must be None if depth .* depth=5"),
        ({"database": CODES.astype(int)}, "'database' parameter must be packed codes of dtype uint8.* Got int64"),
        ({"database": CODES[:0], "y_database": []}, "'database' parameter must have at least 1 codes. Got 0"),
        (
            {"queries": CODES[:2], "y_queries": [0, 1], "exclude_self": True},
            "exclude_self=True. Got 2 queries and 4",
        ),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {
        "database": FlatIndex(CODES),
        "queries": CODES,
        "y_queries": [0, 1, 0, 1],
        "y_database": [0, 1, 0, 1],
    }
    evaluate(**arguments)
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments | change)


def test_a_large_group_of_ties_that_is_cut_off():
    """Item i of the group is relevant with probability r / n, and each before it with (r - 1) / (n - 1) then."""
    n, r, depth = 20_000, 6000, 10_000
    i = np.arange(1, depth + 1)
    expected = (r / n * (1 + (i - 1) * (r - 1) / (n - 1)) / i).sum() / r
    found = expected_average_precision(np.array([[n]]), np.array([[r]]), depth=depth)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("left_out", [0, 1, TILE - 1, TILE, TILE + 6, -1])
def test_an_item_that_is_left_out_is_not_counted_wherever_it_is(left_out):
    """The first and the last of a tile, with tags; compared with a plain count."""
    rng = np.random.default_rng(0)
    codes, tags = random_codes(TILE + 7, 16, 0), rng.random((TILE + 7, 3)) < 0.5
    relevance = Relevance.from_labels(tags[:1], tags, lengths=(1, len(tags)), min_shared=1)
    totals, relevant = np.empty((1, 17), np.int64), np.empty((1, 17), np.int64)
    columns = np.ascontiguousarray(as_words(codes).T)
    queries = as_words(codes[:1])
    arguments = relevance.columns, relevance.queries, 1, np.array([left_out])
    count_relevant(columns, queries, *arguments, totals, relevant)
    counted = np.arange(len(codes)) != left_out
    distances = hamming(codes[:1], codes)[0]
    shares = (tags & tags[0]).any(axis=1)
    assert totals[0].tolist() == np.bincount(distances[counted], minlength=17).tolist()
    assert relevant[0].tolist() == np.bincount(distances[counted & shares], minlength=17).tolist()


@pytest.mark.parametrize(("ties", "n"), [("expected", 9), ("id", 60)])
def test_tags_without_the_query_itself(ties, n):
    rng = np.random.default_rng(1)
    codes, tags = random_codes(n, 6, 2), rng.random((n, 4)) < 0.6
    relevant = (tags[:, None] & tags).sum(axis=2) >= 2
    report = evaluate(codes, codes, y_queries=tags, y_database=tags, k=5, ties=ties, exclude_self=True)
    expected = naive_report(codes, codes, relevant, 5, ties=ties, exclude_self=True)
    assert report.map == pytest.approx(expected[0])
