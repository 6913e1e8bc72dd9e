"""A labelled data set and its split into training rows, database and queries, as the spec of a run says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import Dataset
from experiments.specs import Spec

__all__ = ["split"]


def split(dataset: Dataset, spec: Spec, *, seed: int) -> Dataset:
    """Choose training rows, database and queries.

    Fewer training rows leave the database whole, as in the paper's tables; `Dataset.subset` shrinks both.

    Examples
    --------
    >>> from experiments.datasets import load_dataset
    >>> split(load_dataset("digits"), Spec("digits", "lsh", n_train=100), seed=0)
    Dataset('digits': 1797 rows, 64 features, 10 classes; 100 to train, 1200 to search, 597 queries)
    >>> split(load_dataset("digits"), Spec("digits", "lsh", n_train=100, database="held-out"), seed=0)
    Dataset('digits': 1797 rows, 64 features, 10 classes; 100 to train, 1100 to search, 597 queries)
    """
    rng = np.random.default_rng(seed)
    train, query, database = dataset.train, dataset.query, dataset.database
    assert database is not None  # every data set has one
    if spec.unseen is not None:
        classes = np.unique(dataset.labels)
        chosen = rng.choice(classes, max(1, round(spec.unseen * len(classes))), replace=False)
        is_unseen = np.isin(dataset.labels, chosen)
        query, database, train = query[is_unseen[query]], database[is_unseen[database]], train[~is_unseen[train]]
    if spec.n_query is not None:
        query = _draw(query, spec.n_query, rng)
    available = train
    if spec.n_train is not None:
        train = _draw(train, spec.n_train, rng)
    if spec.database == "seen":
        database = train
    elif spec.database == "held-out":
        database = np.setdiff1d(available, train)
    elif spec.database == "queries":
        database = query
    return replace(dataset, train=train, query=query, database=database)


def _draw(rows: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[Any]:
    return np.sort(rng.choice(rows, min(n, len(rows)), replace=False))
