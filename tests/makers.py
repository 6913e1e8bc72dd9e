"""Makers of small data that tests share: codes, rows with a known structure, pairs and triplets."""

from __future__ import annotations

import numpy as np

from hashgrove.codes import pack


def random_codes(n, n_bits=64, seed=0):
    """Packed codes of independent random bits."""
    return pack(np.random.default_rng(seed).random((n, n_bits)) < 0.5)


def blobs(n=240, n_classes=12, n_features=16, *, noise=0.25, seed=0):
    """Rows around one random direction per class, as in the last layer of a network: X, y."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_classes, n_features))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    y = np.arange(n) % n_classes
    return centres[y] + noise * rng.normal(size=(n, n_features)), y


def sectors(n=400, *, n_classes=3, seed=0):
    """Sectors of the plane, with opposite ones of the same class (as in XOR), so that all classes have the mean 0."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    angle = (y + rng.uniform(0.05, 0.95, n)) * np.pi / n_classes + np.pi * rng.integers(2, size=n)
    return rng.uniform(1, 2, n)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), y


def blob_tags(n=240, n_features=16, *, seed=0):
    """Rows that are noisy sums of one random direction per tag, two or three of five tags each: X, tags."""
    rng = np.random.default_rng(seed)
    tags = np.zeros((n, 5), np.int64)
    for row in tags:
        row[rng.choice(5, size=rng.integers(2, 4), replace=False)] = 1
    directions = np.random.default_rng(98).normal(size=(5, n_features))
    return tags @ directions + 0.5 * rng.normal(size=(n, n_features)), tags


def pairs_of(y, n_pairs=3000, *, seed=0):
    """Random pairs (i, j, relation) of class labels."""
    i, j = np.random.default_rng(seed).integers(len(y), size=(2, n_pairs))
    return np.stack([i, j, np.where(y[i] == y[j], 1, -1)], axis=1)[i != j]


def triplets_of(y, n_triplets=2000, *, seed=0):
    """Random triplets (anchor, positive, negative) of class labels."""
    rng = np.random.default_rng(seed)
    found = []
    for anchor in rng.integers(len(y), size=n_triplets):
        others = np.arange(len(y)) != anchor
        found.append(
            (anchor, rng.choice(np.flatnonzero((y == y[anchor]) & others)), rng.choice(np.flatnonzero(y != y[anchor])))
        )
    return np.array(found)
