"""Readers that do harm as soon as a file differs from its seed: tests/hostile/fuzz.py must notice each of them."""

from __future__ import annotations

import os
import time
from functools import partial

import fuzz
from fuzz_seeds import Reader, Seed

from hashgrove.storage.formats import FileError

CONTENT = b"seed"


def foreign_type(path):
    raise KeyError(1)


def two_lines(path):
    error = FileError("")
    error.args = (f"{path}: two\nlines",)
    raise error


def no_path(path):
    raise FileError("no path")


def memory(path):
    bytearray(2**27)


def crash(path):
    os.abort()


def long_wait(path):
    fuzz.limit_time(20, 1)
    time.sleep(600)


def long_work(path):
    fuzz.limit_time(1, 200)
    while True:
        pass


WRONG = {
    foreign_type: "KeyError",
    two_lines: "not one line",
    no_path: "not one line",
    memory: "MemoryError",
    crash: "ended with -6",
    long_wait: "took too long",
    long_work: "took too long",
}  # what the loop says of each


def seeds():
    return [Seed(CONTENT)]


def read(harm, path):
    if path.read_bytes() != CONTENT:
        harm(path)


def harmful(harm):
    return Reader(seeds, ".x", (partial(read, harm),))
