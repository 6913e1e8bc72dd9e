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
EIGEN_TOLERANCE = 1e-4  # the bits are signs, so the last digits of an eigenvector do not matter
DENSE_ROWS = 500  # up to this many, computing all eigenvectors is faster than iterating for the largest
Mask = Callable[[int, int], NDArray[np.bool_]]  # (start, stop) -> which points each of these rows may be linked to


class STH(Hasher):
    """Laplacian eigenmaps of the neighbourhood graph give the training codes, and linear SVMs learn to predict them.

    Each bit is an eigenvector of the graph's Laplacian, thresholded at its median, so that half of the training points
    have a one. The smoothest eigenvectors are used.

    Parameters
    ----------
    n_bits : int
        At most the number of points minus one: the graph has only that many eigenvectors that are not constant.
    n_neighbors : int
        Number of nearest neighbours that each point is linked to. Links have no direction.
    C : float
        Penalty of the SVMs. The default of 1 is that of LIBLINEAR and the authors' code. Features are scaled to [0, 1].
    random_state : int, RandomState or None
        Not used, since nothing is random here. All hashers have this parameter.

    Attributes
    ----------
    encoder_ : Linear
    training_bits_ : bool array of shape (n, n_bits)
        The training codes that the SVMs learned to predict.
    eigenvalues_ : float64 array of shape (n_bits,)
        Eigenvalues of the normalised Laplacian, in ascending order.

    Notes
    -----
    Fitting takes O(n^2 d) for the exact neighbours (minutes for 50,000 x 512), some hundreds of products with the
    sparse graph for the eigenvectors, and O(n d n_bits) per step of the linear SVMs. Memory is
    O(n (d + n_bits + n_neighbors)). Encoding takes O(n_bits d) per row.

    The paper, which is about text, weights the links by cosine similarity. Here distances are Euclidean, to suit
    features of any kind, and the weight of a link is exp(-d^2 / mean d^2 of all links). (The authors' code has
    exp(-d^2 / 2), which depends on the scale of the features.) If the graph has several components, every vector that
    is constant on each of them is an eigenvector, so their rotation is arbitrary; here it is fixed.

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
        """One fewer than points: the graph has one eigenvector per point, and one of them is constant."""
        return n_samples - 1

    def _learn(self, X: NDArray[Any], supervision: Supervision | None, rng: np.random.Generator) -> Linear:
        """Threshold the eigenvectors of the neighbourhood graph, and train one SVM per bit to predict the result."""
        mask = None if supervision is None else _similar_points(supervision)
        graph = _neighbour_graph(X, min(self.n_neighbors, len(X) - 1), mask)
        self.eigenvalues_, embedding = _laplacian_embedding(graph, self.n_bits)
        self.training_bits_ = embedding > np.median(embedding, axis=0)
        signs = np.where(self.training_bits_, 1, -1).astype(np.int8)
        weights, bias = SquaredHinge(X, scale=True).solve_all(signs, C=self.C)
        return Linear(weights=weights, bias=bias)


class STHs(STH, SupervisedHasher):
    """Supervised self-taught hashing: `STH` with a graph that links each point to its nearest similar points only.

    Cost and deviations are those of `STH`.

    Parameters
    ----------
    n_bits, n_neighbors, C, random_state
        As for `STH`.
    min_shared : int
        With tags: points that share at least this many tags are similar.

    Notes
    -----
    With class labels the graph has at least one component per class, so the smoothest eigenvectors, one fewer than
    there are classes, separate the classes. Further eigenvectors split classes, so longer codes are worse at finding
    points of the same class.

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
    """The mask that allows links between similar points only."""
    points = np.arange(len(supervision))
    return lambda start, stop: supervision.signs(points[start:stop], points) > 0


def _neighbour_graph(X: NDArray[Any], n_neighbors: int, mask: Mask | None) -> sparse.csr_array:
    """Symmetric matrix of the Gaussian weights of links to the nearest points that ``mask`` allows.

    The search is exact, with distances in float32.
    """
    n = len(X)
    centred = (X - X.mean(axis=0, dtype=np.float64)).astype(np.float32)
    norms = np.einsum("ij,ij->i", centred, centred)

    def nearest(start: int, stop: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        squared = norms[start:stop, None] + norms - 2.0 * (centred[start:stop] @ centred.T)
        if mask is not None:
            squared[~mask(start, stop)] = np.inf
        squared[np.arange(stop - start), np.arange(start, stop)] = np.inf  # a point is not its own neighbour
        # copied, since a view would keep the whole array in memory
        columns = np.argpartition(squared, n_neighbors - 1, axis=1)[:, :n_neighbors].copy()
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
    """The smallest eigenvalues of the normalised Laplacian except the trivial one, and their eigenvectors as columns.

    The eigenvectors of L v = lambda D v are D^-1/2 times those of D^-1/2 W D^-1/2, largest eigenvalue first. Each
    component of the graph has the eigenvalue 0, and any vector that is constant on each component is an eigenvector.
    These are built directly, since the rounding errors of a solver would split a component at the median. The solver
    finds the rest.
    """
    degree = np.asarray(graph.sum(axis=0)).ravel()
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    component = connected_components(graph, directed=False)[1]
    mass = np.bincount(component, weights=degree)
    whole = np.flatnonzero(mass > 0)  # a point without a link does not count as a component
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
    """At most ``most`` orthonormal columns that are orthogonal to the unit vector ``trivial``, in a fixed rotation."""
    n_columns = min(len(trivial) - 1, most)
    rotation = np.random.default_rng(0).standard_normal((len(trivial), n_columns))
    return np.linalg.qr(np.hstack([trivial[:, None], rotation]))[0][:, 1:]


def _largest_eigenvectors(
    matrix: sparse.csr_array, known: sparse.csr_array, n_vectors: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues of a symmetric matrix, and their eigenvectors as columns, without the ``known`` ones.

    The eigenvalues of ``matrix`` lie within [-1, 1], so subtracting 3 moves the known ones to the other end.
    """
    n = matrix.shape[0]
    if n <= max(DENSE_ROWS, 4 * n_vectors):
        values, vectors = np.linalg.eigh(matrix.toarray() - 3.0 * (known @ known.T).toarray())
    else:
        operator = LinearOperator((n, n), matvec=lambda v: matrix @ v - 3.0 * (known @ (known.T @ v)), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        values, vectors = eigsh(operator, k=n_vectors, which="LA", tol=EIGEN_TOLERANCE, v0=start)
    largest = np.argsort(-values, kind="stable")[:n_vectors]
    return values[largest], with_fixed_signs(vectors.T[largest]).T
