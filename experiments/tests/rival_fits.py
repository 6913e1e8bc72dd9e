"""Small fits of the methods of the paper, and the digests of what they learned; see tests/fits.py.

``python -m experiments.tests.rival_fits compare`` from the repository's root, with tests/ on the path, compares them.
"""

from __future__ import annotations

from pathlib import Path

import fits
from experiments.baselines import RIVALS

RECORD = Path(__file__).with_name("rival_fits.json")
EIGENVECTORS = {"agh1", "agh2", "sth", "sths"}  # of nearly equal eigenvalues, so that rounding decides their codes
SUPERVISED = ("bre", "cosdish", "mlh", "splh")


def fit(name, y=None, **given):
    return RIVALS[name](fits.N_BITS, random_state=3).fit(fits.X, y, **given)


FITS = {
    **{name: lambda name=name: fit(name, fits.Y) for name in RIVALS if name not in EIGENVECTORS},
    **{f"{name} tags": lambda name=name: fit(name, fits.TAGS) for name in SUPERVISED},
    **{f"{name} pairs": lambda name=name: fit(name, affinity=fits.PAIRS) for name in SUPERVISED},
}

if __name__ == "__main__":
    fits.main(FITS, RECORD)
