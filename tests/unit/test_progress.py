"""Progress on stderr: at a terminal nothing is silent, and elsewhere nothing is printed that nobody asked for."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hashgrove import FastHash
from hashgrove.runtime import progress
from hashgrove.runtime.progress import show_step
from processes import at_terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

# Steps are shown after a while only. Here they are shown at once, so that quick machines show them as well.
AT_ONCE = """
import sys, threading
from hashgrove.runtime import progress
class Timer(threading.Timer):
    def start(self):
        self.finished.set()
        super().start()
        self.function()
progress.threading.Timer = Timer
from hashgrove.cli import main
main(sys.argv[1:], prog_name="hashgrove")
"""


def shown(*arguments, cwd):
    """What a command shows at a terminal: the lines, in order, without colours and without those that are repeated."""
    text = at_terminal([sys.executable, "-c", AT_ONCE, *arguments], cwd=cwd)
    lines = [re.sub(r"[\u2800-\u28ff]|\d+:\d\d:\d\d", "", line).strip() for line in re.split(r"[\r\n]+", text)]
    return [line for number, line in enumerate(lines) if line and line != lines[number - 1]]


def assert_in_order(lines, *starts):
    """Check that there is a line for each start, one after the other."""
    rest = iter(lines)
    for start in starts:
        assert any(line.startswith(start) for line in rest), f"{start!r} is not shown, or not in this order: {lines}"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progress")
    X, y = load_digits(return_X_y=True)
    np.save(folder / "X.npy", X[:100])
    np.save(folder / "y.npy", y[:100])
    lines = shown("train", "X.npy", "y.npy", "-o", "m.hashgrove", "--bits", "8", "--validate", "0.3", cwd=folder)
    (folder / "train.txt").write_text("\n".join(lines))
    return folder


def test_training_shows_each_of_its_steps(here):
    lines = (here / "train.txt").read_text().split("\n")
    assert_in_order(
        lines,
        "loading the library",
        "reading X.npy",
        "trying ",
        "learning bits",
        "measuring the codes of the held-out rows",
        "learning bits",
        "encoding the rows",
        "model",
    )


def test_other_commands_show_their_steps(here):
    lines = shown("encode", "m.hashgrove", "X.npy", "-o", "c.npy", cwd=here)
    assert_in_order(lines, "loading the library", "rows", "Wrote 100 codes")
    lines = shown("index", "build", "X.npy", "--model", "m.hashgrove", "-o", "i.hgi", cwd=here)
    assert_in_order(lines, "loading", "encoding X.npy", "writing the index and its tables", "Wrote 100 items")
    lines = shown("search", "i.hgi", "X.npy", "-k", "1", cwd=here)
    assert_in_order(lines, "loading", "encoding X.npy", "searching", "0     1       0.0   0")
    labels = ("--y-queries", "y.npy", "--y-database", "y.npy")
    lines = shown("evaluate", "i.hgi", "X.npy", *labels, cwd=here)
    assert_in_order(lines, "loading", "encoding X.npy", "searching and measuring", "MAP")


def test_a_step_is_shown_after_a_while_and_then_taken_away(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "STEP_DELAY", 0)
    with show_step("first") as say:
        say("second")
        while "second" not in capsys.readouterr().err:
            pass
    assert "\x1b[2K" in capsys.readouterr().err
    monkeypatch.setattr(progress, "STEP_DELAY", 3600)
    with show_step("first"):
        pass
    assert capsys.readouterr().err == ""


def test_steps_without_a_terminal(capsys):
    for verbose, printed in ((0, ""), (1, ""), (2, "first\nsecond\n")):
        with show_step("first", verbose=verbose) as say:
            say("second")
        assert capsys.readouterr() == ("", printed)


def test_a_failed_step_is_taken_away(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "STEP_DELAY", 0)

    def fail():
        with show_step("first"):
            while "first" not in capsys.readouterr().err:
                pass
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert "\x1b[?25h" in capsys.readouterr().err  # the cursor is there again


def test_a_notebook_shows_progress_though_its_stderr_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    X, y = load_digits(return_X_y=True)
    FastHash(8, hash_function="posterior", random_state=0, verbose=1).fit(X[:100], y[:100])
    out, err = capsys.readouterr()
    assert out == ""
    assert "6/6" in err
    FastHash(8, hash_function="posterior", random_state=0).fit(X[:100], y[:100])
    assert capsys.readouterr() == ("", "")
