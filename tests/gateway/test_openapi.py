"""The OpenAPI document, and schemathesis against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from crp_integrations.gateway.app import openapi
from tests.gateway.application import Served, served
from tests.servers import openai_double


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        openai_double(text="Plant 7 was built in 1957.") as double,
        served(tmp_path_factory.mktemp("gateway"), double) as found,
    ):
        yield found


def test_the_document_is_what_is_served(gateway: Served) -> None:
    found = httpx.get(f"{gateway.url}/openapi.json").json()
    assert found == openapi()
    assert found["openapi"].startswith("3.1")


def test_every_reference_of_the_document_resolves() -> None:
    document = openapi()

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == "$ref":
                    yield inner
                else:
                    yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    for reference in references(document):
        place = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


OPERATIONS = [
    (method.upper(), path) for path, methods in openapi()["paths"].items() for method in methods
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=" ".join)
def test_schemathesis_finds_no_server_error(gateway: Served, method: str, path: str) -> None:
    """Every operation with values that fit the document, and with values that do not."""
    schema = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    operation = schema[path][method]
    wanted = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]

    @settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
        bare=st.booleans(),
    )
    def sent(case: Any, bare: bool) -> None:
        key = {"Authorization": f"Bearer {gateway.keys['acme']}"}
        if bare:
            # Without CRP's headers, of which a few random ones seldom go together.
            case.headers = type(case.headers)()
        case.call_and_validate(headers=key, checks=wanted)

    sent()
