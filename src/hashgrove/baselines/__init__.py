"""Methods to compare with: hashers with the contract of every other one, unsupervised and supervised."""

from hashgrove.baselines.bre import BRE
from hashgrove.baselines.cca_itq import CCAITQ
from hashgrove.baselines.classifier_output import ClassifierOutput
from hashgrove.baselines.cosdish import COSDISH
from hashgrove.baselines.itq import ITQ
from hashgrove.baselines.ksh import KSH
from hashgrove.baselines.lsh import LSH
from hashgrove.baselines.mlh import MLH
from hashgrove.baselines.sdh import SDH
from hashgrove.baselines.splh import SPLH
from hashgrove.hasher import Hasher

__all__ = [
    "BASELINES",
    "BRE",
    "CCAITQ",
    "COSDISH",
    "ITQ",
    "KSH",
    "LSH",
    "MLH",
    "SDH",
    "SPLH",
    "ClassifierOutput",
]

BASELINES: dict[str, type[Hasher]] = {
    "lsh": LSH,
    "itq": ITQ,
    "bre": BRE,
    "cca-itq": CCAITQ,
    "classifier": ClassifierOutput,
    "cosdish": COSDISH,
    "ksh": KSH,
    "mlh": MLH,
    "sdh": SDH,
    "splh": SPLH,
}
