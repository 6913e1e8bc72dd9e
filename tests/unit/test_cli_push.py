"""The commands `push` and `pull`: what is sent, what is not sent again, and every error."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from command import call, fails
from hashgrove import LSH
from hashgrove import index as indexes
from hashgrove.index import FlatIndex, connect
from processes import kills

SCHEMES = {"sqlite": "sqlite:///c.db", "duckdb": "duckdb:///c.db", "lance": "lance:///c.db", "faiss": "faiss:///c.db"}
every_url = pytest.mark.parametrize("url", SCHEMES.values(), ids=SCHEMES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """100 codes and their ids, in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", np.random.default_rng(0).integers(0, 256, (100, 4), np.uint8))
    (tmp_path / "ids.txt").write_text("".join(f"photo {i:03}\n" for i in range(100)), encoding="utf-8")
    return tmp_path


def done(capsys, *arguments):
    code, _, err = call(capsys, *arguments)
    assert code == 0, err
    return err


@every_url
def test_push_sends_what_is_missing_or_different_and_pull_gets_all_of_it_back(capsys, folder, url):
    push = ("push", "codes.npy", "--ids", "ids.txt", "--to", url, "--batch", "30")
    assert done(capsys, *push) == f"Sent 100 of 100 items; {url} has 100 now\n"
    assert done(capsys, *push) == f"Sent 0 of 100 items; {url} has 100 now\n"
    with connect(url) as index:
        index.update(np.zeros((2, 4), np.uint8), ids=["photo 003", "photo 004"])
        index.remove(["photo 050"])
        index.add(np.zeros((1, 4), np.uint8), ids=["mine"])
    fails(capsys, *push, code=1, match="Got 2 that .* has with other codes, such as photo 003; give --replace")
    assert done(capsys, *push, "--replace") == f"Sent 3 of 100 items; {url} has 101 now\n"
    done(capsys, "pull", url, "-o", "back.npy", "--ids", "back.txt")
    back = dict(zip((folder / "back.txt").read_text().splitlines(), np.load("back.npy").tolist(), strict=True))
    sent = dict(zip((folder / "ids.txt").read_text().splitlines(), np.load("codes.npy").tolist(), strict=True))
    assert back == sent | {"mine": [0, 0, 0, 0]}
    assert list(back)[-2:] == ["mine", "photo 050"]  # in the order in which they were added
    done(capsys, "pull", url, "-o", "back.hgi")
    assert indexes.load_index("back.hgi").ids.tolist() == (folder / "back.txt").read_text().splitlines()


def test_integers_and_models_go_there_and_come_back(capsys, folder):
    X = np.random.default_rng(0).standard_normal((50, 8))
    hasher = LSH(16, random_state=0).fit(X)
    hasher.save("model.hashgrove")
    LSH(16, random_state=1).fit(X).save("other.hashgrove")
    np.save("X.npy", hasher.transform(X))
    done(capsys, "push", "X.npy", "--model", "model.hashgrove", "--to", "sqlite:///a.db")
    done(capsys, "pull", "sqlite:///a.db", "-o", "a.hgi")
    index = indexes.load_index("a.hgi")
    assert (index.model, index.ids.tolist()) == (hasher.encoder_.digest, list(range(50)))
    done(capsys, "push", "a.hgi", "--to", "duckdb:///b.db")
    with connect("duckdb:///b.db") as copy:
        assert copy.model == index.model
        np.testing.assert_array_equal(copy.codes, index.codes)
    done(capsys, "pull", "duckdb:///b.db", "-o", "b.npy", "--ids", "b.txt")
    again = ("push", "b.npy", "--ids", "b.txt", "--to", "sqlite:///a.db")
    fails(capsys, *again, code=1, match="must be codes of the model of sqlite:///a.db. Say which made them by --model")
    assert done(capsys, *again, "--model", "model.hashgrove").startswith("Sent 0 of 50 items")
    fails(
        capsys,
        "push",
        "X.npy",
        "--model",
        "other.hashgrove",
        "--to",
        "sqlite:///a.db",
        code=1,
        match="different models",
    )
    (folder / "zeros.txt").write_text("".join(f"{i:03}\n" for i in range(50)))  # like integers, but they are not
    done(capsys, "push", "X.npy", "--ids", "zeros.txt", "--to", "sqlite:///texts.db")
    with connect("sqlite:///texts.db") as texts:
        assert texts.ids[7] == "007"
    done(capsys, "push", "X.npy", "--to", "sqlite:///texts.db")  # row numbers become texts where there are texts
    with connect("sqlite:///texts.db") as texts:
        assert (len(texts), "7" in texts) == (100, True)


def test_a_push_that_was_killed_goes_on(capsys, folder):
    np.save("many.npy", np.random.default_rng(0).integers(0, 256, (3000, 8), np.uint8))
    rng, n_killed = random.Random(0), 0
    while n_killed < kills(3):
        n_killed += killed_in_a_push(rng)
        if not n_sent():
            continue
        with connect("sqlite:///many.db") as index:
            np.testing.assert_array_equal(index.codes, np.load("many.npy")[: len(index)])
    with connect("sqlite:///many.db") as index:
        sent = len(index)
    assert done(capsys, "push", "many.npy", "--to", "sqlite:///many.db").startswith(f"Sent {3000 - sent:,} of 3,000")
    with connect("sqlite:///many.db") as index:
        np.testing.assert_array_equal(index.codes, np.load("many.npy"))


def killed_in_a_push(rng):
    """Kill a push after some items more; whether it was killed before it ended. A push that ended begins anew."""
    before, more = n_sent(), rng.randint(1, 40)
    command = [sys.executable, "-m", "hashgrove", "push", "many.npy", "--to", "sqlite:///many.db", "--batch", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        while n_sent() < before + more and process.poll() is None:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    ended = process.returncode == 0
    assert ended or process.returncode == -signal.SIGKILL
    assert (n_sent() == 3000) if ended else (before + more <= n_sent() < 3000)
    if ended or n_sent() > 2900:
        for path in Path().glob("many.db*"):
            path.unlink()
    return not ended


def n_sent():
    if not Path("many.db").exists():
        return 0
    with connect("sqlite:///many.db") as index:
        return len(index)


def test_wrong_calls(capsys, folder):
    fails(capsys, "push", "codes.npy", "--to", "mysql://x", code=1, match="--to must begin with one of sqlite:")
    fails(capsys, "pull", "sqlite:///no.db", "-o", "a.npy", code=1, match="sqlite:///no.db: no such file or folder")
    assert not (folder / "no.db").exists()
    fails(capsys, "pull", "sqlite:///no.db", "-o", "a.txt", code=2, match="must end in .hgi, .npy or .csv")
    fails(capsys, "pull", "sqlite:///no.db", "-o", "a.hgi", "--ids", "i", code=2, match="--ids is for codes only")
    (folder / "few.txt").write_text("a\n")
    fails(
        capsys, "push", "codes.npy", "--ids", "few.txt", "--to", "sqlite:///a.db", code=1, match="must have 100 lines"
    )
    done(capsys, "push", "codes.npy", "--ids", "ids.txt", "--to", "sqlite:///a.db")
    fails(capsys, "pull", "sqlite:///a.db", "-o", "a.npy", code=2, match="--ids must be given")
    FlatIndex(np.load("codes.npy")).save("codes.hgi")
    fails(
        capsys,
        "push",
        "codes.hgi",
        "--ids",
        "ids.txt",
        "--to",
        "sqlite:///b.db",
        code=2,
        match="an index holds ids",
    )
    with connect("sqlite:///lines.db") as index:
        index.add(np.zeros((1, 1), np.uint8), ids=["two\u2028lines"])
    fails(capsys, "pull", "sqlite:///lines.db", "-o", "a.npy", "--ids", "i.txt", code=1, match="fit on one line each")
