"""Measures of retrieval: `evaluate` ranks a database by Hamming distance and returns a `Report`.

``relevance`` converts labels to words, ``ranking`` counts distances (nothing is sorted), ``expectation`` computes
measures from the counts, ``passes`` does so for all queries, ``report`` holds the results, and ``evaluation`` puts
these together. ``protocols`` says what part of a ranking is measured. The docstring of `Report` defines all measures.
``collapse`` counts distinct codes and warns where there are too few, ``lengths`` measures the first bits of codes, and
``vectors`` measures rankings by real vectors, to compare with. ``paired`` compares two evaluations of the same queries.
"""

from hashgrove.metrics.collapse import collapse_warning, count_distinct, describe_codes
from hashgrove.metrics.evaluation import evaluate
from hashgrove.metrics.expectation import expected_average_precision
from hashgrove.metrics.lengths import evaluate_bits
from hashgrove.metrics.paired import Comparison, Difference
from hashgrove.metrics.report import Report
from hashgrove.metrics.vectors import VectorReport, evaluate_vectors

__all__ = [
    "Comparison",
    "Difference",
    "Report",
    "VectorReport",
    "collapse_warning",
    "count_distinct",
    "describe_codes",
    "evaluate",
    "evaluate_bits",
    "evaluate_vectors",
    "expected_average_precision",
]
