"""Small tables for the tests of the experiments: three cells on digits, whose runs take a second."""

from __future__ import annotations

from experiments import load_tables

# Three cells on digits; the first and the last share a run.
SMALL = """
[datasets.digits]
load = "digits"
title = "Digits"
is = ["DIGITS"]

[experiments.first]
title = "Small"
of = "Table 0"
measures = ["map", "fit_seconds"]
on = { digits = "DIGITS" }
rows = [
    { name = "LSH", method = "lsh", bits = 16, n_train = 200 },
    { name = "ITQ", method = "itq", bits = 16, n_train = 200 },
]

[experiments.second]
title = "Smaller"
of = "Table 1"
measures = ["map"]
on = { digits = "DIGITS" }
rows = [{ name = "random", method = "lsh", bits = 16, n_train = 200 }]

[[headlines]]
says = "Random bits"
experiment = "first"
dataset = "digits"
measure = "map"
ours = "ITQ"
rivals = ["LSH"]

[[claims]]
says = "ITQ beats LSH"
experiment = "first"
measure = "map"
pairs = [["ITQ", "LSH"]]
"""
PAPER = """
[first.DIGITS]
"ITQ" = { n_train = 200, map = 0.5, fit_seconds = 100 }
"LSH" = { n_train = 7000, map = 0.25 }
"""


def write(folder, text):
    """Write a file of tables; returns its path."""
    (folder / "t.toml").write_text(text)
    return folder / "t.toml"


def tables(folder):
    """The small tables, with figures of the paper."""
    (folder / "paper.toml").write_text(PAPER)
    return load_tables(write(folder, SMALL), paper=folder / "paper.toml")
