"""Step 2 with any scikit-learn classifier: one clone of it per bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from hashgrove.encoders import Encoder, Linear
from hashgrove.functions.base import bit_of, is_constant
from hashgrove.runtime.estimators import check_classifier, seeded_clone
from hashgrove.supervision import Supervision

__all__ = ["Classifier", "FittedClassifiers"]

_Rows = tuple[Any, int | None]  # training rows, number of threads


class Classifier(BaseEstimator):  # type: ignore[misc]
    """Any scikit-learn classifier as hash function.

    The classifier is cloned for each bit, and every ``random_state`` in it is set by the hasher. It gets the weights of
    the examples if its ``fit`` accepts ``sample_weight``. A linear classifier (with ``coef_`` and ``intercept_``)
    becomes a `Linear` encoder, which can be saved in a model file. Any other classifier becomes a `FittedClassifiers`
    encoder, which joblib can store.

    Parameters
    ----------
    estimator : scikit-learn classifier

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, rng = np.array([[0.0], [1.0], [4.0], [5.0]]), np.random.default_rng(0)
    >>> learner = Classifier(KNeighborsClassifier(1))
    >>> encoder, bit = learner.learn(learner.prepare(X, rng), np.array([-1, 1, 1, -1], np.int8), None, rng)
    >>> encoder, bit.tolist()
    (FittedClassifiers(KNeighborsClassifier), [-1, 1, 1, -1])
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @property
    def accepts_sparse(self) -> bool:
        """Whether the classifier accepts sparse rows."""
        return bool(get_tags(self.estimator).input_tags.sparse)

    def prepare(
        self,
        X: Any,
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _Rows:
        """Check the estimator; the rows stay as they are."""
        check_classifier("estimator", self.estimator)
        return X, n_jobs

    def learn(
        self,
        data: _Rows,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Fit a clone of the classifier to one bit; returns its encoder, and the values that it gives for the rows."""
        X, n_jobs = data
        encoder: Encoder
        if is_constant(z):
            encoder = Linear.constant(z[0], n_features=X.shape[1])
        else:
            estimator = seeded_clone(self.estimator, rng)
            weighted = weights is not None and has_fit_parameter(estimator, "sample_weight")
            estimator.fit(X, z, **({"sample_weight": weights} if weighted else {}))
            encoder = _as_linear(estimator, X) or FittedClassifiers(parts=(estimator,), width=X.shape[1])
        return encoder, bit_of(encoder, X, n_jobs)


@dataclass(frozen=True, eq=False, repr=False)
class FittedClassifiers(Encoder):
    """Fitted classifiers, one bit each. They can be stored by joblib, but not in a model file.

    Parameters
    ----------
    parts : tuple
        Fitted classifiers of -1 against +1.
    width : int
        Number of features.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier().fit([[0.0], [1.0]], [-1, 1])
    >>> FittedClassifiers(parts=(tree,), width=1).scores([[0.0], [1.0]]).tolist()
    [[-0.5], [0.5]]
    """

    parts: tuple[Any, ...]
    width: int

    def __repr__(self) -> str:
        return f"FittedClassifiers({', '.join(dict.fromkeys(type(part).__name__ for part in self.parts))})"

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.parts)

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return self.width

    @property
    def accepts_sparse(self) -> bool:
        """Whether rows may be sparse; the classifiers themselves refuse what they cannot take."""
        return True

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.stack([_margin(part, X) for part in self.parts], axis=1)

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``."""
        return cls(parts=tuple(part for encoder in encoders for part in encoder.parts), width=encoders[0].width)

    def check(self) -> None:
        """Refuse: a model file holds arrays only."""
        raise ValueError("a FittedClassifiers encoder holds estimators, which a model file cannot contain")


def _margin(estimator: Any, X: NDArray[Any]) -> NDArray[np.float64]:
    """The score of each row, positive if the classifier predicts +1."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X), np.float64).reshape(X.shape[0])
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(X), np.float64)[:, 1] - 0.5
    return np.where(np.asarray(estimator.predict(X)).reshape(X.shape[0]) > 0, 1.0, -1.0)


def _as_linear(estimator: Any, X: NDArray[Any]) -> Linear | None:
    """The hyperplane of a classifier, or None if its decision function on the training rows is not that of one."""
    n_features = X.shape[1]
    coefficients = getattr(estimator, "coef_", None)
    intercept = np.asarray(getattr(estimator, "intercept_", ()), dtype=np.float64)
    if not isinstance(coefficients, np.ndarray) or coefficients.shape not in ((1, n_features), (n_features,)):
        return None
    if intercept.size != 1 or not hasattr(estimator, "decision_function"):
        return None
    linear = Linear(weights=coefficients.reshape(1, -1).astype(np.float64), bias=intercept.reshape(1))
    scores, expected = linear.scores(X)[:, 0], _margin(estimator, X)
    return linear if np.allclose(scores, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()) else None
