"""The paper's tables and figures as experiments: run them, and put ours and the paper's figures side by side.

``tables.toml`` has the experiments and ``paper.toml`` the paper's figures, both as data (see ``tables``);
``worker`` does one run in a process of its own, ``runner`` all that are still to do, ``results`` keeps each as a file;
``report`` makes the page of results from these files.
"""

from hashgrove.bench.report import report
from hashgrove.bench.runner import list_experiments, run
from hashgrove.bench.tables import load_tables

__all__ = ["list_experiments", "load_tables", "report", "run"]
