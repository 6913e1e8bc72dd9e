"""Self-taught hashing (Zhang, Wang, Cai and Lu, SIGIR 2010), without labels (STH) and with them (STHs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher, SupervisedHasher
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.squared_hinge import SquaredHinge
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.supervision import Supervision

__all__ = ["STH", "STHs"]

VALUES_PER_CHUNK = 2**22
EIGEN_TOLERANCE = 1e-4  # a bit is a sign: the last digits of an eigenvector do not matter
DENSE_ROWS = 500  # below, all eigenvectors at once are faster than the largest ones by iterations
Mask = Callable[[int, int], NDArray[np.bool_]]  # rows [start, stop) -> which points they may be linked to


class STH(Hasher):
    """Laplacian eigenmaps of the neighbourhood graph give the training codes, and linear SVMs learn to predict them.

    Each bit is an eigenvector of the graph's Laplacian, from the smoothest on, thresholded at its median, so that half
    of the training points have it.

    Parameters
    ----------
    n_bits : int
        At most the number of points less one: the graph has no more eigenvectors that are not constant.
    n_neighbors : int
        Neighbours that a point is linked to; a link of one side is a link.
    C : float
        Penalty of the SVMs; LIBLINEAR's default of 1, as in the authors' code. Features are scaled to [0, 1].
    random_state : int, RandomState or None
        Not used: nothing here is random. It is there so that all hashers can be made alike.

    Attributes
    ----------
    encoder_ : Linear
    training_bits_ : bool array of shape (n, n_bits)
        The codes of the first step, which the SVMs learn.
    eigenvalues_ : float64 array of shape (n_bits,)
        Of the normalised Laplacian, rising.

    Notes
    -----
    Cost: O(n^2 d) for the exact neighbours, in chunks (minutes for 50,000 x 512); some hundreds of
    products with the sparse graph for the eigenvectors; the linear SVMs, O(n d n_bits) a step. Memory O(n (d + n_bits +
    n_neighbors)). O(n_bits d) a row to encode.

    The paper has cosine similarities, as weights of the links, for text; for features of any kind they are Euclidean
    here, with the Gaussian exp(-d^2 / mean d^2 of all links) as weight (the authors' code has exp(-d^2 / 2) there,
    which depends on the scale). Where the graph has several components, the vectors that are constant on each are
    eigenvectors in any rotation; one rotation is fixed here.

    References
    ----------
    D. Zhang, J. Wang, D. Cai and J. Lu, "Self-taught hashing for fast similarity search", SIGIR 2010.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> hasher = STH(8, n_neighbors=5).fit(X)
    >>> hasher.training_bits_.mean(axis=0).tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """

    seeded: ClassVar[bool] = False
    min_samples: ClassVar[int] = 2
    constraints: ClassVar[dict[str, Constraint]] = {"n_neighbors": Integer(1), "C": Number(above=0)}
    training_bits_: NDArray[np.bool_]
    eigenvalues_: NDArray[np.float64]

    def __init__(self, n_bits: int = 64, *, n_neighbors: int = 25, C: float = 1.0, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.n_neighbors = n_neighbors
        self.C = C
        self.random_state = random_state

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """The graph has as many eigenvectors as points, and one of them is constant."""
        return n_samples - 1

    def _learn(self, X: NDArray[Any], supervision: Supervision | None, rng: np.random.Generator) -> Linear:
        mask = None if supervision is None else _similar_points(supervision)
        graph = _neighbour_graph(X, min(self.n_neighbors, len(X) - 1), mask)
        self.eigenvalues_, embedding = _laplacian_embedding(graph, self.n_bits)
        self.training_bits_ = embedding > np.median(embedding, axis=0)
        signs = np.where(self.training_bits_, 1, -1).astype(np.int8)
        weights, bias = SquaredHinge(X, scale=True).solve_all(signs, C=self.C)
        return Linear(weights=weights, bias=bias)


class STHs(STH, SupervisedHasher):
    """Supervised self-taught hashing: `STH` whose graph links a point to its nearest similar ones only.

    Cost and deviations are those of `STH`.

    Parameters
    ----------
    n_bits, n_neighbors, C, random_state
        As for `STH`.
    min_shared : int
        With a tag matrix: points that share this many tags are similar.

    Notes
    -----
    With class labels the graph falls apart into the classes, and the smoothest eigenvectors, one less than there are
    classes, tell these apart. Further ones split the classes within: longer codes find the classes less well.

    References
    ----------
    D. Zhang, J. Wang, D. Cai and J. Lu, "Self-taught hashing for fast similarity search", SIGIR 2010; the
    FastHash paper calls it STHs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> STHs(8, n_neighbors=5).fit(X, X[:, 0] > 0).transform(X).shape
    (100, 1)
    """

    constraints: ClassVar[dict[str, Constraint]] = {"min_shared": Integer(1)}

    def __init__(
        self, n_bits: int = 64, *, n_neighbors: int = 25, C: float = 1.0, min_shared: int = 2, random_state: Any = None
    ) -> None:
        super().__init__(n_bits, n_neighbors=n_neighbors, C=C, random_state=random_state)
        self.min_shared = min_shared


def _similar_points(supervision: Supervision) -> Mask:
    """Which points are similar to those of a chunk of rows."""
    points = np.arange(len(supervision))
    return lambda start, stop: supervision.signs(points[start:stop], points) > 0


def _neighbour_graph(X: NDArray[Any], n_neighbors: int, mask: Mask | None) -> sparse.csr_array:
    """Symmetric Gaussian weights of links to the nearest points, those that ``mask`` allows; exact, in float32."""
    n = len(X)
    centred = (X - X.mean(axis=0, dtype=np.float64)).astype(np.float32)
    norms = np.einsum("ij,ij->i", centred, centred)

    def nearest(start: int, stop: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        squared = norms[start:stop, None] + norms - 2.0 * (centred[start:stop] @ centred.T)
        if mask is not None:
            squared[~mask(start, stop)] = np.inf
        squared[np.arange(stop - start), np.arange(start, stop)] = np.inf  # a point is not its own neighbour
        columns = np.argpartition(squared, n_neighbors - 1, axis=1)[:, :n_neighbors].copy()  # a view would keep it all
        return columns, np.take_along_axis(squared, columns, axis=1)

    parts = run_tasks(nearest, chunks(n, max(1, VALUES_PER_CHUNK // n)))
    columns = np.concatenate([part[0] for part in parts]).ravel()
    squared = np.maximum(np.concatenate([part[1] for part in parts]).ravel().astype(np.float64), 0.0)
    linked = np.isfinite(squared)
    scale = (squared[linked].mean() if linked.any() else 0.0) or 1.0
    rows = np.repeat(np.arange(n), n_neighbors)[linked]
    weights = np.exp(-squared[linked] / scale)
    graph = sparse.csr_array((weights, (rows, columns[linked])), shape=(n, n))
    return graph.maximum(graph.T)


def _laplacian_embedding(graph: sparse.csr_array, n_vectors: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest eigenvalues of the normalised Laplacian but the trivial one, and the eigenvectors, (n, n_vectors).

    Those of L v = lambda D v are D^-1/2 times the eigenvectors of D^-1/2 W D^-1/2, largest first. Each component of
    the graph has the eigenvalue 0, and any vector that is constant on components is an eigenvector: these are built
    directly, since a solver's rounding would tear a component apart at the median. The solver finds the rest.
    """
    degree = np.asarray(graph.sum(axis=0)).ravel()
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    component = connected_components(graph, directed=False)[1]
    mass = np.bincount(component, weights=degree)
    whole = np.flatnonzero(mass > 0)  # a point without a link is none
    place = np.full(len(mass), -1)
    place[whole] = np.arange(len(whole))
    place, mass = place[component], mass[whole]
    members = np.flatnonzero(place >= 0)
    indicators = sparse.csr_array(
        (np.sqrt(degree[members] / mass[place[members]]), (members, place[members])), shape=(len(degree), len(mass))
    )
    constant = _contrasts(np.sqrt(mass / mass.sum()), n_vectors) / np.sqrt(mass)[:, None]
    embedding = np.where(place[:, None] >= 0, constant[place], 0.0)
    values = np.zeros(constant.shape[1])
    if embedding.shape[1] < n_vectors:
        similarity = sparse.diags_array(1.0 / root) @ graph @ sparse.diags_array(1.0 / root)
        more, vectors = _largest_eigenvectors(similarity, indicators, n_vectors - embedding.shape[1])
        values = np.concatenate([values, 1.0 - more])
        embedding = np.hstack([embedding, vectors / root[:, None]])
    return values, embedding


def _contrasts(trivial: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Orthonormal columns, orthogonal to the unit vector ``trivial``, in a fixed rotation: all, or only ``most``."""
    n_columns = min(len(trivial) - 1, most)
    rotation = np.random.default_rng(0).standard_normal((len(trivial), n_columns))
    return np.linalg.qr(np.hstack([trivial[:, None], rotation]))[0][:, 1:]


def _largest_eigenvectors(
    matrix: sparse.csr_array, known: sparse.csr_array, n_vectors: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest eigenvalues of ``matrix``, which is symmetric and within [-1, 1], without the ``known`` eigenvectors."""
    n = matrix.shape[0]
    if n <= max(DENSE_ROWS, 4 * n_vectors):
        values, vectors = np.linalg.eigh(matrix.toarray() - 3.0 * (known @ known.T).toarray())
    else:
        operator = LinearOperator((n, n), matvec=lambda v: matrix @ v - 3.0 * (known @ (known.T @ v)), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        values, vectors = eigsh(operator, k=n_vectors, which="LA", tol=EIGEN_TOLERANCE, v0=start)
    largest = np.argsort(-values, kind="stable")[:n_vectors]
    return values[largest], with_fixed_signs(vectors.T[largest]).T
