"""Tables with ids, labels that are missing, timestamps, and vectors in a list column or in many columns."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call, fails
from hashgrove import ITQ, FastHash, connect, from_table, load, load_index, to_table
from hashgrove.storage.columns import Columns, read_rows
from hashgrove.storage.formats import FileError

pa = pytest.importorskip("pyarrow")
DIGITS = load_digits()
N = 200
X = DIGITS.data[:N].astype(np.float32)
IDS = [f"photo {i}" for i in np.random.default_rng(0).permutation(N)]
LABELS = [None if row % 5 == 0 else f"digit {y}" for row, y in enumerate(DIGITS.target[:N])]
DAYS = [datetime.datetime(2026, 1, 1) + datetime.timedelta(days=row) for row in range(N)]
OPTIONS = ("--id-column", "key", "--label-column", "kind", "--feature-columns")
FEATURES = {"list": "vector", "columns": "x*"}


def arrow(shape):
    """A table with the features in one list column, or in many columns; other columns are between them."""
    start = {"taken": DAYS, "key": IDS}
    vectors = {"vector": pa.array(X.tolist(), pa.list_(pa.float32()))}
    columns = {f"x{place}": X[:, place] for place in range(X.shape[1])}
    return pa.table(start | (vectors if shape == "list" else columns) | {"kind": LABELS, "rating": np.arange(N)})


def write(table, path):
    if path.endswith(".csv"):
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        from pyarrow import parquet

        parquet.write_table(table, path)


@pytest.fixture(params=["list.parquet", "columns.parquet", "columns.csv"])
def file(request, tmp_path, monkeypatch):
    """A file in the current folder, and the names of its columns of features."""
    monkeypatch.chdir(tmp_path)
    shape = request.param.split(".")[0]
    write(arrow(shape), request.param)
    return request.param, FEATURES[shape]


def done(capsys, *arguments):
    status, out, err = call(capsys, *arguments)
    assert status == 0, err
    return out


def test_read_rows(file):
    name, features = file
    rows = read_rows(name, Columns("kind", "key", (features,)))
    np.testing.assert_array_equal(rows.X, X)
    assert rows.labels.tolist() == LABELS
    assert rows.ids.tolist() == IDS


def test_the_commands(file, capsys, tmp_path):
    """Train, encode, index, push and search from one table give what arrays give."""
    name, features = file
    how = (*OPTIONS, features)
    common = ("--bits", "16", "--hash-function", "posterior", "--seed", "0", "--quiet")
    done(capsys, "train", name, *how, "-o", "m.hashgrove", *common)
    expected = FastHash(16, hash_function="posterior", random_state=0).fit(
        read_rows(name, Columns("kind", "key", (features,))).X, LABELS
    )
    assert load("m.hashgrove").digest == expected.digest
    codes = expected.transform(X)

    done(capsys, "encode", "m.hashgrove", name, *how, "-o", "codes.npy")
    np.testing.assert_array_equal(np.load("codes.npy"), codes)
    assert (tmp_path / "codes.names.txt").read_text().splitlines() == IDS

    done(capsys, "index", "build", name, "--model", "m.hashgrove", *how, "-o", "t.hgi")
    with load_index("t.hgi") as index:
        assert index.ids.tolist() == IDS
        np.testing.assert_array_equal(index.codes, codes)
        np.testing.assert_allclose(index.features.of(IDS), X, atol=0.1)
    fails(capsys, "index", "add", "t.hgi", name, *how, code=1, match="already in it; use --replace")
    done(capsys, "index", "add", "t.hgi", name, *how, "--replace")

    done(capsys, "push", name, "--model", "m.hashgrove", *how, "--to", "sqlite:///t.db")
    with connect("sqlite:///t.db", create=False) as engine:
        assert engine.ids.tolist() == IDS

    found = json.loads(done(capsys, "search", "t.hgi", name, *how, "-k", "1", "--json"))
    assert [hit["ids"] for hit in found] == [[key] for key in IDS]


WRONG = {
    "train t.parquet --label-column kind -o m": r"column 'taken' must hold numbers or text. Got timestamp.*--feature-c",
    "train t.parquet --label-column kind --feature-columns nothing -o m": r"have a column 'nothing' .* \[taken, key",
    "train t.parquet --label-column none --feature-columns x* -o m": "column must be one of",
    "train t.parquet --label-column kind --feature-columns key,x1 -o m": "Got text in 'key'",
    "train X.npy --label-column kind --feature-columns x* -o m": r"X.npy: columns can be named for .csv and .parquet",
    "push t.parquet --id-column key --to sqlite:///t.db": "must be features if columns are named. Give --model",
    "index build t.parquet --id-column key --ids i.txt --model m -o t": "Give --ids or --id-column",
}


@pytest.mark.parametrize("command", WRONG)
def test_errors(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write(arrow("columns"), "t.parquet")
    np.save("X.npy", X)
    fails(capsys, *command.split(), code=1, match=WRONG[command])


def test_ids_may_not_be_missing(tmp_path):
    (tmp_path / "t.csv").write_text("key,a,b\n1,2,3\n,4,5\n")
    with pytest.raises(FileError, match="must have an id in every row of column 'key'"):
        read_rows(tmp_path / "t.csv", Columns(id="key"))
    (tmp_path / "t.csv").write_text("key,a,b,c\n7,2,3,0\n3,4,5,\n")
    rows = read_rows(tmp_path / "t.csv", Columns(id="key", label="c"))
    assert (rows.ids.dtype, rows.ids.tolist(), rows.labels.tolist()) == (np.int64, [7, 3], [0, None])


def test_ids_keep_their_text(tmp_path):
    """A number that is not written as Python writes it would be another id."""
    for ids in (["0042", "42"], ["1.50", "2"], ["1e3", "7"], ["nan", "inf"], ["+1", "-0"], ["9" * 20, "1"]):
        (tmp_path / "t.csv").write_text("key,a,b\n" + "".join(f"{id_},2,3\n" for id_ in ids))
        assert read_rows(tmp_path / "t.csv", Columns(id="key")).ids.tolist() == ids
    (tmp_path / "t.csv").write_text("key,a,b\n-12,2,3\n0,4,5\n")
    assert read_rows(tmp_path / "t.csv", Columns(id="key")).ids.tolist() == [-12, 0]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_by_number_are_those_of_the_whole_table(tmp_path, ending):
    table = pa.table({"day": ["mon", "tue"], "b": [1.0, 2.0], "a": [3.0, 4.0], "key": [7, 8], "kind": ["cat", "dog"]})
    write(table, str(tmp_path / f"t.{ending}"))
    rows = read_rows(tmp_path / f"t.{ending}", Columns(label="4", id="-2", features=("a", "b")))
    assert rows.X.tolist() == [[3, 1], [4, 2]]
    assert (rows.labels.tolist(), rows.ids.tolist()) == (["cat", "dog"], [7, 8])


def test_only_stars_have_a_meaning_in_names_of_columns(tmp_path):
    table = pa.table({"v[0]": [1.0], "v[1]": [2.0], "v0": [3.0], "w?": [4.0], "wx": [5.0]})
    assert from_table(table, features=["v[0]", "w?"]).X.tolist() == [[1, 4]]
    assert from_table(table, features="v[*").X.tolist() == [[1, 2]]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_labels_and_ids_are_different_columns(tmp_path, ending):
    write(pa.table({"key": ["a", "b"], "x": [1.0, 2.0]}), str(tmp_path / f"t.{ending}"))
    with pytest.raises(FileError, match="must have labels and ids in different columns"):
        read_rows(tmp_path / f"t.{ending}", Columns(label="key", id="key"))


@pytest.mark.parametrize("shape", FEATURES)
def test_data_frames(shape):
    """pandas, polars where it is installed, and Arrow give the same."""
    table = arrow(shape)
    frames = [table, pytest.importorskip("pandas").DataFrame(table.to_pandas())]
    try:
        import polars
    except ImportError:
        pass
    else:
        frames.append(polars.from_arrow(table))
    for frame in frames:
        rows = from_table(frame, features=FEATURES[shape], label="kind", id="key")
        np.testing.assert_array_equal(rows.X, X)
        assert rows.labels.tolist() == LABELS
        assert rows.ids.tolist() == IDS
    with pytest.raises(TypeError, match="'table' parameter must be a DataFrame or an Arrow table"):
        from_table({"a": [1]})


def test_codes_as_a_table(tmp_path):
    hasher = ITQ(16, random_state=0).fit(X)
    codes = hasher.transform(X)
    table = to_table(codes, ids=IDS)
    assert table.schema.metadata == {b"hashgrove.model": hasher.digest.encode()}
    assert table["id"].to_pylist() == IDS
    assert table["code"].to_pylist() == [code.tobytes() for code in codes]
    assert to_table(np.asarray(codes)).schema.metadata is None
    frame = pytest.importorskip("polars").from_arrow(table)
    assert frame["code"].to_list() == [code.tobytes() for code in codes]
    for wrong, match in (
        ({"codes": X}, "'codes' parameter must be packed codes, uint8"),
        ({"codes": codes, "ids": IDS[:3]}, "'ids' parameter must be 200 integers or texts"),
        ({"codes": codes, "ids": DAYS}, "'ids' parameter must be 200 integers or texts"),
    ):
        with pytest.raises(ValueError, match=match):
            to_table(**wrong)
