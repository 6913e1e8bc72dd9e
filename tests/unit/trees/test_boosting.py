"""The compiled call that grows all trees of a bit: Ctrl-C ends it, and deep trees get more room."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from hashgrove import BoostedTrees
from hashgrove.trees import boosting


def test_an_interrupt_stops_the_call():
    ended = threading.Event()

    def work(stop):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while not stop[0]:  # as a kernel does, it looks at nothing else
            time.sleep(0.01)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        boosting._call_stoppable(work)
    assert ended.wait(60)


@pytest.mark.parametrize("leaves", ["sign", "newton"])
def test_a_call_that_is_stopped_grows_no_more_trees(leaves, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((60, 3))
    z = np.where(X[:, 0] > 0.5, 1, -1).astype(np.int8)
    learner = BoostedTrees(n_trees=5, leaves=leaves)
    monkeypatch.setattr(
        boosting, "_call_stoppable", lambda function, *arguments: function(*arguments, np.ones(1, bool))
    )
    encoder, _ = learner.learn(learner.prepare(X, rng), z, None, rng)
    assert len(encoder.child) == 1


@pytest.mark.parametrize("leaves", ["sign", "newton"])
def test_trees_that_need_more_room_are_the_same(leaves, monkeypatch):
    rng = np.random.default_rng(0)
    X, z = rng.random((400, 3)), rng.choice(np.array([-1, 1], np.int8), 400)  # noise needs large trees
    learner = BoostedTrees(n_trees=20, max_depth=20, leaves=leaves, min_points=0, min_hessian=0.0, trimming=0.3)
    data, calls, call = learner.prepare(X, rng), [], boosting._call_stoppable
    monkeypatch.setattr(boosting, "MAX_DEPTH_IN_VECTORS", 1)  # little room at the beginning
    monkeypatch.setattr(boosting, "_call_stoppable", lambda *arguments: calls.append(1) or call(*arguments))
    found = learner.learn(data, z, None, np.random.default_rng(1))[0].arrays()
    assert len(calls) > 1
    monkeypatch.setattr(boosting, "MAX_DEPTH_IN_VECTORS", 20)  # room for all trees from the beginning
    calls.clear()
    expected = learner.learn(data, z, None, np.random.default_rng(1))[0].arrays()
    assert len(calls) == 1
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
