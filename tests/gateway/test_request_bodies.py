"""A body is JSON in UTF-8, framed in one way, and costs no more for being wrong in many places."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from crp_integrations.gateway.records import ChatRequest, NewFacts
from tests.gateway.application import ASKED, BODY, FACTS, Gateway, Served, served
from tests.servers import Double

CHAT = "/v1/chat/completions"


def posted(gateway: Gateway, body: bytes, **headers: str) -> Any:
    return gateway.client.post(CHAT, content=body, headers=gateway.headers(**headers))


def message(response: Any) -> str:
    return str(response.json()["error"]["message"])


# --- what it says it is --------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "application/jsonx",
        "json",
    ],
)
def test_another_kind_of_body_is_415(gateway: Gateway, server: Double, said: str) -> None:
    response = posted(gateway, json.dumps(BODY).encode(), **{"Content-Type": said})
    assert response.status_code == 415
    assert "application/json" in message(response)
    assert not server.requests


def test_a_compressed_body_is_415_and_named(gateway: Gateway) -> None:
    body = json.dumps(BODY).encode()
    response = posted(gateway, body, **{"Content-Encoding": "gzip"})
    assert response.status_code == 415
    assert "gzip" in message(response)
    assert posted(gateway, body, **{"Content-Encoding": "identity"}).status_code == 200


def test_a_request_without_a_body_may_say_what_it_likes(gateway: Gateway) -> None:
    assert gateway.get("/v1/facts", **{"Content-Type": "text/plain"}).status_code == 200


# --- what it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_json_in_another_encoding_is_400(gateway: Gateway, encoding: str) -> None:
    text = json.dumps({**BODY, "user": "é"}, ensure_ascii=False)
    response = posted(gateway, text.encode(encoding))
    assert response.status_code == 400
    assert "UTF-8" in message(response)


def test_a_mark_of_utf_8_in_front_is_passed_over(gateway: Gateway) -> None:
    assert posted(gateway, json.dumps(BODY).encode("utf-8-sig")).status_code == 200


def test_a_refusal_does_not_repeat_a_path_of_any_length(gateway: Gateway) -> None:
    deep: Any = 1.5
    for _ in range(900):
        deep = [deep]
    response = gateway.post(CHAT, {**BODY, "response_format": {"a": deep}})
    assert response.status_code in (200, 400)
    assert len(response.content) < 1_000


def test_a_picture_is_refused_in_words_that_say_so(gateway: Gateway) -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}},
    ]
    response = gateway.post(CHAT, {**BODY, "messages": [{"role": "user", "content": content}]})
    assert response.status_code == 400
    assert "image_url" in message(response)
    assert "text" in message(response)
    assert "pictures.example" not in response.text


# --- how it is framed ------------------------------------------------------------------------


def said(gateway: Served, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as line:
        line.sendall(data)
        found = b""
        while piece := line.recv(65_536):
            found += piece
        return found


def test_a_body_with_two_lengths_is_refused_and_the_line_closed(
    tmp_path: Path, server: Double
) -> None:
    body = json.dumps(BODY).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with served(tmp_path, server) as gateway:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.keys['acme']}\r\n"
            f"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        ).encode()
        both = head + b"Content-Length: %d\r\n\r\n" % len(chunked)
        found = said(gateway, both + chunked)
        assert found.startswith(b"HTTP/1.1 400")
        assert not server.requests
        one = head + b"Connection: close\r\n\r\n"
        assert said(gateway, one + chunked).startswith(b"HTTP/1.1 200")


# --- facts -----------------------------------------------------------------------------------

SLASHED = ["a/b", "/a", "a/", "a//b", "https://docs.example/lease.md?page=1#2", "a/../b"]


@pytest.mark.parametrize("name", SLASHED)
def test_an_id_with_slashes_can_be_read_and_erased(gateway: Gateway, name: str) -> None:
    fact = {"content": FACTS[0] + f" {name}", "fact_id": name, "source_id": "of " + name}
    assert gateway.post("/v1/facts", {"facts": [fact]}).status_code == 200
    here = "/v1/facts/" + quote(name, safe="")
    assert gateway.get(here).json()["fact_id"] == name
    headers = gateway.headers()
    assert gateway.client.delete(here, headers=headers).status_code == 200
    assert gateway.get(here).status_code == 404
    source = "/v1/sources/" + quote("of " + name, safe="")
    erased = gateway.client.delete(source, headers=headers)
    assert (erased.status_code, erased.json()["facts"]) == (200, [name])


@pytest.mark.parametrize("name", [".", "..", "a\0b"])
@pytest.mark.parametrize("field", ["fact_id", "source_id"])
def test_an_id_that_no_address_can_name_is_400(gateway: Gateway, field: str, name: str) -> None:
    response = gateway.post("/v1/facts", {"facts": [{"content": FACTS[0], field: name}]})
    assert response.status_code == 400
    assert f"facts.0.{field}" in message(response)


def test_a_page_of_no_facts_is_no_page(gateway: Gateway) -> None:
    assert gateway.get("/v1/facts?limit=0").status_code == 400
    assert gateway.get("/v1/facts?limit=1").json()["after"]


def test_facts_that_are_not_to_be_stored_need_a_session(gateway: Gateway) -> None:
    given = {"facts": [{"content": FACTS[0] + " It is kept for nobody else."}]}
    response = gateway.post("/v1/facts", given, **{"CRP-Context-Cache": "no-store"})
    assert response.status_code == 400
    assert "CRP-Context-Session-Id" in message(response)


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
    kind = NewFacts if path == "/v1/facts" else ChatRequest
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
