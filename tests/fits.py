"""A fixed set of small fits, and the digests of what they learned: proof that a change of the code changed no model.

`python tests/fits.py record` writes tests/fits.json; `python tests/fits.py compare` says which fits differ from it.
Floating-point models depend on the BLAS of the machine in their last bits, so `tests/test_fits.py` asks for equal
digests only where all is done in integers, and for equal codes elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier

from hashgrove import (
    ICM,
    BlockGraphCut,
    BoostedTrees,
    FastHash,
    KernelSVM,
    LinearSVM,
    PosteriorBits,
    Spectral,
)
from hashgrove.baselines import BASELINES

RECORD = Path(__file__).with_name("fits.json")
X, Y = load_digits(return_X_y=True)
X, Y = X[:400], Y[:400]
QUERIES = load_digits().data[400:450]
N_BITS = 12

TAGS = (Y[:, None] % np.array([2, 3, 4, 5, 7]) == 0).astype(np.int64)
_rng = np.random.default_rng(7)
_i, _j = _rng.integers(len(X), size=(2, 6000))
PAIRS = np.stack([_i, _j, np.where(Y[_i] == Y[_j], 1, -1)], axis=1)[_i != _j]
TRIPLETS = np.array(
    [(a, p, n) for a in range(60) for p in range(60, 90) for n in range(90, 100) if Y[a] == Y[p] != Y[n]]
)
TREES = {"n_trees": 8, "features_per_node": 20}


def fasthash(**settings):
    """FastHash in the paper's mode, whatever the defaults are."""
    return FastHash.paper(N_BITS, **{"hash_function": trees(), "loss": "hinge", "random_state": 3} | settings)


def trees(**settings):
    return BoostedTrees.paper(**TREES | settings)


def newton(**settings):
    return FastHash(N_BITS, hash_function=BoostedTrees(n_trees=8, **settings), random_state=3)


def distance_loss(distance, similar, n_bits):
    """A loss of the user's own."""
    return np.where(similar, distance, n_bits - distance) / n_bits


def warm(**settings):
    hasher = fasthash(warm_start=True, **settings).set_params(n_bits=5).fit(X, Y)
    return hasher.set_params(n_bits=N_BITS).fit(X, Y)


FITS = {
    **{f"loss {loss}": lambda loss=loss: fasthash(loss=loss).fit(X, Y) for loss in ("ksh", "hinge", "bre", "exph")},
    "loss callable": lambda: fasthash(loss=distance_loss).fit(X, Y),
    "solver block-gc zeros": lambda: fasthash(inference=BlockGraphCut(n_sweeps=3, start="zeros")).fit(X, Y),
    "solver icm": lambda: fasthash(inference=ICM()).fit(X, Y),
    "solver spectral": lambda: fasthash(inference=Spectral()).fit(X, Y),
    "trees per tree": lambda: fasthash(hash_function=trees(subset="tree", max_depth=6)).fit(X, Y),
    "trees deep": lambda: fasthash(hash_function=trees(max_depth=9, trimming=0.0)).fit(X, Y),
    "trees early stopping": lambda: fasthash(hash_function=trees(early_stopping=True)).fit(X, Y),
    "linear svm": lambda: fasthash(hash_function=LinearSVM()).fit(X, Y),
    "kernel svm": lambda: fasthash(hash_function=KernelSVM()).fit(X, Y),
    "kernel svm budget": lambda: fasthash(hash_function=KernelSVM(n_support=60)).fit(X, Y),
    "classifier": lambda: fasthash(hash_function=RidgeClassifier()).fit(X, Y),
    "not stagewise": lambda: fasthash(stagewise=False, weighted=False).fit(X, Y),
    "few neighbours": lambda: fasthash(n_similar=5, n_dissimilar=7).fit(X, Y),
    "float32": lambda: fasthash().fit(X.astype(np.float32), Y),
    "uint8": lambda: fasthash().fit(X.astype(np.uint8), Y),
    "text labels": lambda: fasthash().fit(X, np.array([f"digit {y}" for y in Y])),
    "tags": lambda: fasthash(min_shared=1).fit(X, TAGS),
    "tags two shared": lambda: fasthash().fit(X, sparse.csr_array(TAGS)),
    "pairs": lambda: fasthash().fit(X, affinity=PAIRS),
    "pairs icm": lambda: fasthash(inference="icm", n_similar=4, n_dissimilar=4).fit(X, affinity=PAIRS),
    "warm start": lambda: warm(),
    "warm start linear svm": lambda: warm(hash_function=LinearSVM()),
    "warm start kernel svm": lambda: warm(hash_function=KernelSVM(n_support=60)),
    **{
        f"newton {name}": lambda settings=settings: newton(**settings).fit(X, Y)
        for name, settings in {
            "per node": {},
            "per level": {"subset": "level"},
            "per tree": {"subset": "tree", "features_per_node": 20},
            "deep": {"max_depth": 9, "features_per_node": 40, "min_hessian": 0.5},
            "untrimmed": {"trimming": 0.0, "learning_rate": 0.5},
            "linear start": {"start": "linear"},
            "kernel start": {"start": "kernel", "n_anchors": 50},
        }.items()
    },
    "newton stagewise": lambda: newton().set_params(stagewise=True).fit(X, Y),
    "newton linear start tags": lambda: newton(start="linear").fit(X, TAGS),
    "newton linear start pairs": lambda: newton(start="linear").fit(X, affinity=PAIRS),
    "sign trees linear start": lambda: FastHash(N_BITS, hash_function=trees(start="linear"), random_state=3).fit(X, Y),
    "posterior": lambda: FastHash(N_BITS, hash_function="posterior", random_state=3).fit(X, Y),
    "posterior tags": lambda: FastHash(N_BITS, hash_function="posterior", random_state=3).fit(X, TAGS),
    "posterior kernel": lambda: FastHash(N_BITS, hash_function=PosteriorBits(n_anchors=60), random_state=3).fit(X, Y),
    "decodable": lambda: FastHash(N_BITS, hash_function="decodable", random_state=3).fit(X, Y),
    "generic bits pairs": lambda: fasthash(generic_bits=4).fit(X, affinity=PAIRS),
    "sample weight": lambda: fasthash().fit(X, Y, sample_weight=1 + Y % 3),
    "triplets": lambda: fasthash().fit(X, triplets=TRIPLETS),
    "auto": lambda: FastHash(N_BITS, random_state=3).fit(X, Y),
    "auto tags": lambda: FastHash(N_BITS, random_state=3).fit(X, TAGS),
    **{
        f"baseline {name}": lambda make=make: make(N_BITS, random_state=3).fit(X, Y) for name, make in BASELINES.items()
    },
    **{
        f"baseline {name} tags": lambda name=name: BASELINES[name](N_BITS, random_state=3).fit(X, TAGS)
        for name in ("cca-itq", "classifier", "ksh", "sdh")
    },
    "baseline ksh pairs": lambda: BASELINES["ksh"](N_BITS, random_state=3).fit(X, affinity=PAIRS),
}


def describe(hasher):
    """Digest of the arrays of a model, and its codes of 50 rows in hexadecimal digits."""
    digest = hashlib.sha256()
    for array_name, array in sorted(hasher.encoder_.arrays().items()):
        digest.update(f"{array_name} {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return {"model": digest.hexdigest()[:16], "codes": hasher.transform(QUERIES).tobytes().hex()}


def same_codes(found, recorded):
    """Whether at least 99 % of the bits of two descriptions are equal."""
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(each["codes"]), np.uint8)) for each in (found, recorded)]
    return np.mean(bits[0] == bits[1]) > 0.99


def main(fits, record):
    """Record or compare, as the command line says."""
    found = {name: describe(fit()) for name, fit in fits.items()}
    if sys.argv[1] == "record":
        record.write_text(json.dumps(found, indent=1) + "\n")
        return
    recorded = json.loads(record.read_text())
    differing = [name for name in recorded if found.get(name) != recorded[name]]
    print(f"{len(recorded) - len(differing)} of {len(recorded)} fits are the same; these differ: {differing}")


if __name__ == "__main__":
    main(FITS, RECORD)
