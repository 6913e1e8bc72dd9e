"""Paired comparison of two evaluations of the same queries: the mean difference of a measure, with its interval.

Two methods are measured on the same queries, and a query that is hard for one of them is mostly hard for the other. The
difference per query therefore varies much less than either measure, and its mean has a narrow interval.

The interval is that of Student's t for the mean of the differences. It needs no seed, and since a difference is never
outside -1 and 1, the mean of a few dozen is close enough to normal: a bootstrap over queries ends within a tenth of the
width from it, as a test checks. It answers one question: would other queries of the same kind show the same winner in
this database? It does not include how much another training sample or another seed would change the codes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from hashgrove.runtime.parameters import ParameterError

__all__ = ["CONFIDENCE", "Comparison", "Difference"]

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """Mean difference of a measure over queries, and its 95 % interval.

    Attributes
    ----------
    mean, low, high : float
        Positive where the first method is better. The interval never exceeds -1 and 1, and of one query it is all of
        that.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: NDArray[Any], others: NDArray[Any]) -> Difference:
        """Difference between two measures of the same queries; queries where either is NaN do not count.

        >>> print(Difference.of(np.array([0.5, 0.7, 0.9, np.nan]), np.array([0.4, 0.5, 0.6, 0.1])))
        -0.048 to +0.448
        """
        differences = np.asarray(values, np.float64) - np.asarray(others, np.float64)
        differences = differences[~np.isnan(differences)]
        n = len(differences)
        if n == 0:
            return cls(np.nan, -1.0, 1.0)
        mean = float(differences.mean())
        if n == 1:
            return cls(mean, -1.0, 1.0)
        reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * differences.std(ddof=1) / np.sqrt(n))
        return cls(mean, max(mean - reach, -1.0), min(mean + reach, 1.0))

    @property
    def is_decided(self) -> bool:
        """Whether one of the two is better beyond the interval."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.low:+.3f} to {self.high:+.3f}"


class Comparison(NamedTuple):
    """Differences between two evaluations of the same queries.

    Attributes
    ----------
    map, precision_at_k : Difference
    """

    map: Difference
    precision_at_k: Difference

    @classmethod
    def of(cls, report: Any, other: Any) -> Comparison:
        """Compare two reports of the same queries, each a `Report` or a `VectorReport`."""
        if len(report.average_precision) != len(other.average_precision) or report.k != other.k:
            raise ParameterError(
                "other",
                f"must be an evaluation of the same {len(report.average_precision):,} queries with k={report.k}. "
                f"Got {len(other.average_precision):,} queries with k={other.k} instead.",
            )
        return cls(
            Difference.of(report.average_precision, other.average_precision),
            Difference.of(report.query_precision, other.query_precision),
        )

    def __str__(self) -> str:
        return f"MAP {self.map}, precision {self.precision_at_k}"
