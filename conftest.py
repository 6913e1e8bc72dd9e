"""Set-up of a test session, and shared fixtures: small real data that comes with a dependency.

The folder of large real data, ``../shared/data``, is optional; tests marked ``data`` are skipped without it.
"""

from __future__ import annotations

import os
import signal

if "PYTEST_XDIST_WORKER" in os.environ:
    # There is one worker per core: the threads of BLAS and OpenMP would only get in each other's way. The libraries
    # read these variables when they are loaded, which the imports below do.
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")

import numba
import numpy as np
import pytest
from sklearn.datasets import load_digits

import servers
from paths import SHARED_DATA

pytest.register_assert_rewrite("baseline_contract")


def pytest_configure(config):
    servers.begin()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts background jobs so; some tests need Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if numba.config.DISABLE_JIT:
        import interpreted

        interpreted.install_twins()
        # the integers of a kernel wrap around, which numpy reports and compiled code does not
        for word in ("overflow", "invalid value", "divide by zero"):
            config.addinivalue_line("filterwarnings", f"ignore:{word} encountered:RuntimeWarning")


def pytest_unconfigure():
    servers.stop()


def pytest_collection_modifyitems(items):
    for item in items:
        make = item.callspec.params.get("make") if hasattr(item, "callspec") else None
        reason = getattr(make, "fails", {}).get(getattr(item, "originalname", None))
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
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
