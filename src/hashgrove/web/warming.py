"""Warming up: the work of a first request, done before it comes."""

from __future__ import annotations

import numpy as np

from hashgrove.codes import hamming
from hashgrove.index import Decoded, Rerank
from hashgrove.web.collection import Collection

__all__ = ["warm_up"]

MANY_QUERIES = 64  # that are searched as a batch
IMAGE = (64, 64, 3)  # shape of the image that warms up an extractor


def warm_up(collection: Collection) -> None:
    """Do once what requests do, so that the first one waits neither for compilers nor for files."""
    if not len(collection.index):
        return
    ids, codes = collection.contents()
    collection.codes_of(ids[:1])
    hamming(codes[:1], codes[:1])
    for n_queries in (1, MANY_QUERIES):  # few and many are searched by different kernels
        collection.index.search(np.repeat(codes[:1], n_queries, axis=0), 1, model=collection.model)
    if collection.extractor is not None:
        for _ in collection.extractor.batches(np.zeros((1, *IMAGE), np.uint8), n_jobs=1):
            pass
    if collection.encoder is not None:
        rows = np.zeros((1, collection.encoder.n_features))
        query = collection.encoder.encode(rows, n_jobs=1)
        weights = np.abs(collection.encoder.scores(rows, n_jobs=1))
        if collection.takes_weights:
            collection.index.search(query, 1, weights=weights, model=collection.model)
        if collection.can_rerank and collection.features_of(ids[:1]) is not None:  # those of other items may be missing
            collection.index.search(query, 1, rerank=Rerank(), features=rows, allowed=ids[:1], model=collection.model)
        if collection.can_decode:
            collection.index.search(query, 1, rerank=Decoded(collection.encoder), features=rows, model=collection.model)
