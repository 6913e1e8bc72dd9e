"""Measures of the first bits of codes: a curve to choose the length of codes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import pack, unpack
from hashgrove.metrics.evaluation import evaluate
from hashgrove.metrics.report import Report
from hashgrove.runtime.parameters import Integer

__all__ = ["evaluate_bits"]


class Transformer(Protocol):
    """Anything that gives codes: a hasher."""

    n_bits: int

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Packed codes of ``X``."""


def evaluate_bits(
    hasher: Transformer, X: ArrayLike, *, y: Any, n_bits: Sequence[int] = (16, 32, 64, 128), **options: Any
) -> dict[int, Report]:
    """Measure the first 16, 32, 64, ... bits of the codes of held-out rows, with one fit for all lengths.

    Each row is a query, and the other rows are the database. The bits of a code are learned one after the other, and
    generic bits are spread over it, so the first bits are what a shorter fit would give, or close to it.

    Parameters
    ----------
    hasher : Hasher
        Fitted, with as many bits as the longest length of interest.
    X : array of shape (n, n_features)
        Rows that were not trained on.
    y : class labels or tags
    n_bits : sequence of int
        The lengths to measure; those above ``hasher.n_bits`` are left out.
    **options
        Passed on to `evaluate`, for example ``k=10`` or ``min_shared=1``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(32, hash_function="posterior", random_state=0).fit(X[:1000], y[:1000])
    >>> curve = evaluate_bits(hasher, X[1000:], y=y[1000:], n_bits=[8, 32])
    >>> curve[8].map < curve[32].map
    True
    """
    for length in n_bits:
        Integer(1).check("n_bits", length)
    values = unpack(hasher.transform(X), n_bits=hasher.n_bits)
    curve = {}
    for length in sorted(set(n_bits)):
        if length <= hasher.n_bits:
            codes = pack(values[:, :length])
            curve[int(length)] = evaluate(
                codes, codes, y_queries=y, y_database=y, exclude_self=True, knn=None, **options
            )
    return curve
