"""Methods to compare with: unsupervised hashers with the contract of every other one."""

from hashgrove.baselines.itq import ITQ
from hashgrove.baselines.lsh import LSH
from hashgrove.hasher import Hasher

__all__ = ["BASELINES", "ITQ", "LSH"]

BASELINES: dict[str, type[Hasher]] = {"lsh": LSH, "itq": ITQ}
