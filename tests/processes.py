"""What tests share that start processes of their own."""

from __future__ import annotations

import os

__all__ = ["unmeasured"]


def unmeasured():
    """The environment of a process whose lines coverage does not count.

    This is for a process that gets a signal. One that a signal ends writes no coverage, and a Ctrl-C that comes while
    coverage holds its lock leaves the lock closed, so that the process waits for ever.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
