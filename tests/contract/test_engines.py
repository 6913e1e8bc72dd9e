"""Engines that need no server: what comes on top of the contract, which `test_index_contract` checks.

Opening again, other processes, a kill in the middle of a change, files of other programs, and wrong URLs.
"""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from functools import partial
from urllib.parse import urlsplit

import numpy as np
import pytest

from command import call
from hashgrove import FlatIndex
from hashgrove.codes import MAX_BITS
from hashgrove.index import connect
from hashgrove.index.engines import ENGINES, EngineError, faiss_file, opening
from hashgrove.index.engines.server import Server
from hashgrove.runtime.credentials import hide_credentials
from hashgrove.web.opening import open_index
from index_writer import content, killed
from indexes import at_once
from makers import random_codes

LOCAL = {name: f"{name}:///codes.{name}" for name in ("sqlite", "duckdb", "lance", "faiss")}
every_engine = pytest.mark.parametrize("url", LOCAL.values(), ids=LOCAL)
with_tables = pytest.mark.parametrize("url", [LOCAL[name] for name in ("sqlite", "duckdb", "lance")])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A new folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(url, match, **options):
    with pytest.raises(ValueError, match=match) as caught:
        connect(url, **options)
    assert "\n" not in str(caught.value)


@every_engine
@pytest.mark.parametrize("ids", [range(7, 57), [f"é{i}" for i in range(50)]], ids=["integers", "texts"])
def test_items_are_there_when_it_is_opened_again(url, ids):
    ids = random.Random(0).sample(list(ids), 50)
    with connect(url, n_bits=61, model="mine") as index:
        index.add(random_codes(50), ids=ids, model="mine")
        assert index.ids.tolist() == ids
        expected = content(index)
    with pytest.raises(ValueError, match="must not be closed when it is used"):
        len(index)
    with connect(url, create=False) as again:
        assert (content(again), again.model, again.n_bytes) == (expected, "mine", 8)
        again.remove(ids[:3])
        again.update(random_codes(2, seed=1), ids=[ids[20], ids[10]], model="mine")
    with connect(url, model="mine", n_bits=64) as third:
        assert third.ids.tolist() == ids[3:]
        third.add(random_codes(3, seed=2), ids=ids[2::-1], model="mine")
        assert third.ids.tolist() == ids[3:] + ids[2::-1]
    refused(url, "must be the model of the index, mine. Got other", model="other")
    refused(url, "'n_bits' parameter must be that of the items .* 8 bytes per code. Got 65", n_bits=65)


@every_engine
def test_an_index_without_items_may_still_become_one_of_some_model_and_length(url):
    connect(url).close()
    refused(url, "must have items that hashgrove has stored", create=False)
    connect(url, n_bits=16).close()
    connect(url, model="mine").close()
    with connect(url) as index:
        assert (index.n_bytes, index.model, len(index)) == (2, "mine", 0)
    refused(url, "'n_bits' parameter", n_bits=8)
    refused(url, "'n_bits' parameter must be an integer from 1 to 65528", n_bits=0)


@every_engine
def test_a_model_is_refused_if_the_items_were_stored_without_one(url):
    with connect(url) as index:
        index.add(random_codes(2))
    refused(url, "stored without a model, so 'model' must be left out", model="mine")


@every_engine
def test_another_process_sees_the_items(url):
    with connect(url) as index:
        index.add(random_codes(20), ids=[f"item {i}" for i in range(20)])
        expected = index.search(random_codes(1, seed=1), 5)
    program = (
        "import json, sys, numpy as np; from hashgrove.index import connect; "
        "index = connect(sys.argv[1]); found = index.search(np.array([json.loads(sys.argv[2])], np.uint8), 5); "
        "print(json.dumps([part.tolist() for part in found])); index.remove(['item 3'])"
    )
    query = json.dumps(random_codes(1, seed=1)[0].tolist())
    output = subprocess.run([sys.executable, "-c", program, url, query], capture_output=True, text=True, check=True)
    assert json.loads(output.stdout) == [part.tolist() for part in expected]
    with connect(url) as index:
        assert (len(index), "item 3" in index) == (19, False)


@pytest.mark.parametrize("url", [LOCAL[name] for name in ("sqlite", "lance", "faiss")])
def test_two_connections_see_and_respect_each_others_changes(url):
    with connect(url) as one, connect(url) as two:
        one.add(random_codes(10))
        assert len(two) == 10
        at_once(*[partial(index.add, random_codes(5)) for index in (one, two) * 3])
        assert one.ids.tolist() == two.ids.tolist() == list(range(40))


@every_engine
def test_what_has_returned_survives_a_kill(url):
    items, sizes, pauses = {}, [], random.Random(0)
    connect(url, n_bits=64).close()
    for run in range(5):
        possible = killed(url, items, seed=run, n_done=pauses.randint(1, 4), seconds=pauses.uniform(0, 0.1))
        with connect(url) as index:
            found = content(index)
        assert found in possible
        items, sizes = found, [*sizes, len(found)]
    assert max(sizes) > 0


@every_engine
@pytest.mark.parametrize("what", ["text", "damaged"])
def test_a_file_of_another_program_or_a_damaged_one_is_refused_in_one_line(folder, url, what):
    path = folder / url.rpartition("/")[2]
    if what == "text":
        path.write_text("This is no database.\n" * 1000)
    else:
        with connect(url) as index:
            index.add(random_codes(3000))
        for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file() and p.stat().st_size]:
            content_of = bytearray(file.read_bytes())
            content_of[: len(content_of) // 2] = bytes(len(content_of) // 2)
            file.write_bytes(content_of)
    with pytest.raises((EngineError, OSError)) as caught, connect(url) as index:
        index.search(random_codes(1), 3)
    assert str(caught.value).startswith(f"{url}: ")
    assert "\n" not in str(caught.value)


def test_wrong_urls_and_options():
    refused("codes.db", "must begin with one of sqlite://, duckdb://, .*Got 'codes.db' instead")
    refused("sqlite://codes.db", "must be sqlite:///relative/path or sqlite:////absolute/path. Got 'sqlite://codes.db'")
    refused("sqlite:///", "must be sqlite:///relative/path")
    refused("sqlite:///a%00b", "must be sqlite:///relative/path")
    refused("sqlite:///a.db?tabel=x", r"'option' parameter must be one of \['table'\]. Got 'tabel' instead")
    refused("sqlite:///a.db?table=a;b", "'table' parameter must be a name of 1 to 50 small letters")
    refused("sqlite:///a.db", "'table' parameter must be a name", table="hashgrove_tables")
    refused("faiss:///a.faiss?search=best", r"'search' parameter must be one of \['flat', 'ivf', 'hash'\]")
    refused("faiss:///a.faiss?probes=many", "'probes' parameter must be an integer from 1 to 65536. Got 'many'")
    refused("sqlite:///no/folder/a.db", "sqlite:///no/folder/a.db: .*unable to open")
    refused("sqlite:///a.db", "'create' parameter must be True or False", create=1)
    refused(None, "'url' parameter must be text")


@every_engine
def test_nothing_is_made_where_nothing_should_be(folder, url):
    refused(url, "no such file or folder", create=False)
    assert list(folder.iterdir()) == []


@every_engine
def test_a_missing_package_is_an_error_that_names_the_extra(url, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(opening.importlib, "import_module", missing)
    extra = ENGINES[url.partition(":")[0]].extra
    refused(url, rf"this engine needs \w+: pip install 'hashgrove\[{extra}\]'")


@every_engine
def test_a_connection_cannot_be_copied(url):
    with connect(url) as index, pytest.raises(TypeError, match="connect there"):
        copy.copy(index)


@with_tables
def test_several_tables_in_one_place(url):
    with connect(f"{url}?table=one") as one, connect(url, table="two") as two:
        one.add(random_codes(3))
        two.add(random_codes(4, 16), ids=["a", "b", "c", "d"])
        assert (len(one), len(two)) == (3, 4)
    with connect(url, table="one") as one:
        assert one.ids.tolist() == [0, 1, 2]


def test_the_tables_of_users_are_left_alone_and_can_be_joined():
    import apsw

    user = apsw.Connection("codes.sqlite")
    user.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, year INTEGER)")
    user.executemany("INSERT INTO photos VALUES (?, ?)", [(i, 2000 + i % 3) for i in range(30)])
    with pytest.raises(EngineError, match="the table photos must be new, or one that hashgrove has made"):
        connect("sqlite:///codes.sqlite", table="photos")
    with connect("sqlite:///codes.sqlite") as index:
        index.add(random_codes(30))
        chosen = [i for (i,) in user.execute("SELECT id FROM photos WHERE year = 2001")]
        found = index.search(random_codes(1, seed=1), 5, allowed=chosen)
    expected = FlatIndex(random_codes(30)[1::3], ids=chosen).search(random_codes(1, seed=1), 5)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    joined = "SELECT count(*) FROM photos JOIN hashgrove_codes USING (id) WHERE length(code) = 8"
    assert user.execute(joined).fetchall() == [(30,)]


def test_faiss_reads_what_is_written_and_the_other_way_round():
    import faiss

    codes, ids = random_codes(200), np.random.default_rng(0).permutation(1000)[:200]
    expected = FlatIndex(codes).search(codes[:9], 200)  # faiss orders ties by row
    with connect("faiss:///ours.faiss") as index:
        index.add(codes, ids=ids)
    theirs = faiss.read_index_binary("ours.faiss")
    distances, found = theirs.search(codes[:9], 200)
    assert (distances.tolist(), found.tolist()) == (expected.distances.tolist(), ids[expected.ids].tolist())
    flat = faiss.IndexBinaryFlat(64)
    flat.add(codes)
    with_ids = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(64))
    with_ids.add_with_ids(codes, ids)
    for written, numbers in ((flat, np.arange(200)), (with_ids, ids)):
        faiss.write_index_binary(written, "theirs.faiss")
        with connect("faiss:///theirs.faiss", n_bits=64) as index:
            assert content(index) == content(FlatIndex(codes, ids=numbers))
            index.remove(numbers[:100])
        with connect("faiss:///theirs.faiss") as index:
            assert len(index) == 100
    faiss.write_index_binary(faiss.IndexBinaryHNSW(64), "graph.faiss")
    refused("faiss:///graph.faiss", "must be a file of a flat binary index of faiss. Got an index of kind b'IBHf'")


@pytest.mark.parametrize("place", [*range(0, 60, 3), -1, -20, -34, -60])
def test_a_file_of_faiss_with_one_wrong_byte_is_refused_or_read_as_it_is(folder, place):
    """Sizes in a file are never believed: what they promise must be there."""
    with connect("faiss:///codes.faiss") as index:
        index.add(random_codes(5), ids=list("abcde"))
    content_of = bytearray((folder / "codes.faiss").read_bytes())
    for value in (content_of[place] ^ 255, content_of[place] ^ 1):
        wrong = content_of.copy()
        wrong[place] = value
        (folder / "wrong.faiss").write_bytes(wrong)
        with pytest.raises(EngineError, match="must be a file of a flat binary index of faiss"):
            faiss_file.read("wrong.faiss")
    for length in range(0, len(content_of), 7):
        (folder / "wrong.faiss").write_bytes(content_of[:length])
        with pytest.raises(EngineError, match="must be a file of a flat binary index of faiss"):
            faiss_file.read("wrong.faiss")


@pytest.mark.parametrize("options", [{"search": "ivf", "probes": 4}, {"search": "hash", "probes": 3}])
def test_approximate_search_of_faiss_finds_real_items_and_never_pads(options):
    codes, queries = random_codes(3000, 32), random_codes(40, 32, seed=1)
    exact = FlatIndex(codes)
    with connect("faiss:///codes.faiss", **options) as index:
        index.add(codes)
        for k in (5, 3000):
            distances, ids = index.search(queries, k)
            assert distances.shape == ids.shape == (40, k)
            assert all(len(set(row)) == k for row in ids.tolist())
            np.testing.assert_array_equal(np.unpackbits(codes[ids] ^ queries[:, None], axis=2).sum(axis=2), distances)
        recall = np.mean(
            [
                len(set(a) & set(b)) / 5
                for a, b in zip(index.search(queries, 5).ids, exact.search(queries, 5).ids, strict=True)
            ]
        )
        assert 0.05 < recall < 1
        within = index.search_radius(queries, 6), exact.search_radius(queries, 6)  # this stays exact
        assert [part.tolist() for part in within[0].ids] == [part.tolist() for part in within[1].ids]
        only = index.search(queries, 5, allowed=np.arange(50)), FlatIndex(codes[:50]).search(queries, 5)
        np.testing.assert_array_equal(only[0].ids, only[1].ids)


@every_engine
def test_the_longest_codes(url):
    codes = np.random.default_rng(0).integers(0, 256, (20, MAX_BITS // 8), dtype=np.uint8)
    with connect(url) as index:
        index.add(codes)
        for found, expected in zip(index.search(codes[:3], 5), FlatIndex(codes).search(codes[:3], 5), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://ann:SECRET@db/x",  # no such scheme
        "postgresql://ann:SECRET@db:0/x",
        "postgresql://ann:SEC/RET@db/x",  # what should be percent-encoded is not
        "postgresql://ann:S?ECRET@db/x",
        "postgresql://ann:S#ECRET@db/x",
        "postgresql://ann:[SECRET@db/x",
        "postgresql://ann:SECRET\u2100@db/x",
        "postgresql://ann:SEC RET@db/x",
        "postgresql://ann:SECRET@127.0.0.1:1/x?password=SECRET",
        "postgresql://ann:SECRET@127.0.0.1:1/x",
        "milvus://ann:SECRET@127.0.0.1:1/x?connect_timeout=1",
        *(f"{scheme}://ann:SECRET@db/x" for scheme in LOCAL),
    ],
)
def test_no_error_shows_a_password(url, capsys):
    with pytest.raises(ValueError, match=r"://ann@|'password'") as caught:
        connect(url)
    shown = [str(caught.value), repr(caught.value)]
    for arguments in (("serve", url), ("push", url, "--to", url), ("search", url, url), ("pull", url, "-o", "x.npy")):
        shown.append(call(capsys, *arguments)[2])
        assert shown[-1].startswith("Error: ")
    assert not [text for text in shown if "RET" in text]


def test_a_server_that_is_shown_has_no_password():
    server = Server.of(urlsplit("milvus://ann:SECRET@db.example/x"), port=1, secret="NONE")
    assert server.password == "SECRET"
    assert "SECRET" not in repr(server)
    with connect("sqlite:///codes.db?table=photos") as index:
        index.add(random_codes(3))
    with open_index("sqlite:///codes.db?table=photos").index as index:
        assert index.place == "sqlite:///codes.db"
    assert hide_credentials("no URL: a@b, c:d@e") == "no URL: a@b, c:d@e"
