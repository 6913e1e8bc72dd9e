"""Shared fixtures: small real data that comes with a dependency, and the folder of large real data, if any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items):
    if not SHARED_DATA.is_dir():
        reason = pytest.mark.skip(reason="../shared/data is not there")
        for item in items:
            if "data" in item.keywords:
                item.add_marker(reason)


@pytest.fixture(scope="session")
def shared_data():
    return SHARED_DATA


@pytest.fixture(scope="session")
def digits():
    """Training and query part of the digits: X_train, y_train, X_query, y_query."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    train, query = order[:1000], order[1000:1400]
    return X[train], y[train], X[query], y[query]
