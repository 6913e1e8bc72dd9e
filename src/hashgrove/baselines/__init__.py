"""Methods to compare FastHash with on your own data. Each is a hasher, written from its paper.

A new baseline is one file here and one line in ``BASELINES``.
"""

from hashgrove.baselines.cca_itq import CCAITQ
from hashgrove.baselines.classifier_output import ClassifierOutput
from hashgrove.baselines.itq import ITQ
from hashgrove.baselines.ksh import KSH
from hashgrove.baselines.lsh import LSH
from hashgrove.baselines.sdh import SDH
from hashgrove.baselines.sign import SignThreshold
from hashgrove.hasher import Hasher

__all__ = [
    "BASELINES",
    "CCAITQ",
    "ITQ",
    "KSH",
    "LSH",
    "SDH",
    "ClassifierOutput",
    "SignThreshold",
]

BASELINES: dict[str, type[Hasher]] = {
    "lsh": LSH,
    "sign": SignThreshold,
    "itq": ITQ,
    "cca-itq": CCAITQ,
    "classifier": ClassifierOutput,
    "ksh": KSH,
    "sdh": SDH,
}
