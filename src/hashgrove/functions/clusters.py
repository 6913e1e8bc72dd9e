"""Classes that nobody labelled: clusters of the rows without a label that are unlike all labelled classes.

If many rows without a label are of classes without labels, searches among these classes matter, and the rows show what
they look like. Clusters of them then stand for further classes: learned bits tell them apart from the labelled classes
and from each other. Whether rows are of new classes shows in the features: `are_familiar` tells whether a row is as
near to a class as rows of the class are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.functions.generic import GenericDirections
from hashgrove.numerics.clusters import spherical_clusters
from hashgrove.numerics.sampling import sample_rows
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.sharing import shared
from hashgrove.storage.stored_rows import StoredRows, joined
from hashgrove.supervision import ClassLabels, Supervision

__all__ = ["are_familiar", "has_new_classes", "with_clusters"]

MAX_ROWS = 10_000  # of each kind
UNFAMILIAR = 0.1  # share of the rows with a label that are farther from their class than a familiar row may be
LEAST_UNFAMILIAR = 0.2  # share of the rows without a label, from which on they show new classes
N_ERRORS = 3  # standard errors that this share must be above UNFAMILIAR
N_DIRECTIONS = 64  # in which clusters are found
ROWS_PER_CLUSTER = 25
MAX_CLUSTERS = 150
SHARE = 0.1  # what all clusters together may count at most, in units of all rows with a label


def are_familiar(others: NDArray[np.float32], rows: NDArray[np.float32], supervision: Supervision) -> NDArray[np.bool_]:
    """Whether other rows are as near to the mean of a class as nine tenths of the labelled rows to their own class.

    All rows have length 1. A labelled row is compared with the mean of the others of its class.
    """
    classes, _ = supervision.evaluation_labels()
    sums, counts = supervision.class_sums(rows), np.bincount(classes)
    has_others = counts[classes] > 1
    if not has_others.any():  # then nothing is known about distances inside classes
        return np.ones(len(others), bool)
    rest = unit_rows(sums[classes] - rows)
    cosines = np.einsum("ij,ij->i", rest, rows)[has_others]
    nearest = (others @ unit_rows(sums[counts > 0]).T).max(axis=1)
    return np.asarray(nearest >= np.quantile(cosines, UNFAMILIAR))


def has_new_classes(
    X: NDArray[Any], supervision: Supervision, others: NDArray[Any] | None, rng: np.random.Generator
) -> bool:
    """Whether at least a fifth of the rows without a label is unlike all classes, and enough of them for a cluster.

    Of rows of the labelled classes a tenth would be; the share must be above that by three standard errors too.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 8)) + 5 * np.eye(8)[np.arange(300) % 3]
    >>> labels, rng = ClassLabels(np.arange(150) % 3), np.random.default_rng(0)
    >>> has_new_classes(X[:150], labels, X[150:], rng)
    False
    >>> has_new_classes(X[:150], labels, X[150:] + 9 * np.eye(8)[7], rng)
    True
    """
    if others is None or not len(others) or not supervision.exclusive:
        return False
    chosen = sample_rows(len(X), MAX_ROWS, rng)
    with single_threaded_blas():
        rows, others = unit_rows(X[chosen]), unit_rows(others[sample_rows(len(others), MAX_ROWS, rng)])
        mean = (rows.sum(axis=0) + others.sum(axis=0)) / np.float32(len(rows) + len(others))
        familiar = are_familiar(unit_rows(others - mean), unit_rows(rows - mean), supervision.subset(chosen))
    n_unfamiliar = np.count_nonzero(~familiar)
    error = np.sqrt(UNFAMILIAR * (1 - UNFAMILIAR) * (1 / len(rows) + 1 / len(others)))
    least = max(LEAST_UNFAMILIAR, UNFAMILIAR + N_ERRORS * error)
    return bool(n_unfamiliar >= max(ROWS_PER_CLUSTER, least * len(others)))


@shared
def with_clusters(
    X: NDArray[Any] | StoredRows, supervision: ClassLabels, others: NDArray[Any], *, rng: np.random.Generator
) -> tuple[Any, ClassLabels]:
    """The rows with a label, then those of ``others`` that are unlike all classes; each of their clusters is a class.

    At most 10,000 other rows are looked at. There is a cluster for 25 of their unfamiliar rows, but no more than 150.
    Clusters are found in the directions that vary most in total, relative to the variation inside classes.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(120, 8)) + 5 * np.eye(8)[np.arange(120) % 4]
    >>> is_known = np.arange(120) % 4 < 2
    >>> labels = ClassLabels(np.arange(120)[is_known] % 4)
    >>> rows, classes = with_clusters(X[is_known], labels, X[~is_known], rng=np.random.default_rng(0))
    >>> len(rows) > 100, classes.n_classes
    (True, 4)
    """
    others = others[sample_rows(len(others), MAX_ROWS, rng)]
    chosen = sample_rows(len(X), MAX_ROWS, rng)
    known = supervision.subset(chosen)
    with single_threaded_blas():
        found = GenericDirections.learn(X[chosen], known, n_directions=N_DIRECTIONS, rng=rng, others=others)
        rows, unknown = np.split(unit_rows(found.rows), [len(chosen)])
        unfamiliar = np.flatnonzero(~are_familiar(unknown, rows, known))
        n_clusters = min(len(unfamiliar) // ROWS_PER_CLUSTER, MAX_CLUSTERS)
        if n_clusters == 0:
            return X, supervision
        Z = unit_rows(found.rows[len(chosen) :][unfamiliar] @ found.directions.T)
        clusters = spherical_clusters(Z, n_clusters, rng)
    together = joined(X, others[unfamiliar])
    return together, supervision.joined_by(clusters, weight=min(1.0, SHARE * len(X) / len(unfamiliar)))
