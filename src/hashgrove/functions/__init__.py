"""Step 2: one bit becomes one hash function, by any binary classifier (section 4 of the paper).

A learner has ``prepare(X, rng, *, earlier, n_jobs)``, called once a fit, and ``learn(data, z, weights, rng)``, called
once a bit, which returns an encoder of one bit and the bit (-1, +1) that it really gives on the training rows.
``earlier`` is the encoder that a warm start extends, or None. ``HASH_FUNCTIONS`` names those that
`hashgrove.FastHash` takes by name.
"""

from hashgrove.functions.boosting import BoostedTrees
from hashgrove.functions.classifier import Classifier, FittedClassifiers
from hashgrove.functions.directions import LabelDirections
from hashgrove.functions.svm import KernelSVM, LinearSVM

__all__ = [
    "HASH_FUNCTIONS",
    "BoostedTrees",
    "Classifier",
    "FittedClassifiers",
    "KernelSVM",
    "LabelDirections",
    "LinearSVM",
]

HASH_FUNCTIONS = {"trees": BoostedTrees, "linear-svm": LinearSVM, "kernel-svm": KernelSVM}
