"""Methods to compare FastHash with. Each one is a hasher, written from its paper.

A new baseline is one file here and one line in ``BASELINES``.
"""

from hashgrove.baselines.agh import AGH1, AGH2
from hashgrove.baselines.bre import BRE
from hashgrove.baselines.cca_itq import CCAITQ
from hashgrove.baselines.classifier_output import ClassifierOutput
from hashgrove.baselines.cosdish import COSDISH
from hashgrove.baselines.itq import ITQ
from hashgrove.baselines.klsh import KLSH
from hashgrove.baselines.ksh import KSH
from hashgrove.baselines.lsh import LSH
from hashgrove.baselines.mdsh import MDSH
from hashgrove.baselines.mlh import MLH
from hashgrove.baselines.sdh import SDH
from hashgrove.baselines.sign import SignThreshold
from hashgrove.baselines.sph import SPH
from hashgrove.baselines.spher import SPHER
from hashgrove.baselines.splh import SPLH
from hashgrove.baselines.sth import STH, STHs
from hashgrove.hasher import Hasher

__all__ = [
    "AGH1",
    "AGH2",
    "BASELINES",
    "BRE",
    "CCAITQ",
    "COSDISH",
    "ITQ",
    "KLSH",
    "KSH",
    "LSH",
    "MDSH",
    "MLH",
    "SDH",
    "SPH",
    "SPHER",
    "SPLH",
    "STH",
    "ClassifierOutput",
    "STHs",
    "SignThreshold",
]

BASELINES: dict[str, type[Hasher]] = {
    "lsh": LSH,
    "klsh": KLSH,
    "sign": SignThreshold,
    "itq": ITQ,
    "sph": SPH,
    "mdsh": MDSH,
    "agh1": AGH1,
    "agh2": AGH2,
    "spher": SPHER,
    "sth": STH,
    "sths": STHs,
    "bre": BRE,
    "cca-itq": CCAITQ,
    "classifier": ClassifierOutput,
    "cosdish": COSDISH,
    "ksh": KSH,
    "mlh": MLH,
    "sdh": SDH,
    "splh": SPLH,
}
