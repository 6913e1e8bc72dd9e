"""Codes from the scores of a classifier: the baseline that every method for class labels should be compared with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hashgrove.encoders import ClassScores, Encoder, Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.runtime.estimators import check_classifier, seeded_clone
from hashgrove.runtime.parameters import Constraint, OneOf
from hashgrove.supervision import Supervision

__all__ = ["ClassifierOutput", "ScoredClassifier"]

PROBES_PER_CHUNK = 1024
CHECKED_ROWS = 20_000  # rows on which the scores of a linear form are compared with those of the classifier


class ClassifierOutput(SupervisedHasher):
    """Train a classifier and hash its class scores with a code book that has one code word per class.

    Bit j is one if sum_c P(c | x) C_cj > 0. The code words C are rows of a Hadamard matrix (as in error-correcting
    output codes), so any two differ in about half of the bits. If one class is more likely than all others together,
    the code is the code word of that class; if several classes compete, the code lies between their code words.

    Parameters
    ----------
    n_bits : int
    estimator : scikit-learn classifier or None
        None means multinomial logistic regression on standardised features with at most 300 steps. It gives no warning
        if it stops before it has converged.
    scores : {"probability", "decision"}, default="probability"
        ``predict_proba``, or ``decision_function`` minus its mean over the classes. If the classifier has only one of
        the two, that one is used.
    random_state : int, RandomState or None
        Seed of the code book and the classifier.

    Attributes
    ----------
    encoder_ : ClassScores, Linear or ScoredClassifier
        For a classifier (or pipeline) that is linear in the features: `ClassScores` for probabilities and `Linear` for
        decision values. Both can be saved. Any other classifier is kept as an object, in a `ScoredClassifier`.
    estimator_ : the fitted classifier
    code_book_ : int8 array of shape (n_classes, n_bits)

    Notes
    -----
    With tags there is one classifier per tag (one against the rest), and bit j is one if
    sum_c (P(c | x) - share of points with tag c) C_cj > 0. Without the shares a few common tags would decide all bits.

    References
    ----------
    For classifier outputs as codes: A. Sablayrolles, M. Douze, N. Usunier and H. Jégou, "How should we evaluate
    supervised hashing?", ICASSP 2017. For code words: T. G. Dietterich and G. Bakiri, "Solving multiclass learning
    problems via error-correcting output codes", JAIR 1995.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = ClassifierOutput(16, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.6
    True
    """

    estimator_: Any
    code_book_: NDArray[np.int8]

    needs_labels: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "scores": OneOf(("decision", "probability")),
    }

    def __init__(
        self, n_bits: int = 64, *, estimator: Any = None, scores: str = "probability", random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.estimator = estimator
        self.scores = scores
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Encoder:
        """Train the classifier, draw the code book, and turn both into arrays if the classifier is linear."""
        estimator = self.estimator
        if estimator is None:
            estimator = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        check_classifier("estimator", estimator)
        estimator = seeded_clone(estimator, rng)
        exclusive = supervision.exclusive
        if exclusive:
            classes, _ = supervision.evaluation_labels()
            self._fit_quietly(estimator, X, classes)
            shares = np.zeros(int(classes.max()) + 1)
        else:
            tags = supervision.indicator()
            shares = tags.sum(axis=0) / len(supervision)
            learnable = np.flatnonzero((shares > 0) & (shares < 1))
            tags, shares = tags[:, learnable], shares[learnable]
            if not tags.shape[1]:
                raise ValueError(
                    "The 'y' parameter must have a tag that some points have and others do not. Got no such tag."
                )
            estimator = OneVsRestClassifier(estimator)
            self._fit_quietly(estimator, X, tags if tags.shape[1] > 1 else tags.toarray()[:, 0])
            if len(shares) == 1:
                shares = np.array([1 - shares[0], shares[0]])
        book = code_book(len(shares), self.n_bits, rng)
        probability = hasattr(estimator, "predict_proba") and (
            self.scores == "probability" or not hasattr(estimator, "decision_function")
        )
        encoder = ScoredClassifier(
            estimator=estimator,
            book=book.astype(np.float64),
            offset=-(shares @ book) if probability else np.zeros(self.n_bits),
            width=X.shape[1],
            probability=probability,
        )
        self.estimator_ = estimator
        self.code_book_ = book
        return linear_form(encoder, X, exclusive=exclusive) or encoder

    def _fit_quietly(self, estimator: Any, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Fit the classifier, without convergence warnings if it is the default one."""
        with warnings.catch_warnings():
            if self.estimator is None:
                warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X, y)


@dataclass(frozen=True, eq=False, repr=False)
class ScoredClassifier(Encoder):
    """A fitted classifier and a code book. It can be stored by joblib, but not in a model file.

    Parameters
    ----------
    estimator : fitted scikit-learn classifier
    book : float64 array of shape (n_classes, n_bits)
    offset : float64 array of shape (n_bits,)
    width : int
        Number of features.
    probability : bool
        Whether probabilities are hashed, and not decision values.
    """

    estimator: Any
    book: NDArray[np.float64]
    offset: NDArray[np.float64]
    width: int
    probability: bool

    def __repr__(self) -> str:
        return f"ScoredClassifier({type(self.estimator).__name__})"

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.book.shape[1]

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.width

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return (self.probabilities(X) if self.probability else self.decision(X)) @ self.book + self.offset

    def probabilities(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The probability of each class or tag."""
        return _two_columns(self.estimator.predict_proba(X), len(X))

    def decision(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The decision value of each class or tag, minus the mean of all of them."""
        values = _two_columns(self.estimator.decision_function(X), len(X))
        return values - values.mean(axis=1, keepdims=True)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder with the code books of all ``encoders`` side by side; they must share one classifier."""
        first = encoders[0]
        if any(e.estimator is not first.estimator or e.probability != first.probability for e in encoders):
            raise ValueError(
                "ScoredClassifier encoders must have the same classifier to be concatenated. Got different ones."
            )
        return cls(
            estimator=first.estimator,
            book=np.hstack([encoder.book for encoder in encoders]),
            offset=np.concatenate([encoder.offset for encoder in encoders]),
            width=first.width,
            probability=first.probability,
        )

    def check(self) -> None:
        """Refuse: a model file holds arrays only."""
        raise ValueError("a ScoredClassifier encoder holds an estimator, which a model file cannot contain")


def code_book(n_classes: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Code words of -1 and +1, shape (n_classes, n_bits): random rows and columns of a Hadamard matrix, random signs.

    >>> book = code_book(3, 8, np.random.default_rng(0)).astype(int)
    >>> (book @ book.T).tolist()
    [[8, 0, 0], [0, 8, 0], [0, 0, 8]]
    """
    order = 1 << (max(n_bits, n_classes) - 1).bit_length()
    rows = rng.permutation(order)[:n_classes]
    columns = np.sort(rng.permutation(order)[:n_bits])
    signs = np.where(rng.standard_normal(n_bits) > 0, 1, -1)
    return (hadamard(order)[np.ix_(rows, columns)] * signs).astype(np.int8)


def linear_form(encoder: ScoredClassifier, X: NDArray[Any], *, exclusive: bool) -> ClassScores | Linear | None:
    """The same encoder as arrays if the classifier's decision values are linear in the features, otherwise None.

    The hyperplanes are computed from the decision values at the mean and at one step from it along each feature. This
    works for any pipeline. The scores of some training rows then show whether the hyperplanes, with softmax or sigmoid
    for probabilities, give the same as the classifier.
    """
    if not hasattr(encoder.estimator, "decision_function"):
        return None
    mean, steps = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    steps[steps == 0] = 1.0
    # probabilities of tags: each tag has its own sigmoid, so the mean over the tags must not be subtracted
    values = encoder.decision if exclusive or not encoder.probability else encoder.estimator.decision_function
    at_mean = np.asarray(values(mean[None]), dtype=np.float64).reshape(-1)
    weights = np.empty((len(at_mean), len(mean)))
    for start in range(0, len(mean), PROBES_PER_CHUNK):
        probed = np.arange(start, min(start + PROBES_PER_CHUNK, len(mean)))
        probes = np.tile(mean, (len(probed), 1))
        probes[np.arange(len(probed)), probed] += steps[probed]
        at_probes = np.asarray(values(probes), dtype=np.float64).reshape(len(probed), -1)
        weights[:, probed] = ((at_probes - at_mean) / steps[probed][:, None]).T
    bias = at_mean - weights @ mean
    form: ClassScores | Linear
    if not encoder.probability:
        form = Linear(weights=encoder.book.T @ weights, bias=encoder.book.T @ bias)
    elif len(weights) == len(encoder.book):
        halved = 0.5 if exclusive and len(weights) == 2 else 1.0  # softmax of (-m / 2, m / 2) is the sigmoid of m
        form = ClassScores(
            weights=halved * weights,
            bias=halved * bias,
            book=encoder.book,
            offset=encoder.offset,
            exclusive=np.array(exclusive, np.uint8),
        )
    else:
        return None
    some = X[:: -(-len(X) // CHECKED_ROWS)]
    scores, expected = form.scores(some), encoder.scores(some)
    return form if np.allclose(scores, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()) else None


def _two_columns(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Values as an array (n, n_classes); a single margin m, for two classes, becomes the columns (-m, m)."""
    values = np.asarray(values, dtype=np.float64).reshape(n_rows, -1)
    return np.hstack([-values, values]) if values.shape[1] == 1 else values
