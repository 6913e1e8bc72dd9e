"""Re-ranking by features: against all distances of the candidates, and what an index keeps for it."""

from __future__ import annotations

import numpy as np
import pytest

import hashgrove
from hashgrove import LSH, FlatIndex, MultiIndex, ParameterError
from hashgrove import index as indexes
from hashgrove.index import BreakTies, Int8Rows, Rerank
from hashgrove.storage.modelfile import ModelFileError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 12)).astype(np.float32)
Q = RNG.normal(size=(70, 12)).astype(np.float32)
HASHER = LSH(8, random_state=0).fit(X)
CODES, QUERIES = HASHER.transform(X), HASHER.transform(Q)


def naive_rerank(index, rows, queries, features, k, *, metric, oversample, max_candidates):
    """By the definition: candidates with their ties, ordered by (distance of features, id); and all distances."""
    found, every = [], []
    for code, query in zip(queries, features, strict=True):
        near, ids = (part[0] for part in index.search(code[None], max(max_candidates, oversample * k)))
        last = near[min(oversample * k, len(near)) - 1]
        scored = []
        for distance, i in zip(near, ids.tolist(), strict=True):
            if distance <= last:
                row = rows[i].astype(float)
                cosine = 1 - row @ query / np.linalg.norm(row) / np.linalg.norm(query)
                scored.append((cosine if metric == "cosine" else np.linalg.norm(row - query), i))
        found.append([distance for distance, _ in sorted(scored)[:k]])
        every.append({i: distance for distance, i in scored})
    return found, every


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("k", "oversample", "max_candidates"), [(5, 4, 4096), (5, 1, 8), (100, 4, 1), (900, 1, 1)])
@pytest.mark.parametrize("make", [FlatIndex, MultiIndex])
def test_results_are_the_best_of_the_candidates(make, metric, k, oversample, max_candidates):
    index = make(CODES)
    options = {"metric": metric, "oversample": oversample, "max_candidates": max_candidates}
    distances, ids = index.search(QUERIES, k, rerank=Rerank(X, **options), features=Q)
    truth = naive_rerank(index, X, QUERIES, Q, k, **options)
    np.testing.assert_allclose(distances, truth[0], rtol=1e-4, atol=1e-5)
    for row, found, known in zip(distances, ids.tolist(), truth[1], strict=True):
        assert len(set(found)) == len(found)
        np.testing.assert_allclose(row, [known[i] for i in found], rtol=1e-4, atol=1e-5)
    assert distances.dtype == np.float32


def test_features_may_be_mapped_have_their_own_ids_or_one_byte(tmp_path):
    np.save(tmp_path / "X.npy", X)
    index = FlatIndex(CODES)
    truth = index.search(QUERIES, 5, rerank=Rerank(X), features=Q).ids
    order = RNG.permutation(400)
    for rerank in (Rerank(np.load(tmp_path / "X.npy", mmap_mode="r")), Rerank(X[order], ids=order)):
        np.testing.assert_array_equal(index.search(QUERIES, 5, rerank=rerank, features=Q).ids, truth)
    rounded = index.search(QUERIES, 5, rerank=Rerank(Int8Rows.of(X)), features=Q).ids
    assert np.mean([len(set(a) & set(b)) for a, b in zip(rounded.tolist(), truth.tolist(), strict=True)]) > 4.8
    names = [f"item {i}" for i in range(400)]
    named = FlatIndex(CODES, ids=names).search(QUERIES, 5, rerank=Rerank(X, ids=names), features=Q).ids
    assert named.shape == truth.shape
    allowed = np.arange(0, 400, 3)
    some = index.search(QUERIES, 5, rerank=Rerank(X), features=Q, allowed=allowed).ids
    assert np.isin(some, allowed).all()
    assert index.search(QUERIES[:0], 5, rerank=Rerank(X), features=Q[:0]).ids.shape == (0, 5)


@pytest.mark.parametrize("ids", [None, [f"é{i}" for i in range(400)], RNG.permutation(400)])
def test_an_index_keeps_features(tmp_path, ids):
    index = FlatIndex(CODES, ids=ids)
    assert index.features is None
    index.keep_features(X)
    truth = FlatIndex(CODES, ids=ids).search(QUERIES, 5, rerank=Rerank(Int8Rows.of(X), ids=index.ids), features=Q)
    np.testing.assert_array_equal(index.search(QUERIES, 5, rerank=Rerank(), features=Q).ids, truth.ids)
    index.save(tmp_path / "index")
    loaded = indexes.load_index(tmp_path / "index")
    np.testing.assert_array_equal(loaded.search(QUERIES, 5, rerank=Rerank(), features=Q).ids, truth.ids)
    np.testing.assert_allclose(loaded.features.of(index.ids[7:9]), X[7:9], atol=0.05)
    new = index.next_ids(1) if index.ids.dtype.kind == "i" else ["new"]
    with indexes.load_index(tmp_path / "index", writable=True) as writer:
        writer.add(QUERIES[:1], ids=new)
        with pytest.raises(ValueError, match="must have features of all items"):
            writer.search(QUERIES[:1], 3, rerank=Rerank(), features=Q[:1])
        writer.keep_features(Q[:1], ids=new)
        with pytest.raises(ValueError, match="must have ids of items of the index"):
            writer.keep_features(Q[:1], ids=[77_777] if index.ids.dtype.kind == "i" else ["other"])
    loaded = indexes.load_index(tmp_path / "index")
    assert loaded.search(QUERIES[:1], 3, rerank=Rerank(), features=Q[:1]).ids[0, 0] == new[0]
    assert loaded.features.ids.tolist() == loaded.ids.tolist()
    (path,) = (tmp_path / "index").glob("features-*.bin")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    damaged = indexes.load_index(tmp_path / "index")
    assert len(damaged.search(QUERIES, 3).ids) == len(QUERIES)  # which needs no features
    with pytest.raises(ModelFileError, match=r"features-\d+\.bin: damaged"):
        _ = damaged.features


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("make", [FlatIndex, MultiIndex])
def test_features_change_together_with_codes(tmp_path, make, writable):
    ids = RNG.permutation(400)
    make().save(tmp_path / "index")
    index = make.load(tmp_path / "index", writable=writable)
    index.add(CODES[:300], ids=ids[:300], features=X[:300])
    index.add(CODES[300:], ids=ids[300:], features=X[300:])

    def check(expected, index=index):
        assert index.features.ids.tolist() == ids[expected].tolist()
        np.testing.assert_allclose(index.features.of(ids[expected]), X[expected], atol=0.05)

    check(np.arange(400))
    index.update(CODES[5:9], ids=ids[5:9], features=X[5:9])
    check(np.arange(400))
    index.remove(ids[:4])
    check(np.arange(4, 400))
    index.add(CODES[:2], ids=ids[:2])  # of which the features are gone
    check(np.arange(4, 400))
    index.update(CODES[10:12], ids=ids[10:12])
    left = np.setdiff1d(np.arange(4, 400), [10, 11])
    check(left)
    index.compact()
    check(left)
    with pytest.raises(ParameterError, match=r"'features' parameter must have 12 columns.* Got 3 instead"):
        index.add(CODES[:1], ids=[1000], features=X[:1, :3])
    with pytest.raises(ParameterError, match="'features' parameter must have 1 rows, one per code"):
        index.add(CODES[:1], ids=[1000], features=X[:2])
    assert 1000 not in index
    index.close()
    index.save(tmp_path / "copy")
    check(left, make.load(tmp_path / "copy"))
    if writable:
        check(left, make.load(tmp_path / "index"))
    make(CODES[:3]).save(tmp_path / "copy")
    assert make.load(tmp_path / "copy").features is None
    assert not list((tmp_path / "copy").glob("features*"))


@pytest.mark.parametrize(
    ("rerank", "features", "message"),
    [
        (Rerank(), Q, "'X' parameter must be the features of the items if the index keeps none"),
        (Rerank(X), None, "'features' parameter must be the features of the queries"),
        (Rerank(X), Q[:3], r"must have shape \(70, 12\).* Got \(3, 12\) instead"),
        (Rerank(X), Q[:, :5], r"Got \(70, 5\) instead"),
        (Rerank(X[:10]), Q, "must have features of all items. Got none for the id"),
        (Rerank(X[:, 0]), Q, "must be a matrix of numbers"),
        (Rerank(X, ids=[1] * 400), Q, "no duplicates"),
        (Rerank(X, ids=[1]), Q, "one id per code"),
        (Rerank(X, metric="dot"), Q, r"one of \['cosine', 'euclidean'\]. Got 'dot'"),
        (Rerank(X, oversample=0), Q, "'oversample' parameter must be an integer of at least 1"),
    ],
)
def test_wrong_arguments_are_named(rerank, features, message):
    with pytest.raises(ValueError, match=message):
        FlatIndex(CODES).search(QUERIES, 5, rerank=rerank, features=features)


def test_rows_of_zeros_have_no_direction():
    zeros = np.zeros((2, 3))
    assert Int8Rows.of(zeros)[[0, 1]].tolist() == zeros.tolist()
    distances, _ = FlatIndex(np.zeros((2, 1), np.uint8)).search(
        np.zeros((1, 1), np.uint8), 2, rerank=Rerank(zeros), features=[[1, 0, 0]]
    )
    assert distances.tolist() == [[1.0, 1.0]]


def test_codes_of_another_model_are_refused(tmp_path):
    other = LSH(8, random_state=1).fit(X)
    index = FlatIndex(CODES, model=HASHER)
    index.add(CODES[:1], model=HASHER.encoder_)
    for call in (lambda: index.search(QUERIES, 1, model=other), lambda: index.add(QUERIES, model=other)):
        with pytest.raises(ValueError, match="codes of different models cannot be compared"):
            call()
    HASHER.save(tmp_path / "model")
    assert hashgrove.load(tmp_path / "model").digest == HASHER.digest == index.model != other.digest
    index.save(tmp_path / "index")
    assert indexes.load_index(tmp_path / "index").model == HASHER.digest


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # an overflow is what this is about
def test_ties_stay_ties_where_scores_are_not_finite():
    X = np.random.default_rng(0).normal(size=(20, 4))
    hasher = LSH(16, random_state=0).fit(X)
    index, query = FlatIndex(hasher.transform(X)), np.array([[1e308, 1e308, -1e308, 1e308]])
    assert not np.isfinite(hasher.decision_function(query)).all()
    codes = hasher.transform(query)
    found = index.search(codes, 5, rerank=BreakTies(hasher), features=query)
    for one, other in zip(found, index.search(codes, 5), strict=True):
        np.testing.assert_array_equal(one, other)
