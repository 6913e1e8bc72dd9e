"""Outputs that would destroy something: an input, another output, or the model itself."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call
from hashgrove import LSH, Gist
from hashgrove.storage import atomic

X, Y = load_digits(return_X_y=True)
TRAIN = ["train", "X.npy", "y.npy", "--bits", "2", "--trees", "2", "--seed", "0", "--quiet", "--n-jobs", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X[:100])
    np.save("y.npy", Y[:100])
    return tmp_path


def run(arguments, capsys):
    """Exit code and what a command says on stderr."""
    code, _, error = call(capsys, *arguments)
    return code, error


@pytest.mark.parametrize("checkpoint", ["model", "./model", "link"])
def test_a_checkpoint_is_not_the_model(folder, capsys, checkpoint):
    """The model would be written over the checkpoint, which is deleted at the end."""
    os.symlink("model", "link")
    code, error = run([*TRAIN, "-o", "model", "--checkpoint", checkpoint], capsys)
    assert (code, error.count("\n")) == (1, 1)
    assert "must not be the output file model itself" in error


@pytest.mark.parametrize(
    ("checkpoint", "match"),
    [
        ("X.npy", "must not be the input file"),
        ("none/run", "there is no folder"),
        ("read-only", "read-only"),
        (".", "regular"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_work(folder, capsys, monkeypatch, checkpoint, match):
    (folder / "read-only").touch(0o444)
    before = (folder / "X.npy").read_bytes()
    monkeypatch.setattr("hashgrove.FastHash.fit", None)  # it is not even called
    code, error = run([*TRAIN, "-o", "model", "--checkpoint", checkpoint], capsys)
    assert code == 1
    assert match in error
    assert (folder / "X.npy").read_bytes() == before


def test_a_checkpoint_behind_a_link_is_removed(folder, capsys):
    os.symlink("target", "link")
    assert run([*TRAIN, "-o", "model", "--checkpoint", "link"], capsys) == (0, "")
    assert (folder / "model").exists()
    assert not (folder / "target").exists()


@pytest.mark.parametrize("save", ["F.npy", "F.names.txt"])
def test_two_outputs_are_two_files(folder, capsys, save):
    Image = pytest.importorskip("PIL.Image")
    Image.new("RGB", (16, 16)).save("a.png")
    code, error = run(["features", "gist", "a.png", "--size", "16", "-o", "F.npy", "--save", save], capsys)
    assert code == 1
    assert f"must not be the output file {save} itself" in error
    assert not (folder / "F.npy").exists()


def test_the_names_of_images_do_not_replace_the_list_of_images(folder, capsys):
    Image = pytest.importorskip("PIL.Image")
    gist = Gist(n_cells=2, image_size=16).fit(np.zeros((1, 16, 16), np.uint8))
    LSH(8, random_state=0).fit(np.zeros((9, gist.n_features_)) + X[:9, :1]).save("model", features=gist)
    (folder / "sub").mkdir()
    Image.new("RGB", (16, 16)).save("sub/a.png")
    (folder / "sub/C.names.txt").write_text("a.png\n")
    code, error = run(["encode", "model", "sub/C.names.txt", "-o", "sub/C.npy"], capsys)
    assert code == 1
    assert "must not be the input file" in error
    assert (folder / "sub/C.names.txt").read_text() == "a.png\n"


def test_ctrl_c_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "remove_stale", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic.atomic_write(tmp_path / "out"):
        pytest.fail("it must not come so far")
    assert os.listdir(tmp_path) == []
