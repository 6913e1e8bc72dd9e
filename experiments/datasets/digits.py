"""The handwritten digits that come with scikit-learn: data for examples that need no files and no network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.datasets.base import Dataset, seeded_split
from experiments.datasets.catalogue import Entry, Layout

__all__ = ["ENTRIES"]


def _read(folder: Path, entry: Entry, *, n_query: int = 597, seed: int = 0) -> Dataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    train, query = seeded_split(len(X), n_query, seed=seed)
    return entry.dataset(features=X, labels=y.astype(np.int64), names=tuple("0123456789"), train=train, query=query)


# properties of digits: tags that some digits share, as images share words
TAGS = {
    "even": "02468", "odd": "13579", "small": "01234", "large": "56789", "prime": "2357", "square": "0149",
    "threefold": "0369", "a loop": "0689", "straight lines only": "147", "an open curve": "2356",
}  # fmt: skip


def _read_tags(folder: Path, entry: Entry, *, n_query: int = 597, seed: int = 0) -> Dataset:
    plain = _read(folder, entry, n_query=n_query, seed=seed)
    tags = np.array([[str(digit) in digits for digits in TAGS.values()] for digit in range(10)], np.uint8)
    return replace(plain, labels=tags[plain.labels], names=tuple(TAGS))


ENTRIES = (
    Entry(
        name="digits",
        description="handwritten digits, 8x8 grey values as features",
        labels="10 classes",
        n_train=1_200,
        n_query=597,
        licence="CC BY 4.0",
        source="https://archive.ics.uci.edu/dataset/80",
        split="none: 597 queries drawn by seed",
        layouts=(Layout((), _read),),
        check_rows=False,
        instructions="It comes with scikit-learn.",
    ),
    Entry(
        name="digits-tags",
        description="the same digits, with tags such as 'even' and 'a loop'",
        labels="10 tags",
        n_train=1_200,
        n_query=597,
        licence="CC BY 4.0",
        source="https://archive.ics.uci.edu/dataset/80",
        split="none: 597 queries drawn by seed",
        layouts=(Layout((), _read_tags),),
        check_rows=False,
        instructions="It comes with scikit-learn.",
    ),
)
