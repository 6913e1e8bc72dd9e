"""The command line on images: features of folders, lists and arrays, and models that take images."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import tiny_onnx
from command import call, fails, run
from hashgrove import Gist, ImageEncoder, OnnxFeatures, load
from hashgrove import features as features_module
from hashgrove.runtime.progress import show_count

N = 60
GIST = ("--orientations", "4,2", "--cells", "2")
TRAIN = ("--bits", "12", "--trees", "5", "--seed", "0", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits as image files in two folders, as an array, with their labels and a model that takes images."""
    path = tmp_path_factory.mktemp("images")
    digits = load_digits()
    images = np.kron((digits.images[:N] * 15.9).astype(np.uint8), np.ones((2, 2), np.uint8))
    for number, image in enumerate(images):
        place = path / "digits" / ("a" if number < 30 else "b")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:02}.png")
    np.save(path / "images.npy", images)
    np.savez(path / "all.npz", images=images, y=digits.target[:N])
    np.save(path / "y.npy", digits.target[:N])
    (path / "net.onnx").write_bytes(tiny_onnx.model())
    (path / "list.txt").write_text("digits/b/31.png\n\ndigits/a/02.png\n")
    run("features", "gist", "digits", "-o", "X.npy", "--save", "gist.hashgrove", *GIST, cwd=path)
    run("train", "X.npy", "y.npy", "-o", "m.hashgrove", "--features", "gist.hashgrove", *TRAIN, cwd=path)
    return path


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def X(folder):
    gist = Gist((4, 2), n_cells=2)
    return gist.fit_transform(np.load(folder / "images.npy"))


def test_features_of_a_folder(here, X):
    np.testing.assert_array_equal(np.load("X.npy"), X)
    names = Path("X.names.txt").read_text().splitlines()
    assert names == [f"digits/{'a' if n < 30 else 'b'}/{n:02}.png" for n in range(N)]


@pytest.mark.parametrize(
    ("source", "rows"),
    [("images.npy", slice(None)), ("all.npz:images", slice(None)), ("list.txt", [31, 2]), ("digits/a/07.png", [7])],
)
def test_features_of_arrays_lists_and_single_images(here, X, capsys, source, rows):
    Path("Z.names.txt").unlink(missing_ok=True)
    status, out, err = call(capsys, "features", "apply", "gist.hashgrove", source, "-o", "Z.npy", "--n-jobs", "1")
    assert (status, out) == (0, ""), err
    assert re.match(rf"Wrote {len(X[rows])} rows of 24 features to Z\.npy", err)
    np.testing.assert_array_equal(np.load("Z.npy"), X[rows])
    assert Path("Z.names.txt").exists() == (not source.startswith(("images", "all")))


def test_network(here, capsys):
    status, _, err = call(
        capsys, "features", "onnx", "digits", "-o", "N.npy", "--network", "net.onnx", "--output-name", "scaled",
        "--size", "8x6", "--mean", "1,2,3", "--std", "4", "--channels", "bgr", "--resampling", "box", "--batch", "7",
        "--save", "onnx.hashgrove",
    )  # fmt: skip
    assert status == 0, err
    expected = OnnxFeatures(
        "net.onnx", output="scaled", image_size=(8, 6), mean=(1, 2, 3), std=4, channels="bgr", resampling="box"
    ).fit_transform(np.load("images.npy"))
    np.testing.assert_allclose(np.load("N.npy"), expected, rtol=1e-6)
    assert features_module.load_extractor("onnx.hashgrove").batch_size == 7
    assert re.search(r"^kind +features$", call(capsys, "info", "onnx.hashgrove")[1], flags=re.MULTILINE)


def test_a_model_takes_images(here, X, capsys):
    model = load("m.hashgrove")
    assert isinstance(model, ImageEncoder)
    codes = model.encoder.encode(X)
    for source in ("digits", "images.npy", "X.npy"):  # the last are features
        status, _, err = call(capsys, "encode", "m.hashgrove", source, "-o", "codes.npy")
        assert status == 0, err
        np.testing.assert_array_equal(np.load("codes.npy"), codes)
    assert not Path("images.names.txt").exists()
    call(capsys, "encode", "m.hashgrove", "list.txt", "-o", "two.npy")
    assert Path("two.names.txt").read_text() == "digits/b/31.png\ndigits/a/02.png\n"
    found = json.loads(
        call(capsys, "search", "codes.npy", "list.txt", "--model", "m.hashgrove", "-k", "3", "--json")[1]
    )
    assert [hit["distances"][0] for hit in found] == [0, 0]
    labels = ("--y-database", "y.npy", "--y-queries", "y.npy")
    by_images = call(capsys, "evaluate", "codes.npy", "digits", "--model", "m.hashgrove", *labels)
    assert by_images[0] == 0
    assert by_images == call(capsys, "evaluate", "codes.npy", "codes.npy", *labels)


def test_info_shows_the_features(here, capsys):
    out = call(capsys, "info", "m.hashgrove")[1]
    assert re.search(r"^features\n  name +gist\n  parameters +.*'n_cells': 2", out, flags=re.MULTILINE)


def test_damaged_files_are_errors_or_skipped(here, X, capsys, tmp_path):
    for number in (1, 2, 3):
        os.link(f"digits/a/0{number}.png", tmp_path / f"{number}.png")
    (tmp_path / "2a.png").write_bytes(b"not an image")
    common = ("features", "apply", "gist.hashgrove", str(tmp_path), "-o", str(tmp_path / "S.npy"))
    fails(capsys, *common, code=1, match=r"2a\.png: not an image")
    assert not (tmp_path / "S.npy").exists()
    status, _, err = call(capsys, *common, "--on-error", "skip")
    assert status == 0
    assert re.match(r"Warning: \S+2a\.png: not an image[^\n]*; skipped\nWrote 3 rows", err)
    np.testing.assert_array_equal(np.load(tmp_path / "S.npy"), X[1:4])
    names = [Path(name).name for name in (tmp_path / "S.names.txt").read_text().splitlines()]
    assert names == ["1.png", "2.png", "3.png"]


CODEBOOK = ("--atoms", "5", "--patches", "500", "--iterations", "2", "--patch-size", "4", "--seed", "0")


def test_a_codebook_learns_from_the_images_that_can_be_used(here, capsys, tmp_path):
    for number in range(10):
        os.link(f"digits/a/0{number}.png", tmp_path / f"{number}.png")
    common = ("features", "codebook", str(tmp_path), *CODEBOOK, "--type", "uint8", "--on-error", "skip")
    whole, part = tmp_path / "W.npy", tmp_path / "P.npy"
    assert call(capsys, *common, "-o", str(whole), "--save", str(tmp_path / "c.hashgrove"))[0] == 0
    (tmp_path / "2a.png").write_bytes(b"not an image")
    status, _, err = call(capsys, *common, "-o", str(part))
    assert status == 0
    assert re.match(r"Warning: \S+2a\.png: not an image[^\n]*; skipped\nWrote 10 rows of 70 features", err)
    np.testing.assert_array_equal(np.load(part), np.load(whole))
    assert np.load(part).dtype == np.uint8
    loaded = features_module.load_extractor(tmp_path / "c.hashgrove")
    np.testing.assert_array_equal(loaded.transform([str(tmp_path / "3.png")])[0], np.load(whole)[3])
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "x.png").write_bytes(b"")
    nothing = ("features", "codebook", str(tmp_path / "none"), *CODEBOOK, "-o", str(whole), "--on-error", "skip")
    status, _, err = call(capsys, *nothing)
    assert status == 1
    assert re.fullmatch(r"Warning: [^\n]+; skipped\nError: [^\n]+at least one of them must be an image[^\n]+\n", err)


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        ("features gist nowhere -o Z.npy", 1, "nowhere: no such file or folder"),
        ("features gist digits -o Z.csv", 2, r"must end in \.npy"),
        ("features gist digits -o no/Z.npy", 1, "there is no folder"),
        ("features gist y.npy -o Z.npy", 1, r"y\.npy: images must be uint8 of shape"),
        ("features gist images.npy -o images.npy", 1, "must not be the input file"),
        ("features gist digits -o Z.npy --orientations 8,x", 2, "'--orientations': must be a whole number, or several"),
        (
            "features gist digits -o Z.npy --orientations 0",
            2,
            "'--orientations': must be 1 to 16 values, each an integer",
        ),
        ("features gist digits -o Z.npy --colour --size 0", 2, "'--size': must be an integer from 1 to 32768"),
        ("features gist empty.txt -o Z.npy", 1, r"empty\.txt: must be a text file with the path"),
        ("features gist net.onnx -o Z.npy", 1, r"net\.onnx: must be"),
        ("features onnx digits -o Z.npy", 2, "Missing option '--network'"),
        ("features onnx digits -o Z.npy --network net.onnx --size 8", 1, r"net\.onnx: .*one of \['mean', 'scaled'\]"),
        ("features onnx digits -o Z.npy --network no.onnx", 1, r"no\.onnx: no such file"),
        ("features apply m.hashgrove digits -o Z.npy", 1, "must be a model file of kind 'features'"),
        ("features nonsense", 2, "No such command 'nonsense'"),
        ("train y2.npy y.npy -o m2 --features gist.hashgrove", 1, r"gist\.hashgrove: must give 5 features, as y2\.npy"),
        ("encode gist.hashgrove digits -o c.npy", 1, "must be a model file of kind 'encoder'"),
    ],
)
def test_errors(here, capsys, arguments, code, match):
    Path("empty.txt").write_text("\n")
    np.save("y2.npy", np.zeros((N, 5)))
    fails(capsys, *arguments.split(), code=code, match=match)


def test_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with show_count("images", 40) as show:
        show(10)
        show(40)
    assert "40/40" in capsys.readouterr().err


def test_a_list_of_names_refuses_line_breaks(here, capsys, tmp_path):
    os.link("digits/a/01.png", tmp_path / "a\nb.png")
    fails(capsys, "features", "gist", str(tmp_path), "-o", "Z.npy", code=1, match="no image with a line break")


def test_names_that_cannot_be_written_are_known_before_the_work(here, capsys):
    Path("W.names.txt").mkdir(exist_ok=True)
    fails(capsys, "features", "gist", "digits", "-o", "W.npy", code=1, match=r"W\.names\.txt: must be a regular file")
    assert not Path("W.npy").exists()


@pytest.mark.parametrize("command", [*features_module.FEATURES, "apply"])
def test_help_has_an_example(capsys, command):
    status, text, _ = call(capsys, "features", command, "--help")
    assert status == 0
    assert f"hashgrove features {command} " in text
