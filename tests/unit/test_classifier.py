from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from hashgrove.encoders import ENCODERS, Linear, join
from hashgrove.functions.classifier import Classifier, FittedClassifiers


class OnlyPredict(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.threshold_ = np.median(X[:, 20])
        return self

    def predict(self, X):
        return self.classes_[(X[:, 20] > self.threshold_).astype(int)]


class ShiftedLinear(LogisticRegression):
    """Looks linear, is not."""

    def decision_function(self, X):
        return super().decision_function(X) ** 3


LINEAR = [
    LogisticRegression(max_iter=2000),
    LinearSVC(dual=False),
    Perceptron(),
    RidgeClassifier(),
    SVC(kernel="linear"),
]
LINEAR.append(LogisticRegression(max_iter=2000, fit_intercept=False))
FITTED = [
    RandomForestClassifier(5),
    DecisionTreeClassifier(max_depth=3),
    GaussianNB(),
    KNeighborsClassifier(3),
    SVC(),
    OnlyPredict(),
    ShiftedLinear(max_iter=2000),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


def digits(n=300):
    X, y = load_digits(return_X_y=True)
    return X[:n], np.where(y[:n] < 5, 1, -1).astype(np.int8)


def learn(estimator, X, z, weights=None, seed=0):
    learner, rng = Classifier(estimator), np.random.default_rng(seed)
    return learner.learn(learner.prepare(X, rng), z, weights, rng)


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [(estimator, Linear) for estimator in LINEAR] + [(estimator, FittedClassifiers) for estimator in FITTED],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseEstimator) else value.__name__,
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_encoder_gives_what_the_classifier_predicts(estimator, kind, dtype):
    X, z = digits()
    X = X.astype(dtype)
    encoder, bit = learn(estimator, X, z)
    assert type(encoder) is kind
    assert (encoder.n_bits, encoder.n_features) == (1, 64)
    np.testing.assert_array_equal(bit, np.where(encoder.scores(X)[:, 0] > 0, 1, -1))
    fresh = learn(estimator, X, z)[0]
    np.testing.assert_array_equal(fresh.scores(X), encoder.scores(X))
    if kind is FittedClassifiers:
        np.testing.assert_array_equal(encoder.parts[0].predict(X.astype(np.float64)), bit)


def test_the_given_estimator_is_left_alone():
    X, z = digits()
    estimator = RandomForestClassifier(3)
    learn(estimator, X, z)
    assert estimator.random_state is None
    assert not hasattr(estimator, "estimators_")


def test_seed_reaches_nested_estimators():
    X, z = digits()
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    first, same, other = (learn(estimator, X, z, seed=seed)[0].scores(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_weights_reach_fit_where_it_takes_them():
    X = np.array([[0.0], [0.0], [1.0]])
    z = np.array([-1, 1, 1], np.int8)
    for weights, expected in [([5.0, 1.0, 1.0], -1), ([1.0, 5.0, 1.0], 1)]:
        _, bit = learn(DecisionTreeClassifier(), X, z, np.array(weights))
        assert bit[0] == expected
    learn(KNeighborsClassifier(1), X, z, np.ones(3))


@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB()])
@pytest.mark.parametrize("sign", [-1, 1])
def test_one_class_is_a_constant(estimator, sign):
    X, z = digits(20)
    encoder, bit = learn(estimator, X, np.full_like(z, sign))
    assert type(encoder) is Linear
    assert (bit == sign).all()


@pytest.mark.parametrize("constant_first", [True, False])
def test_linear_and_fitted_bits_together(constant_first):
    X, z = digits()
    parts = [
        learn(GaussianNB(), X, z)[0],
        Linear.constant(1, n_features=64),
        learn(KNeighborsClassifier(1), X, z)[0],
    ]
    parts = parts[1:] + parts[:1] if constant_first else parts
    whole = join(parts)
    assert {type(part) for part in whole.parts} == {Linear, FittedClassifiers}
    assert whole.accepts_sparse
    assert (whole.n_bits, whole.n_features) == (3, 64)
    np.testing.assert_array_equal(whole.scores(X), np.concatenate([part.scores(X) for part in parts], axis=1))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(whole)).encode(X), whole.encode(X))


def test_fitted_is_not_for_model_files():
    assert FittedClassifiers not in ENCODERS.values()
    assert (
        repr(FittedClassifiers(parts=(GaussianNB(), GaussianNB(), SVC()), width=3))
        == "FittedClassifiers(GaussianNB, SVC)"
    )
    with pytest.raises(ValueError, match="estimators"):
        FittedClassifiers.from_arrays({"parts": (), "width": 3})


@pytest.mark.parametrize("estimator", [None, "svm", GaussianNB, StandardScaler()])
def test_estimator_must_be_a_classifier(estimator):
    with pytest.raises(ValueError, match="The 'estimator' parameter must be a scikit-learn classifier"):
        Classifier(estimator).prepare(np.eye(3), np.random.default_rng(0))
