"""Fixtures that the tests of the experiments share."""

from __future__ import annotations

import pytest

from experiments import run
from experiments.tests import small_tables


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The tables of experiments in small_tables.py."""
    return small_tables.tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def finished(small, tmp_path_factory):
    """Real results of the small tables: the folder, and what `run` said of it."""
    folder = tmp_path_factory.mktemp("results")
    return folder, run(["all"], tables=small, results=folder, n_jobs=1)
