"""Learning keeps no array of rows x classes: the largest size of a process that fits many rows of many classes.

One array of float32 for the rows and classes of these fits takes .48 GB. A fit may take seven eighths of that more than
a small one in the same process, which has compiled the kernels; most of it are scores of the rows that calibrate.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

N, N_CLASSES = 400_000, 300
LIMIT = N * N_CLASSES * 4 * 7 // 8

PROGRAM = """
import resource, sys, warnings
import numpy as np
from hashgrove import BoostedTrees, FastHash, PosteriorBits
from hashgrove.baselines import CCAITQ, SDH
from hashgrove.functions import Codewords, learn_generic_bits
from hashgrove.supervision import ClassLabels

LINEAR = BoostedTrees(n_trees=2, start="linear")
small = {"n_similar": 3, "n_dissimilar": 3, "random_state": 0, "n_jobs": 1}

def data(n, n_classes):
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n_classes, 8)).astype(np.float32)[y] + rng.normal(size=(n, 8)).astype(np.float32), y

def code_words(X, y):
    words = Codewords.of(np.packbits(X > 0, axis=1), ClassLabels(y, names=tuple(range(y.max() + 1))))
    assert len(words.codes) == y.max() + 1

def generic(X, y):
    learn_generic_bits(X, ClassLabels(y), n_bits=4, rng=np.random.default_rng(0))

JOBS = {
    "code words": code_words,
    "generic bits": generic,
    "paper": lambda X, y: FastHash.paper(2, hash_function=BoostedTrees.paper(n_trees=2), **small).fit(X, y),
    "posterior bits": lambda X, y: FastHash(2, hash_function=PosteriorBits(), generic_bits=0, **small).fit(X, y),
    "linear start": lambda X, y: FastHash(2, hash_function=LINEAR, generic_bits=0, **small).fit(X, y),
    "cca-itq": lambda X, y: CCAITQ(4, n_iter=2, random_state=0).fit(X, y),
    "sdh": lambda X, y: SDH(4, n_anchors=10, n_iter=1, random_state=0).fit(X, y),
}
warnings.simplefilter("ignore")
n, n_classes = int(sys.argv[2]), int(sys.argv[3])
JOBS[sys.argv[1]](*data(3 * n_classes, n_classes))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
JOBS[sys.argv[1]](*data(n, n_classes))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sizes are in KiB on Linux only")
@pytest.mark.parametrize(
    "job", ["code words", "generic bits", "paper", "posterior bits", "linear start", "cca-itq", "sdh"]
)
def test_no_learner_keeps_an_array_of_rows_and_classes(job):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, job, str(N), str(N_CLASSES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < LIMIT
