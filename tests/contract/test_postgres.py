"""PostgreSQL as an engine: what comes on top of the contract, which `test_index_contract` checks."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import numpy as np
import pg8000.dbapi
import pytest

import servers
from hashgrove import LSH, FlatIndex, reencode
from hashgrove.index import connect
from hashgrove.index.engines import EngineError
from index_writer import codes_of, content, killed
from indexes import at_once
from makers import random_codes


@pytest.fixture
def table():
    return f"t{uuid.uuid4().hex}"


@pytest.fixture
def url(table):
    return f"{servers.postgres()}?table={table}"


@pytest.fixture
def sql():
    """A function that runs a statement as any other program would, and returns the rows."""
    connection = pg8000.dbapi.connect(user="postgres", host="127.0.0.1", port=urlsplit(servers.postgres()).port)
    connection.autocommit = True

    def run(statement):
        cursor = connection.cursor()
        cursor.execute(statement)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]

    yield run
    connection.close()


def few_codes(n, seed=0):
    """Codes as a model gives them to items that it was trained on: ten different ones, and some neighbours."""
    rng = np.random.default_rng(seed)
    codes = random_codes(10, seed=seed)[rng.integers(0, 10, n)]
    codes[: n // 10, 0] ^= 1 << rng.integers(0, 8, n // 10).astype(np.uint8)
    return codes


def refused(url, match, **options):
    with pytest.raises(ValueError, match=match) as caught:
        connect(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_items_are_there_when_it_is_opened_again(url):
    with connect(url, n_bits=61, model="mine") as index:
        index.add(random_codes(50), ids=[f"é{i}" for i in range(50)], model="mine")
        expected = content(index)
    with pytest.raises(ValueError, match="must not be closed when it is used"):
        len(index)
    with connect(url, create=False) as again:
        assert (content(again), again.model, again.n_bytes) == (expected, "mine", 8)
    refused(url, "must be the model of the index, mine. Got other", model="other")
    refused(servers.postgres(), "must have items that hashgrove has stored", table="no_such_table", create=False)


def test_the_table_is_an_ordinary_one(url, table, sql):
    """Its types and the order of its bits are documented, and so is a filter by one's own tables."""
    with connect(url) as index:
        index.add(np.array([[7, 255], [0, 1]], np.uint8), ids=["b", "B"])
        assert sql(f"SELECT id FROM {table} WHERE code = X'07FF'") == [("b",)]
        columns = "SELECT format_type(atttypid, atttypmod), attcollation::regcollation::text FROM pg_attribute "
        assert sql(f"{columns} WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum") == [
            ("text", '"C"'),
            ("bigint", "-"),
            ("bit(16)", "-"),
        ]
        sql(f"CREATE TABLE photos_{table} AS SELECT id, id = 'B' AS is_large FROM {table}")
        large = [i for (i,) in sql(f"SELECT id FROM photos_{table} WHERE is_large")]
        assert index.search(np.array([[7, 255]], np.uint8), 9, allowed=large).ids.tolist() == [["B"]]
        sql(f"INSERT INTO {table} (id, code) VALUES ('of another program', X'0000')")
        assert index.search(np.zeros((1, 2), np.uint8), 1).ids.tolist() == [["of another program"]]
        assert sorted(index.ids.tolist()) == ["B", "b", "of another program"]


def test_texts_with_characters_that_mean_something_in_sql(url):
    ids = ["a'b", 'a"b', "a\\b", "{a,b}", "NULL", "%s", "?", "$1", ":x", " ", "\\N", "日本"]
    with connect(url) as index:
        index.add(random_codes(len(ids)), ids=ids)
        assert index.ids.tolist() == ids
        assert all(i in index for i in ids)
        for i, code in zip(ids, random_codes(len(ids)), strict=True):
            assert index.search(code[None], 9, allowed=[i]).ids.tolist() == [[i]]
        assert index.remove(ids) == len(ids)


def test_a_change_that_fails_half_way_changes_nothing(url, table, sql):
    with connect(url) as index:
        index.add(random_codes(3))
        sql(f"ALTER TABLE {table} ADD CHECK (id < 6)")
        before = content(index)
        with pytest.raises(EngineError, match=f"{table}_id_check") as caught:
            index.add(random_codes(5, seed=1), ids=[1, 2, 3, 4, 6], replace=True)
        assert str(caught.value).startswith("postgresql://postgres@127.0.0.1")
        assert "\n" not in str(caught.value)
        assert content(index) == before
        index.add(random_codes(1))
        assert len(index) == 4


def test_connections_see_and_respect_each_others_changes(url):
    with connect(url) as one, connect(url) as two:
        one.add(random_codes(10))
        assert len(two) == 10
        at_once(*[partial(index.add, random_codes(5)) for index in (one, two) * 3])
        assert one.ids.tolist() == two.ids.tolist() == list(range(40))


def test_processes_that_make_the_same_new_index_at_the_same_time(url):
    program = "import sys, numpy as np; from hashgrove.index import connect; " + (
        "connect(sys.argv[1], n_bits=8).add(np.zeros((3, 1), np.uint8))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, url]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    with connect(url) as index:
        assert index.ids.tolist() == list(range(9))


def test_what_has_returned_survives_the_end_of_a_writer(url):
    items, sizes, pauses = {}, [], random.Random(0)
    connect(url, n_bits=64).close()
    with connect(url) as index:
        for run in range(10):
            possible = killed(url, items, seed=run, n_done=pauses.randint(1, 4), seconds=pauses.uniform(0, 0.1))
            items = content(index)
            assert items in possible
            sizes.append(len(items))
    assert max(sizes) > 0


def test_what_has_returned_survives_the_end_of_the_server():
    server = servers.Server("postgres", "postgres that is killed")
    place = "postgresql://postgres@127.0.0.1:{}/postgres"
    index = connect(place.format(server.port), n_bits=64)
    for version in range(5):
        index.add(codes_of(range(100 * version, 100 * version + 100), version))
    index.remove(range(50))
    expected = content(index)
    server.kill()
    with pytest.raises(EngineError, match="network error"):
        len(index)
    with pytest.raises(EngineError, match="refused"):
        len(index)
    server.start()
    with connect(place.format(server.port), create=False) as again:
        assert content(again) == expected


@contextmanager
def counted(sql):
    """Connections that are made and closed inside are in the statistics afterwards: they are counted when they end."""

    def connections():
        return set(sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"))

    before = connections()
    yield
    made, limit = connections() - before, time.monotonic() + servers.PATIENCE  # others may be made all the time
    while connections() & made:
        assert time.monotonic() < limit, "a closed connection does not end"
        time.sleep(0.02)


@pytest.mark.parametrize("search", ["hnsw", "ivfflat"])
def test_an_approximate_index_is_used_only_where_it_is_asked_for(url, table, sql, search):
    codes, queries = few_codes(20_000), few_codes(20, seed=0)
    with connect(url) as index:
        index.add(codes)
    truth = FlatIndex(codes)

    def scans():
        sql("SELECT pg_stat_clear_snapshot()")
        return sql(
            f"SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE indexrelname = '{table}_{search}'"
        )

    with counted(sql), connect(url, search=search) as approximate:
        distances, ids = approximate.search(queries, 10)
        assert distances.shape == ids.shape == (20, 10)
        for q, (row, found) in enumerate(zip(distances, ids, strict=True)):
            assert row.tolist() == np.bitwise_count(codes[found] ^ queries[q]).sum(axis=1).tolist()
            assert len(set(found.tolist())) == 10
        assert approximate.search(queries[:2], 3, allowed=[5, 6, 7]).distances.shape == (2, 3)
        np.testing.assert_array_equal(
            approximate.search_radius(queries, 0).ids[3], truth.search_radius(queries, 0).ids[3]
        )
    used = scans()
    assert used[0][0] > 0
    with counted(sql), connect(url) as exact:
        for one, two in zip(exact.search(queries, 10), truth.search(queries, 10), strict=True):
            np.testing.assert_array_equal(one, two)
    assert scans() == used


def test_an_approximate_index_of_a_table_without_items_is_built_later(url, table, sql):
    def count():
        return sql(f"SELECT count(*) FROM pg_indexes WHERE indexname = '{table}_hnsw'")[0][0]

    with connect(url, n_bits=64, search="hnsw") as index:
        index.add(random_codes(20))
        assert (count(), index.search(random_codes(1), 1).ids.tolist()) == (0, [[0]])
    connect(url, search="hnsw").close()
    assert count() == 1


def test_what_is_not_hashgroves_is_refused(url, table, sql):
    sql(f"CREATE TABLE {table} (id bigint, name text)")
    refused(url, f"the table {table} must be new, or one that hashgrove has made")
    sql(f"DROP TABLE {table}")
    connect(url).close()
    sql(f"UPDATE hashgrove_tables SET format = 9 WHERE name = '{table}'")
    refused(url, f"the table {table} must have format 1. Got 9")


def test_wrong_urls_and_servers(monkeypatch):
    refused("postgresql://ann@:x/db", "must be postgresql://user@host:port/database")
    refused("postgresql://ann@host:0/db", "with a port from 1 to 65535. Got 'postgresql://ann@host:0/db'")
    refused("postgresql://host/db", "must name a user and a database")
    refused("postgresql://ann@host", "must name a user and a database")
    refused(f"{servers.postgres()}?search=fast", "'search' parameter must be one of .*'ivfflat'")
    refused(f"{servers.postgres()}?sslmode=require", "Server refuses SSL")
    refused(f"{servers.postgres()}x", 'database "postgresx" does not exist')
    unreachable = f"postgresql://ann:secret@127.0.0.1:{servers.free_port()}/db"
    assert "secret" not in refused(unreachable, "postgresql://ann@127.0.0.1:.*refused")


def test_the_password_may_come_from_the_environment(monkeypatch):
    given = {}

    def remember(**settings):
        given.update(settings)
        raise pg8000.dbapi.InterfaceError("enough")

    monkeypatch.setattr(pg8000.dbapi, "connect", remember)
    monkeypatch.setenv("PGPASSWORD", "from outside")
    address = servers.postgres().partition("@")[2]
    for account, password in (("ann", "from outside"), ("ann:a%40b", "a@b")):
        refused(f"postgresql://{account}@{address}", "enough")
        assert (given["user"], given["password"]) == ("ann", password)


def test_a_statement_that_takes_too_long_is_given_up(url, table, sql):
    """Here, because another connection holds the lock of the writers."""
    with connect(url, timeout=1) as index, connect(url) as other:
        index.add(random_codes(3))
        with other._exclusively():
            with pytest.raises(EngineError, match="statement timeout; 'timeout' is 1 seconds"):
                index.remove([0])
            assert len(index) == 3  # readers do not wait
        index.remove([0])
        assert len(index) == 2


@pytest.mark.parametrize("scheme", ["postgresql", "milvus"])
def test_a_server_that_never_answers_is_given_up(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"{scheme}://ann:SECRET@127.0.0.1:{silent.getsockname()[1]}/db"
        assert "SECRET" not in refused(place, rf"{scheme}://ann@127.0.0.1:\d+/db: ", connect_timeout=1)


def test_a_unix_socket_leads_to_the_same_items(url, table):
    local = f"{servers.postgres_socket()}?table={table}"
    with connect(url) as index, connect(local, timeout=30) as other:
        index.add(random_codes(20), ids=[f"item {number}" for number in range(20)])
        assert content(other) == content(index)
        other.remove(["item 3"])
        assert not index.contains(["item 3"]).any()
        assert other.place.endswith("data:" + local.partition("data:")[2].partition("?")[0])


def test_a_unix_socket_is_not_encrypted_and_may_be_missing(table, tmp_path):
    folder = str(tmp_path).replace("/", "%2F")
    with pytest.raises(EngineError, match="No such file"):
        connect(f"postgresql://ann@{folder}/db")
    with pytest.raises(ValueError, match="'sslmode' parameter must be left out for a Unix socket"):
        connect(f"postgresql://ann@{folder}/db?sslmode=require")


def test_reencoding_replaces_all_items_in_one_transaction(url, tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 8))
    old, new = LSH(16, random_state=0).fit(X), LSH(24, random_state=1).fit(X)
    new.save(tmp_path / "new.hashgrove")
    ids = [f"é{row}" for row in range(200, 0, -1)]
    with connect(url) as index:
        index.add(old.transform(X), ids=ids)
    assert reencode(url, tmp_path / "new.hashgrove", X=X, work=tmp_path / "work").n_items == 200
    with connect(url, create=False) as index:
        assert (index.model, index.ids.tolist()) == (new.digest, ids)
        np.testing.assert_array_equal(index.codes, new.transform(X))
