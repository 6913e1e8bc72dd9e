"""What a hasher learned: frozen arrays that turn feature rows into scores and packed codes.

An encoder imports nothing of the learning side. Each class is a frozen dataclass of arrays (`Augmented` of two
encoders); ``ENCODERS`` names those that a model file can hold.
"""

from hashgrove.encoders.anchor_graph import AnchorGraph
from hashgrove.encoders.augmented import Augmented
from hashgrove.encoders.base import FEATURE_DTYPES, Encoder
from hashgrove.encoders.class_scores import ClassScores
from hashgrove.encoders.kernel import Kernel
from hashgrove.encoders.linear import Linear
from hashgrove.encoders.sinusoid import Sinusoid
from hashgrove.encoders.spheres import Spheres
from hashgrove.encoders.tabulated import Tabulated
from hashgrove.encoders.trees import Trees

__all__ = [
    "ENCODERS",
    "FEATURE_DTYPES",
    "AnchorGraph",
    "Augmented",
    "ClassScores",
    "Encoder",
    "Kernel",
    "Linear",
    "Sinusoid",
    "Spheres",
    "Tabulated",
    "Trees",
]

ENCODERS: dict[str, type[Encoder]] = {
    "linear": Linear,
    "kernel": Kernel,
    "trees": Trees,
    "class-scores": ClassScores,
    "sinusoid": Sinusoid,
    "tabulated": Tabulated,
    "spheres": Spheres,
    "anchors": AnchorGraph,
    "directed": Augmented,
}
