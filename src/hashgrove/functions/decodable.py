"""Decodable bits: codes that can be read back as class probabilities.

A posterior p of the classes is all that decides about trained classes, but a code of one bit per hash function keeps
only a rough idea of it. Here the bits of a row are found together, such that a decoder, P(class | code) =
softmax(b V + a), gives probabilities that are as close to p as a code can state. V starts at the code words that step 1
infers for the classes; codes and decoder are then fitted to each other in turns, on probabilities of rows that the
classifier had not seen.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

from hashgrove.encoders import Decodable, Encoder
from hashgrove.encoders.decodable import LARGEST_LOGIT, as_bytes
from hashgrove.encoders.decoding import probabilities
from hashgrove.functions.posterior import LabelPosterior, UnitRows
from hashgrove.numerics.calibration import fit_temperature
from hashgrove.numerics.sampling import sample_rows
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import Constraint, Flag, Integer, OneOf, check_parameters
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.supervision import Supervision

__all__ = ["DecodableBits"]

FIRST_STEP = 0.1  # V starts at this times the code words, for REFERENCE_BITS bits
REFERENCE_BITS = 48
PENALTY = 0.5  # of |V - V_0|^2, divided by the number of rows; these and n_rounds: benchmarks/decodable.py --tune
N_STEPS = 25  # of L-BFGS, per round
MAX_ROWS = 20_000  # that the decoder is fitted to


class _Prepared(NamedTuple):
    """The probabilities of the classes of the training rows, and the labels."""

    posterior: LabelPosterior
    supervision: Supervision


class DecodableBits(BaseEstimator):  # type: ignore[misc]
    """Bits from which the probabilities of the classes can be read; for class labels.

    Of all codes these keep most of what is known about the trained classes of a row. Search with
    `hashgrove.index.Decoded`, which compares the decoded probabilities of the items with those of the query; in an
    engine that only knows the Hamming distance, search with the codes of ``encode_queries``.

    Parameters
    ----------
    classifier : {"ridge", "logistic"}, default="logistic"
        The regression that predicts the classes. ``"logistic"`` takes longer to train; its probabilities are mostly
        better.
    spread : bool, default=True
        Whether a logistic regression also learns from rows without a label.
    n_anchors : int or None, default=None
        Number of random training rows that serve as centres of Gaussian features, from which the classes are then
        predicted. ``None`` means the features themselves.
    n_rounds : int, default=3
        How often codes and decoder are fitted to each other.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash, FlatIndex
    >>> from hashgrove.index import Decoded
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(32, hash_function=DecodableBits(), random_state=0).fit(X[:1000], y[:1000])
    >>> index = FlatIndex(hasher.transform(X[:1000]))
    >>> found = index.search(hasher.transform(X[1000:]), 5, rerank=Decoded(hasher), features=X[1000:])
    >>> bool((y[found.ids] == y[1000:, None]).mean() > 0.8)
    True
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "classifier": OneOf(("ridge", "logistic")),
        "spread": Flag(),
        "n_anchors": Integer(1, or_none=True),
        "n_rounds": Integer(0),
    }
    accepts_stored_rows: ClassVar[bool] = True
    stagewise: ClassVar[bool] = False
    weighted: ClassVar[bool] = False
    generic_share: ClassVar[float] = 0.25
    semi_supervised: ClassVar[bool] = True
    learns_clusters: ClassVar[bool] = False  # codes state how likely the classes of the labels are, and no others

    def __init__(
        self, *, classifier: str = "logistic", spread: bool = True, n_anchors: int | None = None, n_rounds: int = 3
    ) -> None:
        self.classifier = classifier
        self.spread = spread
        self.n_anchors = n_anchors
        self.n_rounds = n_rounds

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
        """Learn the probabilities of the classes."""
        check_parameters(self)
        if supervision is None or not supervision.exclusive:
            raise ValueError(
                "DecodableBits must be given class labels as y, because its codes state how likely each class is. "
                "Got tags or pairs; use hash_function='posterior' for tags and 'trees' for pairs."
            )
        with single_threaded_blas():
            used = others if self.spread and self.classifier == "logistic" else None
            rows = UnitRows.of(X, supervision.weights, rng, n_anchors=self.n_anchors, others=used, n_jobs=n_jobs)
            posterior = LabelPosterior.learn(
                rows, supervision, power=1.0, rng=rng, classifier=self.classifier, n_jobs=n_jobs
            )
        return _Prepared(posterior, supervision)

    def learn_all(
        self, data: _Prepared, Z: NDArray[np.int8], rng: np.random.Generator
    ) -> tuple[Encoder, list[NDArray[np.int8]]]:
        """Fit codes and decoder to each other, and to the probabilities of the classes."""
        posterior, supervision = data.posterior, data.supervision
        labels = supervision.indicator()
        present = np.asarray(labels.sum(axis=0)) > 0
        sums = np.asarray(labels.T @ Z.T)[present]
        words = np.ascontiguousarray(np.where(sums > 0, 1, -1).astype(np.int8).T)
        known = supervision.class_names or range(len(present))
        names = [known[c] for c in np.flatnonzero(present)]
        chosen = sample_rows(len(supervision), MAX_ROWS, rng)
        known_labels = labels[chosen].toarray()[:, present]
        p = probabilities(posterior.logits.take(chosen))
        counts = None if supervision.weights is None else supervision.weights[chosen]
        start = words.astype(np.float64) * (FIRST_STEP * REFERENCE_BITS / len(words))
        encoder = Decodable(
            weights=posterior.rows.sketch.expand(posterior.weights),
            bias=posterior.bias,
            words=words,
            table=start.astype(np.float32),
            offset=np.zeros(len(names), np.float32),
            temperature=np.array(1, np.float32),
            names=as_bytes(names),
        )
        with single_threaded_blas():
            for _ in range(self.n_rounds):
                encoder = _refit(encoder, p, counts, start)
            signs = np.where(encoder.scores_of(p) > 0, 1.0, -1.0)
            logits = signs @ encoder.table.astype(np.float64) + encoder.offset.astype(np.float64)
            factor = fit_temperature(logits, known_labels, counts)
            encoder = _replaced(encoder, temperature=np.array(min(factor, LARGEST_LOGIT), np.float32))
            bits = posterior.seen.apply(lambda phi: encoder.scores_of(_shares(phi)) > 0)
        return posterior.rows.lifted(encoder), list(np.where(bits, np.int8(1), np.int8(-1)).T)


def _shares(phi: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities again, which were scaled to length 1."""
    return phi / phi.sum(axis=1, keepdims=True)


def _replaced(encoder: Decodable, **arrays: NDArray[Any]) -> Decodable:
    return type(encoder)(**(encoder.arrays() | arrays))


def _refit(
    encoder: Decodable, p: NDArray[np.float32], counts: NDArray[np.float64] | None, start: NDArray[np.float64]
) -> Decodable:
    """The encoder with the decoder that gives the ``p`` of rows most likely from the codes that they have now.

    V and a minimise mean CE(p, softmax(b V + a)) + PENALTY |V - V_0|^2 / n.
    """
    signs = np.where(encoder.scores_of(p) > 0, np.float32(1), np.float32(-1))
    share = np.full(len(p), 1 / len(p)) if counts is None else counts / counts.sum()
    n_bits, n_classes = start.shape

    def objective(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        V, a = values[:-n_classes].reshape(n_bits, n_classes), values[-n_classes:]
        logits = signs @ V.astype(np.float32) + a.astype(np.float32)
        decoded = probabilities(logits)
        fit = share @ np.einsum("ij,ij->i", p, np.log(np.maximum(decoded, 1e-30)))
        gap = ((decoded - p) * share[:, None]).astype(np.float32)
        pull = V - start
        gradient = signs.T @ gap + 2 * PENALTY / len(p) * pull
        return PENALTY / len(p) * np.square(pull).sum() - fit, np.append(gradient.ravel(), gap.sum(axis=0)).astype(
            np.float64
        )

    first = np.append(encoder.table.ravel(), encoder.offset).astype(np.float64)
    values = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": N_STEPS}).x
    largest = (np.abs(values[:-n_classes].reshape(start.shape)).sum(axis=0) + np.abs(values[-n_classes:])).max()
    values = (values * min(1.0, 0.999 * LARGEST_LOGIT / largest)).astype(np.float32)
    return _replaced(encoder, table=values[:-n_classes].reshape(start.shape), offset=values[-n_classes:])
