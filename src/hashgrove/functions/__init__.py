"""Step 2: a binary classifier learns a hash function for each bit (section 4 of the paper).

`Learner` is the contract; a `JointLearner` learns all bits together. ``HASH_FUNCTIONS`` lists those that
`hashgrove.FastHash` accepts by name. A new one is one file here and one line in that table.
"""

from typing import Any

from sklearn.base import is_classifier

from hashgrove.functions.base import BatchLearner, HashFunction, JointLearner, Learner, StartingLearner
from hashgrove.functions.boosting import BoostedTrees
from hashgrove.functions.classifier import Classifier, FittedClassifiers
from hashgrove.functions.clusters import has_new_classes, with_clusters
from hashgrove.functions.codewords import Codewords
from hashgrove.functions.decodable import DecodableBits
from hashgrove.functions.generic import count_generic_bits, learn_generic_bits
from hashgrove.functions.posterior_bits import PosteriorBits
from hashgrove.functions.svm import KernelSVM, LinearSVM

__all__ = [
    "HASH_FUNCTIONS",
    "BatchLearner",
    "BoostedTrees",
    "Classifier",
    "Codewords",
    "DecodableBits",
    "FittedClassifiers",
    "HashFunction",
    "JointLearner",
    "KernelSVM",
    "Learner",
    "LinearSVM",
    "PosteriorBits",
    "StartingLearner",
    "as_learner",
    "count_generic_bits",
    "has_new_classes",
    "learn_generic_bits",
    "with_clusters",
]

HASH_FUNCTIONS: dict[str, type[HashFunction]] = {
    "trees": BoostedTrees,
    "posterior": PosteriorBits,
    "decodable": DecodableBits,
    "linear-svm": LinearSVM,
    "kernel-svm": KernelSVM,
}


def as_learner(choice: Any, *, parameter: str = "hash_function") -> HashFunction:
    """Turn a name, a learner or a scikit-learn classifier into a learner."""
    if isinstance(choice, str) and choice in HASH_FUNCTIONS:
        return HASH_FUNCTIONS[choice]()
    if (hasattr(choice, "learn") or hasattr(choice, "learn_all")) and not isinstance(choice, type):
        return choice
    if hasattr(choice, "fit") and not isinstance(choice, type) and is_classifier(choice):
        return Classifier(choice)
    raise ValueError(
        f"The {parameter!r} parameter must be one of {sorted(HASH_FUNCTIONS)}, a learner or a scikit-learn "
        f"classifier. Got {choice!r} instead."
    )
