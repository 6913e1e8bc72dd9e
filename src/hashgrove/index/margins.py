"""Ties by margins: items at the same Hamming distance in the order of how sure the model is of the bits that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import digest_of, unpack
from hashgrove.index.rerank import StoredRows, order_candidates
from hashgrove.runtime.parameters import Integer, ParameterError

__all__ = ["BreakTies"]


@dataclass(frozen=True, eq=False)
class BreakTies:
    """Order items by Hamming distance, and those that tie by the margins of the bits in which they differ.

    An item comes first if the encoder is less sure of the bits of the query in which it differs: the sum of the
    absolute scores of these bits is smaller. Items with equal codes still tie, and are in ascending order of their ids.
    Distances are Hamming distances (uint16), so this needs only the ``features`` of the queries.

    Parameters
    ----------
    encoder : Encoder or hasher
        The model of the index.
    max_candidates : int
        Items that tie with the last result are looked at, as long as there are at most this many items in all.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash, FlatIndex
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(16, hash_function="posterior", random_state=0).fit(X[:500], y[:500])
    >>> index = FlatIndex(hasher.transform(X[500:1700]))
    >>> found = index.search(hasher.transform(X[1700:]), 10, rerank=BreakTies(hasher), features=X[1700:])
    >>> bool((found.distances == index.search(hasher.transform(X[1700:]), 10).distances).all())
    True
    """

    encoder: Any
    max_candidates: int = 256

    @property
    def model(self) -> str | None:
        """Digest of the model that the margins are of."""
        return digest_of(self.encoder)

    def search(
        self,
        nearest: Callable[[NDArray[np.uint8], int], tuple[NDArray[np.uint16], NDArray[Any]]],
        codes: NDArray[np.uint8],
        k: int,
        features: ArrayLike | None,
        *,
        stored: StoredRows | None,
        codes_of: Callable[[NDArray[Any]], NDArray[np.uint8]],
        n_jobs: int | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Distances and ids of the ``k`` best candidates; see `hashgrove.index.rerank.Order`."""
        at_most = max(k, int(Integer(1).check("max_candidates", self.max_candidates)))
        if features is None or np.shape(features)[:1] != (len(codes),):
            got = "None" if features is None else np.shape(features)
            raise ParameterError("features", f"must have {len(codes)} rows, one per query, for 'rerank'. Got {got}.")
        encoder = getattr(self.encoder, "encoder_", self.encoder)  # that of a hasher
        margins = np.abs(encoder.scores(features, n_jobs=n_jobs)) if len(codes) else np.empty((0, 0))
        with np.errstate(invalid="ignore"):
            margins = margins / np.maximum(margins.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        margins[~np.isfinite(margins).all(axis=1)] = 0  # scores beyond the largest float: ties stay ties

        def distances(query: int, candidates: NDArray[Any]) -> NDArray[np.float32]:
            differ = unpack(codes_of(candidates) ^ codes[query], n_bits=margins.shape[1])
            ranks: NDArray[np.float32] = (differ.sum(axis=1) + 0.99 * (differ @ margins[query])).astype(np.float32)
            return ranks

        ranks, ids = order_candidates(nearest, codes, k, distances, wanted=k, at_most=at_most, n_jobs=n_jobs)
        return ranks.astype(np.uint16), ids
