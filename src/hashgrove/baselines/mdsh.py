"""Multidimensional spectral hashing (Weiss, Fergus and Torralba, ECCV 2012)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.encoders import Linear, Tabulated
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.principal import principal_directions
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number

__all__ = ["MDSH"]

MAX_ROWS = 20_000  # for the density along one direction, evenly spaced: 50 bins need no more
SIGMA_ROWS, SIGMA_NEIGHBOURS = 1000, 50
OUTLIERS = 2.5  # percent, cut off at either end of a direction
DENSITY_FLOOR = 0.1  # of the mean density, so that an empty bin divides nothing by zero
MIN_WEIGHT = 0.1  # of the largest eigenvalue; eigenfunctions below it give no bit


class _Function(NamedTuple):
    """A product of eigenfunctions of different directions, as (direction, number); its eigenvalue is the product."""

    weight: float
    factors: tuple[tuple[int, int], ...]


class MDSH(Hasher):
    """The eigenfunctions of the Gaussian affinity with the largest eigenvalues, thresholded.

    Where the principal components are independent, an eigenfunction of the affinity exp(-||x - y||^2 / 2 sigma^2) is a
    product of eigenfunctions of single directions, and its eigenvalue is the product of theirs. Those of a direction
    are found numerically from a histogram.

    Parameters
    ----------
    n_bits : int
    products : bool
        Whether products of several directions become bits, too. ``False``, as in the authors' code: a code
        holds the single-direction bits only, because the sign of a product is known from its factors.
    sigma : float, optional
        Width of the affinity, in units of the features; ``None`` is the mean distance to the 50th neighbour, over at
        most 1000 evenly spaced rows.
    n_bins : int
        Bins of a histogram.
    random_state : int, RandomState or None
        Not used: nothing here is random. It is there so that all hashers can be made alike.

    Attributes
    ----------
    encoder_ : Tabulated
    eigenvalues_ : float64 array of shape (n_bits,)
        Of the affinity, the constant function's being 1: the weight that the paper gives to each bit.
    directions_ : list of tuples
        Principal directions of each bit, one number each unless ``products``.
    sigma_ : float

    Notes
    -----
    Cost: O(n d^2 + d^3) for the covariance matrix, O(d n_bins^3) for the eigenfunctions; O(n_bits d) a row to encode,
    with ``products`` up to log2(n_bits) times that. There is no limit to the number of bits.

    Codes are compared by the plain Hamming distance, as by every index here and as in comparisons with other methods;
    the paper itself ranks by a weighted one, prod_d (1 + sum_i w_i a_i b_i) over the bits i of each direction d, which
    counts all products of directions without storing them; `eigenvalues_` and `directions_` are what it needs.

    Bits are thresholded at the median. Where fewer than n_bits eigenfunctions have a weight above 0.1, each is
    thresholded several times, at evenly spaced quantiles, much as in the authors' code (which pools the quantiles of
    all functions). That code has a fixed ``sigma`` of 0.1 as its default, whatever the scale of the data.

    References
    ----------
    Y. Weiss, R. Fergus and A. Torralba, "Multidimensional spectral hashing", ECCV 2012. The numerical
    eigenfunctions: R. Fergus, Y. Weiss and A. Torralba, "Semi-supervised learning in gigantic image collections",
    NIPS 2009.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(size=(500, 2)) * [1.2, 1.0]
    >>> MDSH(3, sigma=0.1).fit(X).directions_
    [(0,), (1,), (0,)]
    >>> MDSH(3, sigma=0.1, products=True).fit(X).directions_
    [(0,), (1,), (0, 1)]
    """

    seeded: ClassVar[bool] = False
    eigenvalues_: NDArray[np.float64]
    directions_: list[tuple[int, ...]]
    sigma_: float

    min_samples: ClassVar[int] = 2
    constraints: ClassVar[dict[str, Constraint]] = {
        "products": Flag(),
        "sigma": Number(above=0, or_none=True),
        "n_bins": Integer(3),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        products: bool = False,
        sigma: float | None = None,
        n_bins: int = 50,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.products = products
        self.sigma = sigma
        self.n_bins = n_bins
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Tabulated:
        n_bits = self.n_bits
        mean, directions = principal_directions(X, X.shape[1])
        rows = X[_spread(len(X), MAX_ROWS)]
        projected = Linear(weights=directions, bias=-directions @ mean).scores(rows)
        self.sigma_ = _neighbour_distance(rows) if self.sigma is None else float(self.sigma)
        low, high = np.percentile(projected, [OUTLIERS, 100 - OUTLIERS], axis=0)
        high = np.where(high - low > 1e-9 * (high - low).max(), high, low)  # narrower than that is constant
        used = np.flatnonzero(high > low)
        if not used.size:  # all rows are the same: any function of them is constant
            used, high = np.arange(1), low + 1.0
        tables = {
            int(d): _eigenfunctions(projected[:, d], low[d], high[d], self.sigma_, n_bins=self.n_bins) for d in used
        }
        functions = _largest({d: weights for d, (weights, _) in tables.items()}, n_bits, products=self.products)
        rounds = -(-n_bits // len(functions))
        bits: list[Tabulated] = []
        for quantile in sorted(np.arange(1, rounds + 1) / (rounds + 1), key=lambda q: abs(q - 0.5)):
            for function in functions[: n_bits - len(bits)]:
                bits.append(
                    Tabulated(
                        directions=np.stack([directions[[d]] for d, _ in function.factors]),
                        low=np.array([[low[d] + directions[d] @ mean] for d, _ in function.factors]),
                        high=np.array([[high[d] + directions[d] @ mean] for d, _ in function.factors]),
                        values=np.stack(
                            [
                                _centred(tables[d][1][i], projected[:, d], low[d], high[d], quantile)[None]
                                for d, i in function.factors
                            ]
                        ),
                    )
                )
        chosen = (functions * rounds)[:n_bits]
        self.eigenvalues_ = np.array([function.weight for function in chosen])
        self.directions_ = [tuple(d for d, _ in function.factors) for function in chosen]
        return Tabulated.concatenate(bits)


def _spread(n: int, most: int) -> NDArray[np.intp]:
    """Numbers of at most ``most`` evenly spaced rows of n."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _neighbour_distance(X: NDArray[Any]) -> float:
    queries = _spread(len(X), SIGMA_ROWS)
    k = min(SIGMA_NEIGHBOURS, len(X) - 1)
    points, parts = DistancesTo(X), np.array_split(queries, min(20, len(queries)))
    squared = [np.partition(points.squared(X[part]), k, axis=1)[:, k] for part in parts]
    return float(np.sqrt(np.concatenate(squared)).mean()) or 1.0


def _eigenfunctions(
    x: NDArray[np.float64], low: float, high: float, sigma: float, *, n_bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of the affinity along one direction, falling, and the functions at the bins' centres.

    The generalised eigenproblem (D - P W P) g = lambda P E g of Fergus et al. (equation 2), with P the density, W the
    affinity between bins, and D and P E (which are equal) the row sums of P W P; the affinity's eigenvalue is
    1 - lambda. The constant function is left out.
    """
    knots = np.linspace(low, high, n_bins)
    half = (knots[1] - knots[0]) / 2.0
    counts = np.histogram(np.clip(x, low, high), bins=n_bins, range=(low - half, high + half))[0]
    density = counts / len(x) + DENSITY_FLOOR / n_bins
    W = density[:, None] * np.exp(-0.5 * np.square((knots[:, None] - knots) / sigma)) * density
    root = np.sqrt(W.sum(axis=1))
    values, vectors = eigh(W / root / root[:, None])
    return values[-2::-1], with_fixed_signs(vectors.T[-2::-1]) / root


def _largest(weights: dict[int, NDArray[np.float64]], n_functions: int, *, products: bool) -> list[_Function]:
    """The eigenfunctions of all directions with the largest eigenvalues, largest first.

    Of a product each part is at least as large as the whole, so the best of some directions suffice to find the best
    of one more.
    """
    constant = _Function(1.0, ())
    best: list[_Function] = []
    for direction, values in weights.items():
        start = [constant, *best] if products else [constant]
        least = best[-1].weight if len(best) == n_functions else 0.0
        best += [
            _Function(function.weight * float(value), (*function.factors, (direction, i)))
            for i, value in enumerate(values[:n_functions])
            for function in start
            if function.weight * value > least
        ]
        best = sorted(best, key=lambda function: -function.weight)[:n_functions]
    return [function for function in best if function.weight > MIN_WEIGHT * best[0].weight]


def _centred(
    values: NDArray[np.float64], x: NDArray[np.float64], low: float, high: float, quantile: float
) -> NDArray[np.float64]:
    """The function less its quantile over the rows."""
    return values - np.quantile(np.interp(x, np.linspace(low, high, len(values)), values), quantile)
