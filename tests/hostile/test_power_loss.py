"""Some hundred simulated losses of power; `power_loss.py` as a command tries more of them."""

from __future__ import annotations

import power_loss
import pytest

from hashgrove.index import FlatIndex
from hashgrove.index.folder import DATA_FILE, MANIFEST


def test_a_loss_of_power_loses_nothing_that_has_returned():
    n, faults = power_loss.run(400, 3, n_changes=6, per_call=2)
    assert n == 400
    assert faults == []


@pytest.mark.parametrize("kind", ["compact", "keep all features", "save"])
def test_no_file_of_an_index_is_removed_before_the_manifest_without_it_is_durable(tmp_path, kind):
    """A manifest may be in place and not yet durable when a writer is killed. The next writer removes files, too."""
    n_removed = 0
    for n_calls in range(1, 45):

        def kill(workload, n_calls=n_calls):
            workload.run(0)
            workload.kill(kind, n_calls)

        (tmp_path / str(n_calls)).mkdir()
        is_durable, place = True, None
        for event, *more in power_loss.record(tmp_path / str(n_calls), FlatIndex, kill, seed=0):
            if event == "rename" and more[2] == MANIFEST:
                is_durable, place = False, more[0]
            elif event == "sync":
                is_durable |= more[0] == place
            elif event == "unlink" and DATA_FILE.fullmatch(more[1]):
                n_removed += 1
                assert is_durable, n_calls
    assert n_removed > 20


@pytest.mark.parametrize("ignored", ["files", "folders"])
def test_ignored_syncs_are_found(ignored):
    n, faults = power_loss.run(100, 0, ignored=[ignored], n_changes=6)
    assert n == 100
    assert len(faults) > 20
