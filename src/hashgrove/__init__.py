"""Supervised hashing: learn compact binary codes from labelled data, and search them by Hamming distance.

Names are imported when they are first used, so that ``import hashgrove`` costs nothing: numba and scikit-learn
come with the first hasher or index.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hashgrove._version import __version__

if TYPE_CHECKING:
    from hashgrove.affinity import Affinity
    from hashgrove.baselines import ITQ, LSH
    from hashgrove.codes import hamming, pack, unpack
    from hashgrove.directions import LabelDirections
    from hashgrove.encoders import Encoder
    from hashgrove.fasthash import FastHash
    from hashgrove.features import Codebook, Gist, ImageEncoder, OnnxFeatures
    from hashgrove.functions import BoostedTrees, KernelSVM, LinearSVM
    from hashgrove.hasher import load
    from hashgrove.index import FlatIndex
    from hashgrove.inference import ICM, BlockGraphCut, Spectral
    from hashgrove.metrics import Report, evaluate
    from hashgrove.modelfile import ModelFileError

_HOMES = {
    "affinity": ["Affinity"],
    "baselines": ["ITQ", "LSH"],
    "codes": ["hamming", "pack", "unpack"],
    "directions": ["LabelDirections"],
    "encoders": ["Encoder"],
    "fasthash": ["FastHash"],
    "features": ["Codebook", "Gist", "ImageEncoder", "OnnxFeatures"],
    "functions": ["BoostedTrees", "KernelSVM", "LinearSVM"],
    "hasher": ["load"],
    "index": ["FlatIndex"],
    "inference": ["ICM", "BlockGraphCut", "Spectral"],
    "metrics": ["Report", "evaluate"],
    "modelfile": ["ModelFileError"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022
    "__version__",
    "Affinity",
    "BlockGraphCut",
    "BoostedTrees",
    "Codebook",
    "Encoder",
    "FastHash",
    "FlatIndex",
    "Gist",
    "ICM",
    "ITQ",
    "ImageEncoder",
    "KernelSVM",
    "LSH",
    "LabelDirections",
    "LinearSVM",
    "ModelFileError",
    "OnnxFeatures",
    "Report",
    "Spectral",
    "evaluate",
    "hamming",
    "load",
    "pack",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hashgrove' has no attribute {name!r}")
    value = getattr(import_module(f"hashgrove.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
