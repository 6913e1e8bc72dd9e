"""Multidimensional spectral hashing (Weiss, Fergus and Torralba, ECCV 2012)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.encoders import Encoder, Linear
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.principal import principal_directions
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number

__all__ = ["MDSH", "Tabulated"]

MAX_ROWS = 20_000  # evenly spaced rows that the histograms are made from; 50 bins do not need more
SIGMA_ROWS, SIGMA_NEIGHBOURS = 1000, 50
OUTLIERS = 2.5  # percent of the rows that are ignored at each end of a direction
DENSITY_FLOOR = 0.1  # share of the mean density that is added to each bin, to avoid a division by zero
PADDING = {"directions": 0.0, "low": 0.0, "high": 1.0, "values": 1.0}  # a factor that is 1 everywhere
MIN_WEIGHT = 0.1  # share of the largest eigenvalue; eigenfunctions below it give no bit


class _Eigenfunction(NamedTuple):
    """A product of eigenfunctions of different directions; its eigenvalue is the product of theirs.

    Each factor is (direction, number of the eigenfunction along that direction).
    """

    eigenvalue: float
    factors: tuple[tuple[int, int], ...]


class MDSH(Hasher):
    """The eigenfunctions of the Gaussian affinity with the largest eigenvalues, thresholded.

    If the principal components are independent, an eigenfunction of the affinity exp(-||x - y||^2 / 2 sigma^2) is a
    product of eigenfunctions of single directions, and its eigenvalue is the product of their eigenvalues. The
    eigenfunctions along one direction are computed numerically from a histogram.

    Parameters
    ----------
    n_bits : int
    products : bool
        Whether eigenfunctions of several directions become bits, too. With ``False``, as in the authors' code, a code
        holds the bits of single directions only, because these determine the sign of a product.
    sigma : float, optional
        Width of the affinity, in units of the features; ``None`` means the mean distance to the 50th neighbour, over at
        most 1000 evenly spaced rows.
    n_bins : int
        Number of bins of each histogram.
    random_state : int, RandomState or None
        Not used, since nothing is random here. All hashers have this parameter.

    Attributes
    ----------
    encoder_ : Tabulated
    eigenvalues_ : float64 array of shape (n_bits,)
        Eigenvalue of each bit, relative to that of the constant function: the weight that the paper gives to the bit.
    directions_ : list of tuples
        Numbers of the principal directions that each bit depends on: one, or several with ``products``.
    sigma_ : float
        The width that was used.

    Notes
    -----
    Fitting takes O(n d^2 + d^3) for the principal directions and O(d n_bins^3) for the eigenfunctions. Encoding takes
    O(n_bits d) per row, with ``products`` up to log2(n_bits) times that. The number of bits is not limited.

    Codes are compared by the plain Hamming distance, as every index here does and as in comparisons with other methods.
    The paper itself ranks by the weighted similarity prod_d (1 + sum_i w_i a_i b_i) over the bits i of each direction
    d, which takes account of all products of directions without storing them. `eigenvalues_` and `directions_` hold
    what it needs.

    Bits are thresholded at the median. If fewer than n_bits eigenfunctions have a weight above 0.1, each of them is
    thresholded several times, at evenly spaced quantiles, much as in the authors' code (which pools the quantiles of
    all functions). The default ``sigma`` of that code is 0.1, whatever the scale of the data.

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
        """Find the eigenfunctions along each principal direction, and threshold those of the largest eigenvalues."""
        n_bits = self.n_bits
        mean, directions = principal_directions(X, X.shape[1])
        rows = X[_spread(len(X), MAX_ROWS)]
        projected = Linear(weights=directions, bias=-directions @ mean).scores(rows)
        self.sigma_ = _neighbour_distance(rows) if self.sigma is None else float(self.sigma)
        low, high = np.percentile(projected, [OUTLIERS, 100 - OUTLIERS], axis=0)
        high = np.where(high - low > 1e-9 * (high - low).max(), high, low)  # a narrower direction counts as constant
        used = np.flatnonzero(high > low)
        if not used.size:  # all rows are equal, so any function of them is constant
            used, high = np.arange(1), low + 1.0
        tables = {
            int(d): _eigenfunctions(projected[:, d], low[d], high[d], self.sigma_, n_bins=self.n_bins) for d in used
        }
        functions = _largest({d: values for d, (values, _) in tables.items()}, n_bits, products=self.products)
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
        self.eigenvalues_ = np.array([function.eigenvalue for function in chosen])
        self.directions_ = [tuple(d for d, _ in function.factors) for function in chosen]
        return Tabulated.concatenate(bits)


def _spread(n: int, most: int) -> NDArray[np.intp]:
    """The numbers of at most ``most`` evenly spaced rows out of n."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _neighbour_distance(X: NDArray[Any]) -> float:
    """Mean distance of evenly spaced rows to their 50th nearest neighbour."""
    queries = _spread(len(X), SIGMA_ROWS)
    k = min(SIGMA_NEIGHBOURS, len(X) - 1)
    points, parts = DistancesTo(X), np.array_split(queries, min(20, len(queries)))
    squared = [np.partition(points.squared(X[part]), k, axis=1)[:, k] for part in parts]
    return float(np.sqrt(np.concatenate(squared)).mean()) or 1.0


def _eigenfunctions(
    x: NDArray[np.float64], low: float, high: float, sigma: float, *, n_bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of the affinity along one direction, in descending order, and the eigenfunctions at the bin centres.

    They solve the generalised eigenproblem (D - P W P) g = lambda P E g of Fergus et al. (equation 2). P is the
    density, W the affinity between bins, and D = P E holds the row sums of P W P. The eigenvalue of the affinity is
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


def _largest(eigenvalues: dict[int, NDArray[np.float64]], n_functions: int, *, products: bool) -> list[_Eigenfunction]:
    """The eigenfunctions of all directions with the largest eigenvalues, largest first.

    No eigenvalue is above 1, so no product is larger than any of its factors. Directions can therefore be added one by
    one: the best functions so far suffice to find the best functions with one more direction.
    """
    constant = _Eigenfunction(1.0, ())
    best: list[_Eigenfunction] = []
    for direction, values in eigenvalues.items():
        start = [constant, *best] if products else [constant]
        least = best[-1].eigenvalue if len(best) == n_functions else 0.0
        best += [
            _Eigenfunction(function.eigenvalue * float(value), (*function.factors, (direction, i)))
            for i, value in enumerate(values[:n_functions])
            for function in start
            if function.eigenvalue * value > least
        ]
        best = sorted(best, key=lambda function: -function.eigenvalue)[:n_functions]
    return [function for function in best if function.eigenvalue > MIN_WEIGHT * best[0].eigenvalue]


def _centred(
    values: NDArray[np.float64], x: NDArray[np.float64], low: float, high: float, quantile: float
) -> NDArray[np.float64]:
    """The tabulated function minus its quantile over the rows."""
    return values - np.quantile(np.interp(x, np.linspace(low, high, len(values)), values), quantile)


@dataclass(frozen=True, eq=False)
class Tabulated(Encoder):
    """Scores prod_f g_fb(w_fb x): for each bit b, the product of ``n_factors`` piecewise linear functions.

    A function has its knots at equal steps from ``low`` to ``high`` and is constant outside of this interval. A bit
    that needs fewer factors than another one is filled up with functions that are 1 everywhere.

    Parameters
    ----------
    directions : float64 array of shape (n_factors, n_bits, n_features)
    low, high : float64 array of shape (n_factors, n_bits)
    values : float64 array of shape (n_factors, n_bits, n_knots)
        The values of each function at its knots; there must be at least two knots.

    Examples
    --------
    >>> encoder = Tabulated(
    ...     directions=np.ones((1, 1, 1)), low=np.zeros((1, 1)), high=np.ones((1, 1)), values=np.array([[[-1.0, 3.0]]])
    ... )
    >>> encoder.scores([[0.0], [0.5], [7.0]]).tolist()
    [[-1.0], [1.0], [3.0]]
    """

    directions: Annotated[NDArray[np.float64], ("factors", "bits", "features")]
    low: Annotated[NDArray[np.float64], ("factors", "bits")]
    high: Annotated[NDArray[np.float64], ("factors", "bits")]
    values: Annotated[NDArray[np.float64], ("factors", "bits", "knots")]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        X = X.astype(np.float64, copy=False)
        scores = np.ones((len(X), self.n_bits))
        bits, last = np.arange(self.n_bits), self.values.shape[2] - 1
        for directions, low, high, values in zip(self.directions, self.low, self.high, self.values, strict=True):
            position = (np.clip(X @ directions.T, low, high) - low) / (high - low) * last
            # fmin ignores NaN, which the sums of huge products can give: no knot is outside of the table
            knot = np.fmin(position, last - 1).astype(np.intp)
            left = values[bits, knot]
            scores *= left + (position - knot) * (values[bits, knot + 1] - left)
        return scores

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder of all bits, with as many factors as the longest; all must have the same number of knots."""
        n_factors = max(len(encoder.low) for encoder in encoders)
        return super().concatenate([encoder._padded(n_factors) for encoder in encoders])

    def _padded(self, n_factors: int) -> Self:
        padded = {}
        for name, array in self.arrays().items():
            more = np.full((n_factors - len(array), *array.shape[1:]), PADDING[name])
            padded[name] = np.concatenate([array, more])
        return type(self)(**padded)
