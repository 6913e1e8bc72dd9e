"""The commands about an index: from codes, features and folders of images to neighbours, and every error."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import tiny_onnx
from command import call, fails
from hashgrove import LSH, load
from hashgrove import index as indexes

DIGITS = load_digits()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Features, a model, codes, queries and names in a folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    X = DIGITS.data[:120]
    np.save("X.npy", X[:100])
    np.save("Q.npy", X[100:])
    hasher = LSH(16, random_state=0).fit(X)
    hasher.save("model.hashgrove")
    LSH(16, random_state=1).fit(X).save("other.hashgrove")
    np.save("codes.npy", hasher.transform(X[:100]))
    np.save("queries.npy", hasher.transform(X[100:]))
    return tmp_path


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Pictures of two digits in two folders, a new one, and a small network."""
    monkeypatch.chdir(tmp_path)
    for digit in (0, 1):
        (tmp_path / "photos" / str(digit)).mkdir(parents=True)
        for place, number in enumerate(np.flatnonzero(DIGITS.target == digit)[:12]):
            pixels = np.stack([DIGITS.images[number] * 15, np.full((8, 8), place * 9), 200 * np.ones((8, 8))], axis=2)
            Image.fromarray(pixels.astype(np.uint8)).save(f"photos/{digit}/{place:02}.png")
    Image.open("photos/1/03.png").save("new.png")
    (tmp_path / "net.onnx").write_bytes(tiny_onnx.model())
    return tmp_path


def done(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    return out, err


def test_codes_build_search_change(capsys, folder):
    _, err = done(capsys, "index", "build", "codes.npy", "-o", "codes.hgi")
    assert err.startswith("Wrote 100 items of 2 bytes to codes.hgi; ")
    out, _ = done(capsys, "search", "codes.hgi", "queries.npy", "-k", "3", "--json")
    distances, ids = indexes.FlatIndex(np.load("codes.npy")).search(np.load("queries.npy"), 3)
    found = json.loads(out)
    assert [row["ids"] for row in found] == ids.tolist()
    assert [row["distances"] for row in found] == distances.tolist()
    out, _ = done(capsys, "search", "codes.hgi", "queries.npy", "--radius", "2", "--csv")
    assert out.startswith("query,rank,distance,id\n")
    _, err = done(capsys, "index", "remove", "codes.hgi", "3", "5", "--compact")
    assert err == "Removed 2 items; codes.hgi has 98 now\n"
    _, err = done(capsys, "index", "add", "codes.hgi", "queries.npy")
    assert err == "Added 20 items; codes.hgi has 118 now\n"
    assert 119 in indexes.load_index("codes.hgi")
    fails(capsys, "index", "remove", "codes.hgi", "3", code=1, match="must have ids of items of the index. Got 3")
    done(capsys, "index", "remove", "codes.hgi", "3", "--missing-ok")
    fails(capsys, "index", "remove", "codes.hgi", "three", code=1, match="ids of the index are integers")
    fails(capsys, "index", "remove", "codes.hgi", code=2, match="Give IDs or --ids")
    fails(capsys, "search", "codes.hgi", "queries.npy", "--rerank", code=1, match="must be features or images")
    out, _ = done(capsys, "index", "info", "codes.hgi", "--json")
    assert json.loads(out)["items"] == 118


def test_features_with_names_and_a_model(capsys, folder):
    names = [f"row {i}" for i in range(100)]
    (folder / "X.names.txt").write_text("\n".join(names) + "\n")
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "-o", "named.hgi")
    out, _ = done(capsys, "search", "named.hgi", "Q.npy", "-k", "2")
    assert "row " in out
    for way in ("--rerank", "--weights"):
        out, _ = done(capsys, "search", "named.hgi", "X.npy", "-k", "1", way, "--json")
        assert [row["ids"][0] for row in json.loads(out)][:3] == names[:3] or way == "--weights"
    fails(
        capsys, "search", "named.hgi", "Q.npy", "--model", "other.hashgrove",
        code=1, match="codes of different models cannot be compared",
    )  # fmt: skip
    (folder / "ids.txt").write_text("\n".join(f"new {i}" for i in range(20)))
    done(capsys, "index", "add", "named.hgi", "Q.npy", "--ids", "ids.txt")
    done(capsys, "index", "add", "named.hgi", "Q.npy", "--ids", "ids.txt", "--replace")
    fails(
        capsys, "index", "add", "named.hgi", "Q.npy", "--ids", "ids.txt", code=1, match="already in it; use --replace"
    )
    fails(
        capsys, "index", "add", "named.hgi", "Q.npy", code=1, match="must be given, as the ids of the index are texts"
    )
    fails(capsys, "index", "add", "named.hgi", "Q.npy", "--ids", "X.names.txt", code=1, match="must have 20 lines")
    fails(capsys, "index", "add", "named.hgi", "Q.npy", "--ids", "none.txt", code=1, match="none.txt: no such file")
    out, _ = done(capsys, "index", "info", "named.hgi")
    assert "features        120 rows of 64" in out
    assert "texts" in out


def test_from_a_folder_of_pictures_to_a_page(capsys, photos):
    _, err = done(
        capsys,
        "index",
        "build",
        "photos",
        "--network",
        "net.onnx",
        "--output-name",
        "mean",
        "--size",
        "8",
        "-o",
        "p.hgi",
    )
    assert "Wrote 24 items" in err
    out, err = done(capsys, "query", "p.hgi", "new.png", "-k", "3", "--rerank", "--html", "out.html")
    assert "photos/1/03.png" in out
    assert err.endswith("Wrote out.html\n")
    page = (photos / "out.html").read_text()
    assert page.count("<img") == 4
    assert page.count("data:image/jpeg;base64,") == 4
    assert "http" not in page
    done(capsys, "index", "add", "p.hgi", "new.png")
    assert "new.png" in done(capsys, "query", "p.hgi", "new.png", "-k", "1", "--rerank")[0]


def test_folders_as_labels_and_a_warning_on_collapse(capsys, photos):
    _, err = done(
        capsys, "index", "build", "photos", "--network", "net.onnx", "--output-name", "mean", "--size", "8",
        "--bits", "8", "--labels-from-folders", "-o", "p.hgi",
    )  # fmt: skip
    assert "distinct codes among 24 items" in err or "distinct code among" in err
    fails(
        capsys, "index", "build", "photos/0", "--network", "net.onnx", "--output-name", "mean", "--size", "8",
        "-o", "q.hgi", "--labels-from-folders", code=1, match="at least two folders",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (["index", "build", "codes.npy", "-o", "X.npy"], 1, "must be an index, or not exist"),
        (["index", "build", "X.npy", "-o", "x.hgi"], 1, "must be packed codes"),
        (["index", "build", "X.npy", "-o", "x", "--model", "m", "--network", "n"], 2, "not both"),
        (["index", "build", "X.npy", "-o", "x", "--labels-from-folders"], 2, "for --network only"),
        (
            ["index", "build", "p", "-o", "x", "--network", "n", "--id-column", "key"],
            2,
            "with --network, paths are ids",
        ),
        (["index", "build", "p", "-o", "x", "--network", "n", "--ids", "i.txt"], 2, "with --network, paths are ids"),
        (["index", "build", "X.npy", "-o", "x", "--network", "net.onnx"], 1, "must be a|images must be"),
        (["index", "info", "none.hgi"], 1, "none.hgi: no such file or folder"),
        (["search", "none.hgi", "queries.npy"], 1, "none.hgi: no such file or folder"),
        (["search", "x", "y", "--rerank", "--weights"], 2, "Give one of --radius, --rerank, --plain and --weights"),
        (["search", "x", "y", "-k", "3", "--radius", "2"], 2, "-k or --radius"),
    ],
)
def test_errors_are_one_line(capsys, folder, arguments, code, match):
    fails(capsys, *arguments, code=code, match=match)


def test_an_index_of_codes_does_not_keep_the_model_of_the_index_before(capsys, folder):
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "-o", "a.hgi")
    assert (folder / "a.hgi" / "model.hashgrove").read_bytes() == (folder / "model.hashgrove").read_bytes()
    done(capsys, "index", "build", "codes.npy", "-o", "a.hgi")
    assert not (folder / "a.hgi" / "model.hashgrove").exists()
    fails(capsys, "search", "a.hgi", "X.npy", code=1, match="must be packed codes")


def test_encode_counts_distinct_codes_and_warns(capsys, folder):
    np.save("same.npy", np.repeat(np.load("X.npy")[:1], 50, axis=0))
    _, err = done(capsys, "encode", "model.hashgrove", "same.npy", "-o", "out.npy")
    assert "1 distinct code among 50 items" in err
    assert "Warning: the codes have collapsed: 50 items share 1 code" in err
    _, err = done(capsys, "encode", "model.hashgrove", "X.npy", "-o", "out.npy")
    assert "Warning" not in err


def test_an_index_where_a_file_of_codes_is_expected(capsys, folder):
    """`info`, `search` and `evaluate` take an index too, and its model encodes the queries."""
    np.save("y.npy", DIGITS.target[:100])
    np.save("yq.npy", DIGITS.target[100:120])
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "-o", "X.hgi")
    assert done(capsys, "info", "X.hgi", "--json") == done(capsys, "index", "info", "X.hgi", "--json")
    how = ("-k", "3", "--json", "--plain")
    by_codes = done(capsys, "search", "codes.npy", "Q.npy", "--model", "model.hashgrove", *how)
    assert done(capsys, "search", "X.hgi", "Q.npy", *how) == by_codes
    labels = ("--y-database", "y.npy", "--y-queries", "yq.npy", "--json")
    by_codes = done(capsys, "evaluate", "codes.npy", "queries.npy", *labels)
    assert done(capsys, "evaluate", "X.hgi", "Q.npy", *labels) == by_codes
    fails(capsys, "evaluate", "X.hgi", "Q.npy", "--model", "other.hashgrove", *labels, code=1, match="different models")
    fails(capsys, "search", "X.hgi", "Q.npy", "--radius", "2", "-k", "3", code=2, match="Give -k or --radius")


def test_queries_with_features_are_ranked_by_the_best_that_is_possible(capsys, folder):
    """By features where the index keeps them; otherwise by bits, with ties by margins; --plain is as in the library."""
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "-o", "kept.hgi")
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "--no-features", "-o", "bare.hgi")
    kept, bare = indexes.load_index("kept.hgi"), indexes.load_index("bare.hgi")
    model, Q = load("model.hashgrove"), np.load("Q.npy")

    def ids(place, *how):
        return [hit["ids"] for hit in json.loads(done(capsys, "search", place, "Q.npy", "-k", "5", "--json", *how)[0])]

    careful = kept.search(model.encode(Q), 5, rerank=indexes.Rerank(oversample=1), features=Q)
    assert ids("kept.hgi") == careful.ids.tolist()
    assert (
        ids("kept.hgi", "--rerank") == kept.search(model.encode(Q), 5, rerank=indexes.Rerank(), features=Q).ids.tolist()
    )
    ties = bare.search(model.encode(Q), 5, rerank=indexes.BreakTies(model), features=Q)
    plain = bare.search(model.encode(Q), 5)
    assert ids("bare.hgi") == ties.ids.tolist() != plain.ids.tolist()
    for place in ("kept.hgi", "bare.hgi"):
        assert ids(place, "--plain") == plain.ids.tolist()
    kept.close()
    bare.close()


def test_features_that_the_model_does_not_take_are_left_alone(capsys, folder):
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "--no-features", "-o", "bare.hgi")
    expected = done(capsys, "search", "bare.hgi", "Q.npy", "--json")
    with indexes.load_index("bare.hgi", writable=True) as index:
        index.keep_features(np.load("X.npy")[:, :5], ids=index.ids)
    assert done(capsys, "search", "bare.hgi", "Q.npy", "--json") == expected


def test_packed_codes_need_the_model_where_the_index_knows_its_own(capsys, folder):
    """Files of codes do not say which model made them, so --model must."""
    done(capsys, "index", "build", "codes.npy", "--model", "model.hashgrove", "-o", "codes.hgi")
    assert indexes.load_index("codes.hgi").model is not None
    refused = "Got packed codes; say which model made them by --model"
    fails(capsys, "search", "codes.hgi", "queries.npy", code=1, match=refused)
    fails(capsys, "index", "add", "codes.hgi", "queries.npy", code=1, match=refused)
    by_codes = done(capsys, "search", "codes.npy", "queries.npy", "-k", "3")
    for model in ("model.hashgrove", "codes.hgi/model.hashgrove"):
        assert done(capsys, "search", "codes.hgi", "queries.npy", "--model", model, "-k", "3") == by_codes
    assert done(capsys, "search", "codes.hgi", "Q.npy", "-k", "3", "--plain") == by_codes
    other = ("--model", "other.hashgrove")
    fails(capsys, "search", "codes.hgi", "queries.npy", *other, code=1, match="different models")
    done(capsys, "index", "add", "codes.hgi", "queries.npy", "--model", "model.hashgrove")
    (folder / "codes.hgi" / "model.hashgrove").unlink()
    fails(capsys, "search", "codes.hgi", "queries.npy", code=1, match="Say which model made them by --model")
    fails(capsys, "index", "add", "codes.hgi", "queries.npy", code=1, match="Say which model made them by --model")


def test_labels_are_in_the_order_in_which_the_items_were_added(capsys, folder):
    """Whatever the ids are; also after the items have been in an engine and back."""
    np.save("y.npy", DIGITS.target[:100])
    np.save("yq.npy", DIGITS.target[100:120])
    (folder / "ids.txt").write_text("".join(f"{i}\n" for i in np.random.default_rng(0).permutation(100)))
    done(capsys, "index", "build", "X.npy", "--model", "model.hashgrove", "--ids", "ids.txt", "-o", "there.hgi")
    done(capsys, "push", "there.hgi", "--to", "sqlite:///there.db")
    done(capsys, "pull", "sqlite:///there.db", "-o", "back.hgi")
    common = ("Q.npy", "--model", "model.hashgrove", "--y-database", "y.npy", "--y-queries", "yq.npy", "--json")
    names = ("codes.npy", "there.hgi", "back.hgi")
    assert len({json.loads(done(capsys, "evaluate", name, *common)[0])["map"] for name in names}) == 1


def test_the_validation_of_a_fit_is_kept_and_shown(capsys, photos):
    for folder in ("0", "1"):
        for number in range(50):
            pixels = np.random.default_rng([int(folder), number]).integers(60 * int(folder), 255, (8, 8, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(f"photos/{folder}/more{number}.png")
    _, err = done(
        capsys, "index", "build", "photos", "--network", "net.onnx", "--output-name", "mean", "--size", "8",
        "--bits", "16", "--labels-from-folders", "--preprocess", "clip", "-o", "p.hgi",
    )  # fmt: skip
    assert "on 25 held-out rows" in err
    measured = next(line for line in err.splitlines() if line.startswith("these codes")).split()[2:5]
    for command in (("info", "p.hgi/model.hashgrove"), ("index", "info", "p.hgi")):
        out, _ = done(capsys, *command)
        assert "on 25 held-out rows" in out
        assert next(line for line in out.splitlines() if line.startswith("these codes")).split()[2:5] == measured
        assert "trained_on" not in out
    shown = json.loads(done(capsys, "index", "info", "p.hgi", "--json")[0])["validation"]
    assert (shown["n_held_out"], f"{shown['rows'][0][2]:.4f}") == (25, measured[1])
