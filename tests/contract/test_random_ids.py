"""Ids in random order and two models, through the commands and the endpoints, in a folder and in two engines.

Every answer is compared with what the rows themselves say: which row an id belongs to, and what its label is.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call, fails
from hashgrove import FastHash, FlatIndex, connect, hamming, load_index
from hashgrove.web.details import Details
from hashgrove.web.opening import open_index
from web_service import error_of, served

N, N_QUERIES, K = 150, 12, 7
PLACES = ("there.hgi", "sqlite:///there.db", "duckdb:///there.duckdb")
DIGITS = load_digits()
RNG = np.random.default_rng(5)
IDS = {"integers": RNG.permutation(10 * N)[:N], "texts": np.array([f"item {i:x}" for i in RNG.permutation(10 * N)[:N]])}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of the same rows, in files, and the codes of the first."""
    folder = tmp_path_factory.mktemp("models")
    X, y = DIGITS.data[500:800], DIGITS.target[500:800]
    made = [FastHash(24, hash_function="posterior", random_state=seed).fit(X, y) for seed in (0, 1)]
    for name, hasher in zip(("one", "two"), made, strict=True):
        hasher.save(folder / f"{name}.hashgrove")
    return folder, made[0]


@pytest.fixture(params=[(place, kind) for place in PLACES for kind in IDS], ids=lambda given: f"{given[0]}-{given[1]}")
def case(request, tmp_path, monkeypatch, capsys, models):
    """The place of an index or engine that has the items, the ids of its rows, and the codes of rows and queries."""
    place, kind = request.param
    if place.startswith("duckdb"):
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    folder, hasher = models
    np.save("X.npy", DIGITS.data[:N])
    np.save("Q.npy", DIGITS.data[N : N + N_QUERIES])
    np.save("y.npy", DIGITS.target[:N])
    np.save("yq.npy", DIGITS.target[N : N + N_QUERIES])
    (tmp_path / "ids.txt").write_text("".join(f"{i}\n" for i in IDS[kind].tolist()))
    one = str(folder / "one.hashgrove")
    if place.endswith(".hgi"):
        assert call(capsys, "index", "build", "X.npy", "--model", one, "--ids", "ids.txt", "-o", place)[0] == 0
    else:
        assert call(capsys, "push", "X.npy", "--model", one, "--ids", "ids.txt", "--to", place)[0] == 0
    is_text = kind == "texts" or place.endswith(".hgi")  # of files, an index takes ids as texts and an engine integers
    ids = IDS[kind].astype(str) if is_text else IDS[kind]
    return place, ids, hasher.transform(DIGITS.data[:N]), hasher.transform(DIGITS.data[N : N + N_QUERIES]), folder


def naive(codes, queries, ids, k):
    """Ids of the k nearest rows, sorted by distance and then by id."""
    return [
        [ids[row] for row in sorted(range(len(ids)), key=lambda row: (distances[row], ids[row]))[:k]]
        for distances in hamming(np.asarray(queries), np.asarray(codes)).tolist()
    ]


def done(capsys, *arguments):
    status, out, err = call(capsys, *arguments)
    assert status == 0, err
    return out


def test_search_evaluate_and_info(case, capsys):
    place, ids, codes, queries, folder = case
    one, two = (str(folder / f"{name}.hashgrove") for name in ("one", "two"))
    found = json.loads(done(capsys, "search", place, "Q.npy", "--model", one, "--plain", "-k", str(K), "--json"))
    assert [hit["ids"] for hit in found] == naive(codes, queries, ids.tolist(), K)
    labels = ("--y-database", "y.npy", "--y-queries", "yq.npy", "--json")
    np.save("codes.npy", codes)
    expected = json.loads(done(capsys, "evaluate", "codes.npy", "Q.npy", "--model", one, *labels))["map"]
    assert json.loads(done(capsys, "evaluate", place, "Q.npy", "--model", one, *labels))["map"] == expected
    info = json.loads(done(capsys, "info", place, "--json"))
    assert (info["items"], info["ids"]) == (N, {"U": "texts", "i": "integers"}[ids.dtype.kind])
    fails(capsys, "search", place, "Q.npy", "--model", two, code=1, match="different models")
    fails(capsys, "evaluate", place, "Q.npy", "--model", two, *labels, code=1, match="different models")


def test_push_pull_add_and_remove(case, capsys, tmp_path):
    place, ids, codes, _, folder = case
    one, two = (str(folder / f"{name}.hashgrove") for name in ("one", "two"))
    if place.endswith(".hgi"):
        done(capsys, "push", place, "--to", "sqlite:///copy.db")
        source = "sqlite:///copy.db"
        np.save("more.npy", DIGITS.data[N : N + 2])
        (tmp_path / "more.txt").write_text("zz\naa\n")
        fails(capsys, "index", "add", place, "more.npy", "--ids", "more.txt", "--model", two, code=1, match="model")
        fails(capsys, "index", "add", place, "X.npy", "--ids", "ids.txt", code=1, match="already|--replace")
        done(capsys, "index", "add", place, "more.npy", "--ids", "more.txt")
        done(capsys, "index", "remove", place, str(ids[3]), "aa")
        with load_index(place) as index:
            assert index.ids.tolist() == [*np.delete(ids, 3).tolist(), "zz"]
            np.testing.assert_array_equal(index.codes[:-1], np.delete(codes, 3, axis=0))
    else:
        source = place
        fails(capsys, "push", "X.npy", "--model", two, "--ids", "ids.txt", "--to", place, code=1, match="model")
    done(capsys, "pull", source, "-o", "back.hgi")
    with load_index("back.hgi") as back, connect(source, create=False) as engine:
        assert back.model == engine.model == codes.model
        for index in (back, engine):
            there, of_them = index.items()
            assert there.astype(str).tolist() == ids.astype(str).tolist()
            np.testing.assert_array_equal(of_them, codes)
    np.save("swapped.npy", np.asarray(codes)[::-1])  # other codes for nearly all ids
    again = ("push", "swapped.npy", "--model", one, "--ids", "ids.txt", "--to", source)
    fails(capsys, *again, code=1, match="with other codes.*--replace")
    with connect(source, create=False) as engine:
        np.testing.assert_array_equal(engine.codes, codes)
    done(capsys, *again, "--replace")
    with connect(source, create=False) as engine:
        found = dict(zip(engine.ids.astype(str).tolist(), map(bytes, engine.codes), strict=True))
    assert found == dict(zip(ids.astype(str).tolist(), map(bytes, np.asarray(codes)[::-1]), strict=True))


def test_the_endpoints(case):
    place, ids, codes, queries, folder = case
    y = DIGITS.target[:N].astype(str)
    opened = open_index(place, model=str(folder / "one.hashgrove"))
    collection = replace(opened, details=Details(opened.contents()[0], labels=y))
    texts, rows = ids.astype(str).tolist(), DIGITS.data[N : N + N_QUERIES].tolist()
    of = dict(zip(texts, y.tolist(), strict=True))
    with served(collection) as client:

        def hits(**asked):
            answer = client.post("/search", json=asked | {"plain": True, "k": K})
            assert answer.status_code == 200, answer.text
            return [[(hit["id"], hit["label"]) for hit in found] for found in answer.json()["results"]]

        expected = [[(str(i), of[str(i)]) for i in found] for found in naive(codes, queries, ids.tolist(), K)]
        assert hits(features=rows) == expected
        digits = [bytes(code).hex() for code in queries]
        assert hits(codes=digits, model=codes.model) == expected
        assert error_of(client.post("/search", json={"codes": digits, "model": "0" * 64}), 422)["field"] == "model"
        own = naive(codes, codes[5:6], ids.tolist(), K)[0]
        assert [i for i, _ in hits(id=texts[5])[0]] == list(map(str, own))
        threes = [row for row in range(N) if y[row] == "3"]
        nearest = naive(codes[threes], queries[:1], ids[threes].tolist(), K)[0]
        assert hits(features=rows[:1], label="3") == [[(str(i), "3") for i in nearest]]
        allowed = naive(codes[::9], queries[:1], ids[::9].tolist(), K)[0]
        assert [i for i, _ in hits(features=rows[:1], allowed=ids[::9].tolist())[0]] == list(map(str, allowed))
        page = client.get("/items", params={"limit": N}).json()["items"]
        assert [(item["id"], item["label"]) for item in page] == list(of.items())
        for row in (0, N - 1):
            assert client.get(f"/items/{texts[row]}").json()["code"] == bytes(codes[row]).hex()
        while (report := client.get("/report").json())["status"] == "running":
            pass
        from hashgrove import evaluate

        whole = evaluate(codes, codes, y_queries=y, y_database=y, k=100, exclude_self=True, knn=None)
        assert report["report"]["map"] == pytest.approx(whole.map, abs=1e-4)
        assert client.delete(f"/items/{texts[0]}").json()["items"] == N - 1
        assert [i for i, _ in hits(codes=[bytes(codes[0]).hex()], model=codes.model)[0]] == [
            str(i) for i in naive(codes[1:], codes[:1], ids[1:].tolist(), K)[0]
        ]
        assert FlatIndex(codes[1:], ids=ids[1:]).ids.tolist() == collection.index.ids.tolist()
