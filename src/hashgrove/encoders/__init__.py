"""Encoders, the results of learning: frozen arrays that turn feature rows into scores and packed codes.

Encoders import nothing of the learning side. Each class is a frozen dataclass of arrays (composites consist of
other encoders); `hashgrove.encoders.base` describes how to write one. ``ENCODERS`` is the only registry: a model file
can hold the encoders that it names, and no others.
"""

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.class_scores import ClassScores
from hashgrove.encoders.composite import Composite, Sum
from hashgrove.encoders.decodable import Decodable
from hashgrove.encoders.decoding import Decoder
from hashgrove.encoders.kernel import Kernel, UnitKernel
from hashgrove.encoders.lifted import Lifted
from hashgrove.encoders.linear import UNIT, Linear
from hashgrove.encoders.mixed import Mixed, Spread, join
from hashgrove.encoders.posterior import Posterior
from hashgrove.encoders.trees import LeafTrees, Trees

__all__ = [
    "ENCODERS",
    "UNIT",
    "ClassScores",
    "Composite",
    "Decodable",
    "Decoder",
    "Encoder",
    "Kernel",
    "LeafTrees",
    "Lifted",
    "Linear",
    "Mixed",
    "Posterior",
    "Spread",
    "Sum",
    "Trees",
    "UnitKernel",
    "encoder_name",
    "join",
]

# Names in model files.
ENCODERS: dict[str, type[Encoder]] = {
    "linear": Linear,
    "kernel": Kernel,
    "trees": Trees,
    "leaf-trees": LeafTrees,
    "class-scores": ClassScores,
    "lifted": Lifted,
    "posterior": Posterior,
    "unit-kernel": UnitKernel,
    "sum": Sum,
    "mixed": Mixed,
    "spread": Spread,
    "decodable": Decodable,
}


def encoder_name(encoder: Encoder) -> str:
    """The name of an encoder's class in model files; ValueError if it is not in ``ENCODERS`` and cannot be saved.

    >>> encoder_name(Linear.constant(1, n_features=2))
    'linear'
    """
    for name, encoder_class in ENCODERS.items():
        if type(encoder) is encoder_class:
            return name
    raise ValueError(
        f"{encoder} cannot be saved: a model file holds arrays only, no pickled objects, and only of the encoders "
        f"{sorted(ENCODERS)}. Use a hash function of hashgrove or a linear classifier, or joblib.dump."
    )
