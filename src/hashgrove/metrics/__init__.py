"""Measures of retrieval: `evaluate` ranks a database by Hamming distance and returns a `Report`.

``relevance`` converts labels to words, ``ranking`` counts distances (nothing is sorted), ``report`` holds the results,
and ``evaluation`` puts these together. The docstring of `Report` defines all measures.
"""

from hashgrove.metrics.evaluation import evaluate
from hashgrove.metrics.ranking import expected_average_precision
from hashgrove.metrics.report import Report

__all__ = ["Report", "evaluate", "expected_average_precision"]
