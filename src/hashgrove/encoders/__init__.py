"""What a hasher learned: frozen arrays that turn feature rows into scores and packed codes.

Encoders import nothing of the learning side. Each class is a frozen dataclass of arrays (composites consist of
other encoders); `hashgrove.encoders.base` describes how to write one. ``ENCODERS`` is the only registry: a model file
can hold the encoders that it names, and no others.
"""

from hashgrove.encoders.augmented import Augmented
from hashgrove.encoders.base import FEATURE_DTYPES, Encoder
from hashgrove.encoders.class_scores import ClassScores
from hashgrove.encoders.composite import Composite, Mixed, Sum
from hashgrove.encoders.kernel import Kernel, UnitKernel
from hashgrove.encoders.linear import UNIT, Linear
from hashgrove.encoders.posterior import Posterior
from hashgrove.encoders.trees import LeafTrees, Trees

__all__ = [
    "ENCODERS",
    "FEATURE_DTYPES",
    "UNIT",
    "Augmented",
    "ClassScores",
    "Composite",
    "Encoder",
    "Kernel",
    "LeafTrees",
    "Linear",
    "Mixed",
    "Posterior",
    "Sum",
    "Trees",
    "UnitKernel",
    "encoder_name",
]

# Names in model files. They stay as they are, even where a class got a better name later.
ENCODERS: dict[str, type[Encoder]] = {
    "linear": Linear,
    "kernel": Kernel,
    "trees": Trees,
    "leaf-trees": LeafTrees,
    "class-scores": ClassScores,
    "directed": Augmented,
    "posterior": Posterior,
    "unit-kernel": UnitKernel,
    "sum": Sum,
    "mixed": Mixed,
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
