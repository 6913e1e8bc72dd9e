"""The command line in tests: as a process of its own, or in this one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from hashgrove.cli import main
from hashgrove.runtime.progress import COMPILING


def run(*arguments, cwd, code=0):
    """Run ``python -m hashgrove``; returns stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "hashgrove", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def call(capsys, *arguments):
    """Run the program in this process; returns (exit code, stdout, stderr), without the notice of compilation."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments), prog_name="hashgrove")
    out, err = capsys.readouterr()
    return ended.value.code, out, err.replace(f"{COMPILING}\n", "")


def fails(capsys, *arguments, code, match):
    status, out, err = call(capsys, *arguments)
    assert status in (code if isinstance(code, tuple) else (code,)), err
    assert out == ""
    assert re.fullmatch(r"Error: [^\n]+\n", err), err
    assert re.search(match, err), err


def examples(text):
    return [shlex.split(line)[1:] for line in re.findall(r"^ +(hashgrove .*)$", text, flags=re.MULTILINE)]
