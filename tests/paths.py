"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent
DOCS = REPOSITORY / "docs"
BENCHMARKS = REPOSITORY / "benchmarks"
FORMAT1 = TESTS / "format1"
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
