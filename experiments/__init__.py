"""Experiments on the quality of codes: the paper's tables and figures, and more, beside the paper's own figures.

``tables.toml`` holds the experiments and ``paper.toml`` the paper's figures, both as data; `tables` reads them into
the classes of `specs`. `worker` does one run in its own process, `runner` all runs that have no result yet, `results`
stores each run as a line of a file. `report` writes the pages of results from these files.
"""

from experiments.report import report
from experiments.runner import list_experiments, run
from experiments.tables import load_tables

__all__ = ["list_experiments", "load_tables", "report", "run"]
