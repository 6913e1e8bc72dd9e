"""Counters of the service, and their text for Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["Counters", "Histogram"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Histogram:
    """Number of values in each bucket.

    >>> histogram = Histogram((1, 2, 4))
    >>> histogram.observe(2)
    >>> histogram.observe(9)
    >>> histogram.counts, histogram.total
    ([0, 1, 0, 1], 11)
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counters:
    """Counts of requests and passes since the start. Several threads may count at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._passes = Histogram(ROWS)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered; ``route`` is the pattern, such as ``/items/{id}``."""
        with self._lock:
            key = method, route, status
            self._requests[key] = self._requests.get(key, 0) + 1
            if route not in self._seconds:
                self._seconds[route] = Histogram(SECONDS)
            self._seconds[route].observe(seconds)

    def search_pass(self, rows: int) -> None:
        """Count a pass over the codes that answered ``rows`` queries."""
        with self._lock:
            self._passes.observe(rows)

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All counters in Prometheus' text format; ``gauges`` are further current values, each with its help.

        >>> print(Counters().text({"items": ("Items in the index.", 3)}).splitlines()[-1])
        hashgrove_items 3
        """
        with self._lock:
            lines = _head("requests_total", "counter", "Requests by method, route and status.")
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'{{method="{method}",route="{_escaped(route)}",status="{status}"}}'
                lines.append(f"hashgrove_requests_total{labels} {count}")
            lines += _head("request_seconds", "histogram", "Time from the request to the end of its answer.")
            for route, histogram in sorted(self._seconds.items()):
                lines += _histogram("request_seconds", histogram, f'route="{_escaped(route)}"')
            lines += _head("pass_queries", "histogram", "Queries that one pass over the codes answered.")
            lines += _histogram("pass_queries", self._passes)
        for name, (meaning, value) in gauges.items():
            lines += [*_head(name, "gauge", meaning), f"hashgrove_{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP hashgrove_{name} {meaning}", f"# TYPE hashgrove_{name} {kind}"]


def _histogram(name: str, histogram: Histogram, label: str = "") -> Iterable[str]:
    found, comma = 0, "," if label else ""
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        found += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f'hashgrove_{name}_bucket{{{label}{comma}le="{edge}"}} {found}'
    braces = f"{{{label}}}" if label else ""
    yield f"hashgrove_{name}_sum{braces} {histogram.total:.9g}"
    yield f"hashgrove_{name}_count{braces} {found}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
