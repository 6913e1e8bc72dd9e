"""Requests that schemathesis makes from the OpenAPI document: no answer breaks the document, none is an inner error."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from web_service import build_digits, open_digits, served

EXAMPLES = 20  # of each operation and mode
OPERATIONS = [
    "GET /health", "GET /info", "GET /report", "GET /metrics", "GET /items", "POST /items", "GET /items/{id}",
    "DELETE /items/{id}", "GET /images/{id}", "POST /encode", "POST /search",
]  # fmt: skip
WITH_INPUT = ["GET /items", "POST /items", "POST /encode", "POST /search"]  # others can hardly be asked wrongly
CASES = [(name, GenerationMode.POSITIVE) for name in OPERATIONS] + [
    (name, GenerationMode.NEGATIVE) for name in WITH_INPUT
]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    build_digits(folder)
    with served(open_digits(folder)) as client:
        yield schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


def test_every_operation_is_tried(document):
    paths = document.raw_schema["paths"]
    assert {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} == set(OPERATIONS)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_answers_are_as_documented(document, name, mode):
    method, path = name.split()
    operation = document[path][method]

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        # a document cannot say how long features and codes of this index are, so that valid requests may be refused
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    ask()
