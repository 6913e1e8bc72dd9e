"""Methods that the paper compares FastHash with, and that users need not: each is a hasher, written from its paper.

Methods that users compare with on their own data are in `hashgrove.baselines`. A model of a method here is not saved:
model files hold the encoders of hashgrove only, and some of these methods have encoders of their own. A new method is
one file here and one line in ``RIVALS``.
"""

from experiments.baselines.agh import AGH1, AGH2
from experiments.baselines.bre import BRE
from experiments.baselines.cosdish import COSDISH
from experiments.baselines.klsh import KLSH
from experiments.baselines.mdsh import MDSH
from experiments.baselines.mlh import MLH
from experiments.baselines.sph import SPH
from experiments.baselines.spher import SPHER
from experiments.baselines.splh import SPLH
from experiments.baselines.sth import STH, STHs
from hashgrove.baselines import BASELINES as PRODUCT_BASELINES
from hashgrove.hasher import Hasher

__all__ = [
    "AGH1",
    "AGH2",
    "BASELINES",
    "BRE",
    "COSDISH",
    "KLSH",
    "MDSH",
    "MLH",
    "RIVALS",
    "SPH",
    "SPHER",
    "SPLH",
    "STH",
    "STHs",
]

RIVALS: dict[str, type[Hasher]] = {
    "klsh": KLSH,
    "sph": SPH,
    "mdsh": MDSH,
    "agh1": AGH1,
    "agh2": AGH2,
    "spher": SPHER,
    "sth": STH,
    "sths": STHs,
    "bre": BRE,
    "cosdish": COSDISH,
    "mlh": MLH,
    "splh": SPLH,
}
BASELINES: dict[str, type[Hasher]] = {**PRODUCT_BASELINES, **RIVALS}  # all that a row of tables.toml may name
