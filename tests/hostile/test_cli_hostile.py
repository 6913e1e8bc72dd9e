"""Names and files of strangers on the command line: what is printed, and the page of results."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from command import call, fails
from hashgrove import FlatIndex
from hashgrove.cli.page import write_page
from hashgrove.index import load_index

CODES = np.array([[0], [1], [3], [7]], np.uint8)
NAMES = ["a\x1b[2Jb", 'comma, "quote"', "line\nbreak\rand\u2028more", "turned \u202e round"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An index from elsewhere whose ids are hostile, and codes to search for."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:  # as release 0.1.0, which refused no control character but NUL
        patch.setattr("hashgrove.index.ids.CONTROL", re.compile("\0"))
        FlatIndex(CODES, ids=NAMES).save("hostile.hgi")
        FlatIndex(CODES, ids=NAMES, model="\x1b]0;title\x07").save("with-model.hgi")
    np.save("queries.npy", CODES)
    return tmp_path


def is_printable(text):
    return all(line.isprintable() for line in text.split("\n"))


def test_ids_cannot_drive_the_terminal(folder, capsys):
    status, out, err = call(capsys, "search", "hostile.hgi", "queries.npy", "-k", "4")
    assert (status, err) == (0, "")
    assert is_printable(out)
    assert len(out.splitlines()) == 1 + 4 * 4
    assert "a\\x1b[2Jb" in out


def test_ids_are_what_they_are_for_programs(folder, capsys):
    out = call(capsys, "search", "hostile.hgi", "queries.npy", "-k", "4", "--csv")[1]
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert rows[0] == ["query", "rank", "distance", "id"]
    assert {len(row) for row in rows} == {4}
    assert [row[3] for row in rows[1:5]] == NAMES
    out = call(capsys, "search", "hostile.hgi", "queries.npy", "-k", "4", "--json")[1]
    assert json.loads(out)[0]["ids"] == NAMES


def test_a_description_cannot_drive_the_terminal(folder, capsys):
    status, out, _ = call(capsys, "index", "info", "with-model.hgi")
    assert status == 0
    assert is_printable(out)
    assert "\\x1b]0;title\\x07" in out


def test_errors_and_warnings_cannot_drive_the_terminal(folder, capsys):
    os.mkdir("photos")
    for name in ("\x1b[2J.png", "\udcff.png", "\x9b2J.png"):
        with open(f"photos/{name}", "wb") as file:
            file.write(b"no image")
    Image.new("RGB", (64, 64)).save("photos/good.png")
    for on_error, code in (("raise", 1), ("skip", 0)):
        status, _, err = call(capsys, "features", "gist", "photos", "-o", "X.npy", "--on-error", on_error)
        assert status == code, err
        assert is_printable(err)
        assert "\\x1b[2J.png" in err


@pytest.mark.parametrize("char", "\n\r\v\x85\u2028")
def test_names_that_are_listed_by_line_have_one(folder, capsys, char):
    os.mkdir("photos")
    Image.new("RGB", (64, 64)).save(f"photos/a{char}b.png", "PNG")
    fails(capsys, "features", "gist", "photos", "-o", "X.npy", code=1, match="no image with a line break in its name")


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_a_pipe_beside_a_file_is_no_list_of_names(folder):
    """It would hold the command up for ever; the timeout ends it only if that happens."""
    os.mkfifo("queries.names.txt")
    command = [sys.executable, "-m", "hashgrove", "index", "build", "queries.npy", "-o", "new.hgi"]
    subprocess.run(command, cwd=folder, timeout=300, check=True, capture_output=True)
    assert load_index("new.hgi").ids.tolist() == [0, 1, 2, 3]


def test_names_on_a_page_are_text(tmp_path):
    names = ["<script>alert(1)</script>", "' onerror='alert(1)", "</title><b>"]
    page = tmp_path / "out.html"
    hits = [(0, np.array([1, 2, 3]), np.array(names))]
    write_page(str(page), hits, names=["<i>query"], title="<u>title")
    text = page.read_text()
    for tag in ("<script", "<b>", "<i>", "<u>"):
        assert tag not in text
    assert "&lt;script&gt;" in text
    assert "&#x27; onerror=" in text


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100),
        "too large",
        b"P6 -1 5 255\n",
        b"P6 5 5 x\n",
        b"",
    ],
)
def test_pictures_on_a_page_are_decoded_within_the_limits_of_all_images(tmp_path, content):
    """A damaged picture leaves its place empty; and no decoder runs without the limits that `read_image` sets."""
    if content == "too large":
        Image.new("1", (9000, 8000)).save(tmp_path / "bad.png")  # Pillow itself would decode it
    else:
        (tmp_path / "bad.png").write_bytes(content)
    Image.new("RGB", (300, 200), "red").save(tmp_path / "good.png")
    names = [str(tmp_path / name) for name in ("good.png", "bad.png")]
    write_page(str(tmp_path / "out.html"), [(0, np.array([0, 1]), np.array(names))], names=None, title="t")
    text = (tmp_path / "out.html").read_text()
    assert text.count("<img") == 1
    assert text.count("class='none'") == 2  # the query has no picture either
