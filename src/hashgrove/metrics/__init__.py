"""Measures of retrieval: `evaluate` ranks a database by Hamming distance and gives a `Report`.

``relevance`` turns labels into words, ``ranking`` counts on distances (no sorting), ``report`` holds the
results, and ``evaluation`` puts them together; the definitions of all measures are in the docstring of
`Report`.
"""

from hashgrove.metrics.evaluation import evaluate
from hashgrove.metrics.ranking import expected_average_precision
from hashgrove.metrics.report import Report

__all__ = ["Report", "evaluate", "expected_average_precision"]
