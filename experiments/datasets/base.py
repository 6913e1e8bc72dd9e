"""A data set: rows with features or images, labels or tags, and a split into training rows, database and queries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.runtime.parameters import Integer

__all__ = ["Dataset", "Images", "seeded_split"]

Images = NDArray[np.uint8] | Sequence[str]
Rows = NDArray[np.int64]

HASHED_BYTES = 2**24  # bytes of an array that are hashed at a time


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A labelled data set and its split into training rows, database and queries.

    Parameters
    ----------
    name : str
        Its name in `experiments.datasets.DATASETS`, or the name of a file or folder of your own.
    labels : array of shape (n,) or (n, n_tags)
        One class per row; or a tag matrix whose entries are not zero where the row has the tag.
    train, query : int64 arrays
        Row numbers of the training rows and of the queries. No row is in both.
    features : array of shape (n, n_features), optional
        One row per item.
    images : uint8 array of shape (n, height, width) or (n, height, width, 3), or sequence of paths, optional
        The images, or their files, which are not decoded here. A data set has features, images or both.
    database : int64 array, optional
        Row numbers of the items that are searched. By default the training rows, as in the paper.
    names : tuple of str, optional
        Names of the classes in the order of their numbers, or of the tags in the order of the columns.
    licence, source : str
        Terms of the data, and where they come from.

    Examples
    --------
    >>> from experiments.datasets import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits
    Dataset('digits': 1797 rows, 64 features, 10 classes; 1200 to train, 1200 to search, 597 queries)
    >>> digits.X_train.shape, digits.y_query.shape
    ((1200, 64), (597,))
    >>> digits.subset(n_train=100, n_query=20, seed=0)
    Dataset('digits': 1797 rows, 64 features, 10 classes; 100 to train, 100 to search, 20 queries)
    """

    name: str
    labels: NDArray[Any]
    train: Rows
    query: Rows
    features: NDArray[Any] | None = None
    images: Images | None = None
    database: Rows | None = None
    names: tuple[str, ...] | None = None
    licence: str = "not stated"
    source: str = "not stated"

    def __post_init__(self) -> None:
        if self.database is None:
            object.__setattr__(self, "database", self.train)
        for field, rows in (("features", self.features), ("images", self.images)):
            if rows is not None and len(rows) != len(self.labels):
                raise ValueError(f"The '{field}' parameter must have {len(self.labels)} rows. Got {len(rows)} instead.")
        if self.features is None and self.images is None:
            raise ValueError("The 'features' or the 'images' parameter must be given. Got neither.")
        for field in ("train", "query", "database"):
            self._check_rows(field)
        if np.intersect1d(self.train, self.query).size:
            raise ValueError("The 'query' parameter must not share rows with 'train'. Got rows that are in both.")

    def _check_rows(self, field: str) -> None:
        rows = getattr(self, field)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) != len(rows):
            raise ValueError(f"The '{field}' parameter must be distinct row numbers. Got {rows!r} instead.")
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise ValueError(
                f"The '{field}' parameter must be row numbers from 0 to {len(self) - 1}. "
                f"Got {rows.min()} to {rows.max()} instead."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        contents = [f"{len(self)} rows"]
        if self.features is not None:
            contents.append(f"{self.features.shape[1]} features")
        if isinstance(self.images, np.ndarray):
            contents.append("x".join(map(str, self.images.shape[1:])) + " images")
        elif self.images is not None:
            contents.append("image files")
        contents.append(f"{self.n_labels} {'tags' if self.has_tags else 'classes'}")
        split = f"{len(self.train)} to train, {len(self._database)} to search, {len(self.query)} queries"
        return f"Dataset({self.name!r}: {', '.join(contents)}; {split})"

    @property
    def has_tags(self) -> bool:
        """Whether the labels are a tag matrix."""
        return self.labels.ndim == 2

    @property
    def n_labels(self) -> int:
        """Number of classes or tags."""
        if self.has_tags:
            return self.labels.shape[1]
        return len(self.names) if self.names is not None else len(np.unique(self.labels))

    @property
    def _database(self) -> Rows:
        assert self.database is not None  # set when the data set was made
        return self.database

    @property
    def _features(self) -> NDArray[Any]:
        if self.features is None:
            raise ValueError(
                f"The data set {self.name!r} has images and no features. Compute features, one row per image, and "
                f"pass them to with_features()."
            )
        return self.features

    @property
    def X_train(self) -> NDArray[Any]:
        """Features of the training rows."""
        return self._features[self.train]

    @property
    def y_train(self) -> NDArray[Any]:
        """Labels or tags of the training rows."""
        return self.labels[self.train]

    @property
    def X_database(self) -> NDArray[Any]:
        """Features of the database."""
        return self._features[self._database]

    @property
    def y_database(self) -> NDArray[Any]:
        """Labels or tags of the database."""
        return self.labels[self._database]

    @property
    def X_query(self) -> NDArray[Any]:
        """Features of the queries."""
        return self._features[self.query]

    @property
    def y_query(self) -> NDArray[Any]:
        """Labels or tags of the queries."""
        return self.labels[self.query]

    def with_features(self, features: ArrayLike) -> Self:
        """The same data set with other features, one row per item.

        Examples
        --------
        >>> from experiments.datasets import load_dataset
        >>> load_dataset("digits").with_features(np.zeros((1797, 3))).X_query.shape
        (597, 3)
        """
        features = np.asarray(features)
        if features.ndim != 2:
            raise ValueError(f"The 'features' parameter must have two dimensions. Got shape {features.shape} instead.")
        return replace(self, features=features)

    def subset(self, *, n_train: int | None = None, n_query: int | None = None, seed: int = 0) -> Self:
        """Draw fewer training rows and queries at random; the features and labels are shared, not copied.

        Parameters
        ----------
        n_train, n_query : int, optional
            Number of rows to keep; all if not given. If the database is the training rows, it becomes the new training
            rows; otherwise it does not change.
        seed : int
            The same seed gives the same rows.
        """
        rng = np.random.default_rng(Integer(0).check("seed", seed))
        train = _draw(self.train, n_train, "n_train", rng)
        query = _draw(self.query, n_query, "n_query", rng)
        database = train if np.array_equal(self._database, self.train) else self._database
        return replace(self, train=train, query=query, database=database)

    def fingerprint(self) -> str:
        """SHA-256 of rows, labels and split in 64 hexadecimal digits, to identify the data of an experiment.

        Name, licence and source do not count. Image files count by their sizes and their names below the folder that
        they all share, not by their bytes: for ImageNet that would mean reading hundreds of gigabytes.

        Examples
        --------
        >>> from experiments.datasets import load_dataset
        >>> digits = load_dataset("digits")
        >>> digits.fingerprint() == load_dataset("digits").fingerprint()
        True
        >>> digits.fingerprint() == digits.subset(n_train=100).fingerprint()
        False
        """
        digest = hashlib.sha256(b"hashgrove dataset 1\n")
        for field in ("features", "images", "labels", "names", "train", "query", "database"):
            value = getattr(self, field)
            digest.update(f"{field}\n".encode())
            if isinstance(value, np.ndarray):
                _hash_array(digest, value)
            elif value is not None:
                lines = _file_lines(value) if field == "images" else value
                digest.update("".join(f"{line}\0" for line in lines).encode(errors="surrogateescape"))
        return digest.hexdigest()


def _draw(rows: Rows, n: int | None, parameter: str, rng: np.random.Generator) -> Rows:
    if n is None:
        return rows
    return np.sort(rng.choice(rows, Integer(1, len(rows)).check(parameter, n), replace=False))


def _hash_array(digest: Any, array: NDArray[Any]) -> None:
    dtype = array.dtype.newbyteorder("<")  # the same bytes on every machine
    digest.update(f"{dtype.str} {array.shape}\n".encode())
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    step = max(1, HASHED_BYTES // row_bytes)
    for start in range(0, len(array), step):
        part = np.ascontiguousarray(array[start : start + step], dtype=dtype)
        digest.update(part.reshape(-1).view(np.uint8))


def _file_lines(paths: Sequence[str]) -> list[str]:
    top = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    return [f"{os.path.relpath(path, top).replace(os.sep, '/')} {os.path.getsize(path)}" for path in paths]


def seeded_split(n_rows: int, n_query: int | None, *, seed: int) -> tuple[Rows, Rows]:
    """Draw queries for data that come without a split: ``n_query`` random rows, by default a tenth of them.

    Examples
    --------
    >>> train, query = seeded_split(10, 3, seed=0)
    >>> train.tolist(), query.tolist()
    ([0, 1, 3, 5, 7, 8, 9], [2, 4, 6])
    """
    n_query = max(1, n_rows // 10) if n_query is None else n_query
    Integer(1, n_rows - 1).check("n_query", n_query)
    Integer(0).check("seed", seed)
    order = np.random.default_rng(seed).permutation(n_rows).astype(np.int64)
    return np.sort(order[n_query:]), np.sort(order[:n_query])
