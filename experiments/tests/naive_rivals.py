"""Slow and obviously correct versions of what the methods of the paper compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from naive import linear_scores


def sinusoid_scores(X, *, weights, phase):
    """Scores of a Sinusoid encoder."""
    return np.cos(linear_scores(X, weights=weights, bias=phase))


def sphere_scores(X, *, centres, radii):
    """Scores of a Spheres encoder, one distance at a time."""
    return np.array([[r**2 - sum((x - c) ** 2) for c, r in zip(centres, radii, strict=True)] for x in X])


def tabulated_scores(X, *, directions, low, high, values):
    """Scores of a Tabulated encoder, one function of one row at a time."""
    out = np.ones((len(X), directions.shape[1]))
    for f, b in np.ndindex(*low.shape):
        knots = np.linspace(low[f, b], high[f, b], values.shape[2])
        for i, x in enumerate(X):
            out[i, b] *= np.interp(sum(x * directions[f, b]), knots, values[f, b])
    return out


def anchor_graph_scores(X, *, anchors, weights, slopes, intercepts, bandwidth, n_nearest):
    """Scores of an AnchorGraph encoder, one row at a time."""
    out = []
    for x in X:
        squared = [sum((x - a) ** 2) for a in anchors]
        near = sorted(range(len(anchors)), key=squared.__getitem__)[: int(n_nearest)]
        z = {j: np.exp(-squared[j] / bandwidth**2) for j in near}
        y = [sum(z[j] * w[j] for j in near) / sum(z.values()) for w in weights]
        out.append([slopes[int(v > 0), b] * v + intercepts[int(v > 0), b] for b, v in enumerate(y)])
    return np.array(out)


def lloyd(X, centres, *, max_iter):
    """k-means from given centres, one row at a time. Every centre must keep at least one row."""
    for _ in range(max_iter):
        labels = np.array([np.argmin([sum((x - c) ** 2) for c in centres]) for x in X])
        centres = np.array([X[labels == j].mean(axis=0) for j in range(len(centres))])
    return centres


def cut_cost(costs, bits):
    """The sum of the costs of all pairs whose bits differ; ``costs`` is upper triangular."""
    n = len(bits)
    return sum(costs[i, j] for i in range(n) for j in range(i + 1, n) if bits[i] != bits[j])


def least_on_line(features, weights, q, costs):
    """The smallest `cut_cost` of the signs of weights @ features over all values of weight q."""
    rest = weights @ features - weights[q] * features[q]
    edges = sorted(-r / f for r, f in zip(rest, features[q], strict=True) if f != 0)
    values = [edges[0] - 1, *((a + b) / 2 for a, b in pairwise(edges)), edges[-1] + 1]
    return min(cut_cost(costs, rest + value * features[q] > 0) for value in values)
