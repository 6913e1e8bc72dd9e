"""Every committed input of a reader is read, or refused in one line, within the limits of tests/hostile/fuzz.py."""

from __future__ import annotations

import os

import fuzz
import fuzz_corpus
import pytest
from fuzz_readers import READERS
from test_fuzz import NEEDS

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs RLIMIT_AS and /proc")


@pytest.mark.parametrize("name", sorted(path.stem for path in fuzz_corpus.FOLDER.glob("*.zip")))
def test_no_committed_input_does_harm(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    contents = fuzz_corpus.files(name)
    assert contents
    _, failures = fuzz.fuzz(name, READERS[name], files=len(contents), seed=0, folder=tmp_path, corpus=True)
    assert not failures
