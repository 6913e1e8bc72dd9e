"""Posterior bits: every bit is a function of how likely each class or tag is.

A classifier that is trained for one bit has to learn an arbitrary division of the classes. A classifier of the labels
themselves is easier to learn, and what it says about all labels is enough for every bit. So one regression finds the
labels, its scores are calibrated to probabilities p, and each bit is linear in phi = p^0.35, scaled to length 1.
Everything after the regression learns from leave-one-out scores: what rows get that it has not seen.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Encoder
from hashgrove.functions.posterior import POWER, LabelPosterior, UnitRows
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, OneOf, check_parameters
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.supervision import Supervision

__all__ = ["PosteriorBits"]


class _Prepared(NamedTuple):
    """The probabilities of the labels of the training rows."""

    posterior: LabelPosterior


class PosteriorBits(BaseEstimator):  # type: ignore[misc]
    """Bits that are linear in the softened probabilities of the labels; for class labels and tags.

    This hash function is quick to learn and to use, and it is strong with many classes, few labels per class and
    features of a network. It cannot learn from pairs or triplets.

    Parameters
    ----------
    classifier : {"ridge", "logistic"}, default="ridge"
        The regression that predicts the labels. ``"logistic"`` takes longer to train and as long to encode; its
        probabilities are better where there are few labels per class, and worse on some data.
    spread : bool, default=True
        Whether a logistic regression of classes also learns from rows without a label.
    power : float, default=0.35
        The exponent that softens the probabilities. Towards 0 all labels count alike; with 1 only likely labels count.
    n_anchors : int or None, default=None
        Number of random training rows that serve as centres of Gaussian features, from which the labels are then
        predicted. ``None`` means the features themselves. Gaussian features are better where classes are not linearly
        separable; encoding takes longer.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(32, hash_function=PosteriorBits(), random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.8
    True
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "classifier": OneOf(("ridge", "logistic")),
        "spread": Flag(),
        "power": Number(above=0, high=1),
        "n_anchors": Integer(1, or_none=True),
    }
    added: ClassVar[dict[str, Any]] = {"classifier": "ridge", "spread": False}  # what files before these mean
    accepts_stored_rows: ClassVar[bool] = True
    stagewise: ClassVar[bool] = False  # what a bit gets wrong says little about others: all come from the same p
    weighted: ClassVar[bool] = False
    generic_share: ClassVar[float] = 0.25
    semi_supervised: ClassVar[bool] = True

    def __init__(
        self, *, classifier: str = "ridge", spread: bool = True, power: float = POWER, n_anchors: int | None = None
    ) -> None:
        self.classifier = classifier
        self.spread = spread
        self.power = power
        self.n_anchors = n_anchors

    def prepare(
        self,
        X: NDArray[Any] | StoredRows,
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        others: NDArray[Any] | None = None,
        n_jobs: int | None = None,
    ) -> _Prepared:
        """Learn the probabilities of the labels, once per fit."""
        check_parameters(self)
        if supervision is None or not supervision.has_labels:
            raise ValueError(
                "PosteriorBits must be given class labels or tags as y, because it learns how likely each label is. "
                "Got pairs or triplets; use hash_function=BoostedTrees(start='linear'), which learns from them."
            )
        with single_threaded_blas():
            used = others if self.spread and self.classifier == "logistic" else None
            rows = UnitRows.of(X, supervision.weights, rng, n_anchors=self.n_anchors, others=used, n_jobs=n_jobs)
            posterior = LabelPosterior.learn(
                rows, supervision, power=self.power, rng=rng, classifier=self.classifier, n_jobs=n_jobs
            )
        return _Prepared(posterior)

    def learn(
        self, data: _Prepared, z: NDArray[np.int8], weights: NDArray[np.float64] | None, rng: np.random.Generator
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Regress one bit on the softened probabilities."""
        (learned,) = self.learn_batch(data, z[None])
        return learned

    def learn_batch(self, data: _Prepared, Z: NDArray[np.int8]) -> list[tuple[Encoder, NDArray[np.int8]]]:
        """Regress bits on the softened probabilities, in two passes over the rows."""
        posterior = data.posterior
        with single_threaded_blas():
            found = posterior.ridge.solve_each(Z.T, [posterior.penalty] * len(Z))
            encoders = [posterior.encoder(one.weights, one.bias) for one in found]
            book, offset = (np.concatenate([getattr(e, name) for e in encoders]) for name in ("book", "offset"))
            packed = posterior.seen.apply(partial(_pack_bits, book=book, offset=offset))
            bits = np.unpackbits(packed, axis=1, count=len(book))
        outputs = np.where(bits.T, np.int8(1), np.int8(-1))
        return [(posterior.rows.lifted(encoder), output) for encoder, output in zip(encoders, outputs, strict=True)]


def _pack_bits(
    phi: NDArray[np.float32], *, book: NDArray[np.float32], offset: NDArray[np.float32]
) -> NDArray[np.uint8]:
    """The bits of some rows, eight per byte."""
    return np.packbits(phi @ book.T + offset > 0, axis=1)
