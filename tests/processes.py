"""What tests share that start processes of their own."""

from __future__ import annotations

import os
import re
import subprocess

__all__ = ["at_terminal", "kills", "unmeasured"]


def kills(number):
    """How often a test kills a process: ``number``, or what ``make soak`` says."""
    return int(os.environ.get("HASHGROVE_KILLS", number))


def unmeasured():
    """The environment of a process whose lines coverage does not count.

    This is for a process that gets a signal. One that a signal ends writes no coverage, and a Ctrl-C that comes while
    coverage holds its lock leaves the lock closed, so that the process waits for ever.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}


def at_terminal(command, *, cwd):
    """Run a command at a pseudo-terminal; returns all that it shows, without colours and other sequences."""
    import pty  # not on Windows

    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        parts = []
        with open(master, "rb", buffering=0) as terminal:
            try:
                while part := terminal.read(65536):
                    parts.append(part)
            except OSError:  # how Linux says that the other end is closed
                pass
    text = b"".join(parts).decode()
    assert process.returncode == 0, text
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
