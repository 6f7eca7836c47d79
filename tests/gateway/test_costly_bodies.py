"""A body that is wrong in a great many places costs no more than one that is wrong in one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from crp_integrations.gateway.records import ChatRequest, GivenFacts
from tests.gateway.houses import ASKED, BODY, Gateway

WRONG = [1] * 200_000
COSTLY: list[tuple[str, Any]] = [
    ("/v1/chat/completions", {**BODY, "messages": WRONG}),
    ("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": WRONG}]}),
    ("/v1/chat/completions", {**BODY, "messages": [{**ASKED[0], "tool_calls": WRONG}]}),
    ("/v1/chat/completions", {**BODY, "stop": WRONG}),
    ("/v1/chat/completions", {**BODY, "modalities": WRONG}),
    ("/v1/preview", {**BODY, "crp": {"sub_queries": WRONG}}),
    ("/v1/facts", {"facts": WRONG}),
    ("/v1/facts", {"facts": [{"content": "x", "labels": WRONG}]}),
]


@pytest.mark.parametrize(("path", "body"), COSTLY, ids=range(len(COSTLY)))
def test_one_error_is_looked_for_and_not_all(path: str, body: Any) -> None:
    kind = GivenFacts if path == "/v1/facts" else ChatRequest
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() < 10


@pytest.mark.parametrize(
    "given",
    [
        {**BODY, "logit_bias": {str(n): "x" for n in range(10_001)}},
        {**BODY, **{f"field{n}": 1 for n in range(10_001)}},
    ],
    ids=["dict", "fields"],
)
def test_an_object_with_too_many_names_is_400(gateway: Gateway, given: Any) -> None:
    response = gateway.post("/v1/chat/completions", given)
    assert response.status_code == 400
    assert "more than 10000 names" in response.json()["error"]["message"]


def test_long_sub_queries_count_as_the_question(gateway: Gateway) -> None:
    given = {**BODY, "crp": {"sub_queries": ["How high is it? " * 500] * 4}}
    response = gateway.post("/v1/preview", given)
    assert response.status_code == 400
    assert "sub-queries have" in response.json()["error"]["message"]
    assert gateway.post("/v1/preview", {**BODY, "crp": {"agent_id": "a" * 201}}).status_code == 400
