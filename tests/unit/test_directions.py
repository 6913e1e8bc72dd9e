"""Canonical directions: what they must be, against what scikit-learn finds."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.cross_decomposition import CCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hashgrove.numerics.canonical import canonical_directions, linear_directions
from hashgrove.supervision import ClassLabels


def classes_in_a_plane(n=600, n_features=6, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return rng.normal(size=(n, n_features)) @ rng.normal(size=(n_features, n_features)) + rng.normal(
        size=(n_classes, n_features)
    )[y] * 2, y


def test_of_classes_they_span_what_lda_finds():
    X, y = classes_in_a_plane()
    mean, directions, correlations = linear_directions(X, ClassLabels(y).indicator(), regularisation=1e-12)
    ours = (X - mean) @ directions[:3].T
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).transform(X)
    assert (np.diff(correlations) <= 0).all()
    for column in range(3):
        assert abs(np.corrcoef(ours[:, column], lda[:, column])[0, 1]) > 1 - 1e-6
    np.testing.assert_allclose(np.cov(ours.T, bias=True), np.eye(3), atol=1e-6)


def test_of_tags_they_correlate_as_cca_does():
    X, _ = classes_in_a_plane()
    rng = np.random.default_rng(1)
    tags = (X[:, :3] + rng.normal(size=(len(X), 3)) > 0).astype(float)
    _, _, correlations = linear_directions(X, sparse.csr_array(tags), regularisation=1e-12)
    a, b = CCA(3, max_iter=5000, tol=1e-12).fit_transform(X, tags)
    expected = [abs(np.corrcoef(a[:, k], b[:, k])[0, 1]) for k in range(3)]
    np.testing.assert_allclose(correlations, expected, rtol=1e-3)


def test_rows_in_pieces_give_the_same(monkeypatch):
    X, y = classes_in_a_plane()
    X = X - X.mean(axis=0)
    whole = canonical_directions(lambda a, b: X[a:b], ClassLabels(y).indicator(), regularisation=1e-4)
    monkeypatch.setattr("hashgrove.numerics.canonical.ROWS_PER_CHUNK", 7)
    pieces = canonical_directions(lambda a, b: X[a:b], ClassLabels(y).indicator(), regularisation=1e-4)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(one[:3], other[:3], rtol=1e-6, atol=1e-9)
