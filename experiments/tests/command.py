"""``python -m experiments`` in tests, called in this process."""

from __future__ import annotations

import re
import shlex

import pytest

from experiments.commands import NAME, main
from hashgrove.cli.program import COMPILING


def call(capsys, *arguments):
    """Run the program; returns (exit code, stdout, stderr), without the notice of compilation."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments), prog_name=NAME)
    out, err = capsys.readouterr()
    return ended.value.code, out, err.replace(f"{COMPILING}\n", "")


def examples(text):
    """The arguments of the calls in a help text."""
    return [shlex.split(line)[3:] for line in re.findall(rf"^ +({NAME} .*)$", text, flags=re.MULTILINE)]
