"""Decoded ranking: items in the order of how likely they have the class of the query, read from their codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import digest_of
from hashgrove.index.rerank import StoredRows, order_candidates
from hashgrove.runtime.parameters import Integer, ParameterError

__all__ = ["Decoded"]


@dataclass(frozen=True, eq=False)
class Decoded:
    """Order the nearest items that `Index.search` finds again, by the class probabilities that their codes state.

    The distance of an item is 1 - sum_c p(c) P(c | code): p are the class probabilities of the query, which the encoder
    computes from its ``features``, and P those decoded from the code of the item. So no features of items are needed.

    Candidates are the ``n_candidates`` nearest items by Hamming distance from ``encode_queries`` of the features,
    and all further items that tie with the last of them, up to ``max_candidates``. The ``codes`` given to
    `Index.search` say only how many queries there are and which model they are of; those that ``transform`` gives for
    the same rows, and those of ``encode_queries``, have the same result.

    Parameters
    ----------
    encoder : Encoder or FastHash
        The model of the index; its codes must be decodable, as those of ``hash_function="decodable"``.
    n_candidates : int
        Number of candidates, if it is more than ``k``.
    max_candidates : int
        Items that tie with the last candidate are candidates too, as long as there are at most this many.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash, FlatIndex
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(32, hash_function="decodable", random_state=0).fit(X[:500], y[:500])
    >>> index = FlatIndex(hasher.transform(X[500:1700]))
    >>> queries = X[1700:]
    >>> found = index.search(hasher.transform(queries), 10, rerank=Decoded(hasher), features=queries)
    >>> found.distances.shape, found.distances.dtype.name
    ((97, 10), 'float32')
    """

    encoder: Any
    n_candidates: int = 500
    max_candidates: int = 4096

    @cached_property
    def _model(self) -> Any:
        encoder = getattr(self.encoder, "encoder_", self.encoder)  # that of a hasher
        if getattr(encoder, "decoder", None) is None:
            raise ParameterError(
                "encoder",
                "must be a model whose codes can be decoded, as those of FastHash(hash_function='decodable'). "
                f"Got {type(encoder).__name__}.",
            )
        return encoder

    @property
    def model(self) -> str | None:
        """Digest of the model that decodes the codes."""
        return digest_of(self._model)

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
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Distances and ids of the ``k`` best candidates; see `hashgrove.index.rerank.Order`."""
        wanted = max(k, int(Integer(1).check("n_candidates", self.n_candidates)))
        at_most = max(wanted, int(Integer(1).check("max_candidates", self.max_candidates)))
        decoder = self._model.decoder
        if features is None:
            raise ParameterError("features", "must be the features of the queries, for 'rerank'. Got None.")
        if np.shape(features)[:1] != (len(codes),):
            raise ParameterError(
                "features", f"must have {len(codes)} rows, one per query. Got {np.shape(features)} instead."
            )
        if len(codes):
            queries = self._model.as_queries(features, n_jobs=n_jobs)
            codes = np.asarray(queries.codes)

        def distances(query: int, candidates: NDArray[Any]) -> NDArray[np.float32]:
            return 1 - decoder.decode(codes_of(candidates)) @ queries.probabilities[query]

        return order_candidates(nearest, codes, k, distances, wanted=wanted, at_most=at_most, n_jobs=n_jobs)
