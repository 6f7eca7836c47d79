"""What is written is read back, in both directions, in any case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.headers import codec, names
from crp_integrations.headers.codec import (
    REQUEST,
    UP,
    parse_request,
    parse_response,
    write_request,
    write_response,
)
from crp_integrations.headers.grammar import GRAMMAR, LIMITS, MOST_CHARACTERS
from crp_integrations.headers.records import RequestHeaders, ResponseHeaders
from crp_integrations.headers.response_headers import render_headers
from tests.headers.header_samples import (
    EVERY,
    REQUEST_ONLY,
    RESPONSE_ONLY,
    SESSION,
    envelope,
    report,
    seal,
)
from tests.headers.header_strategies import ASKED, REQUESTS, RESPONSES, SAID, any_case
from tests.requirements.rows import ROOT

FLIPS = st.lists(st.booleans(), max_size=80)
# What tells upper from lower case: ids, secrets, and text that is read elsewhere.
EXACT = {
    names.SESSION_ID, names.CONTINUATION_ID, names.SESSION_PARENT, names.NONCE,
    names.SESSION_TOKEN, names.SET_SESSION, names.POLICY, names.POLICY_REPORT_ONLY,
    names.POLICY_APPLIED, names.SAFETY_REPORT_URI, names.REPORT_URI, names.TRAIL_URI,
    names.TRAIL_ID, names.DAG_ROOT, names.LINEAGE,
}  # fmt: skip


@given(RESPONSES)
def test_what_a_response_says_is_read_back(said: ResponseHeaders) -> None:
    assert parse_response(write_response(said)) == said


@given(REQUESTS)
def test_what_a_request_asks_is_read_back(asked: RequestHeaders) -> None:
    assert parse_request(write_request(asked)) == asked


@given(RESPONSES, FLIPS)
def test_names_are_read_in_any_case(said: ResponseHeaders, flips: list[bool]) -> None:
    written = {any_case(name, flips): value for name, value in write_response(said).items()}
    assert parse_response({**written, "Content-Type": "x", "CRP-Of-Tomorrow": "1"}) == said


@given(REQUESTS, FLIPS)
def test_words_of_a_request_are_read_in_any_case(asked: RequestHeaders, flips: list[bool]) -> None:
    written = {
        any_case(name, flips): value if name in EXACT else any_case(value, flips)
        for name, value in write_request(asked).items()
    }
    assert parse_request(written) == asked


def test_every_header_is_a_field_with_a_rule_and_a_value_to_try() -> None:
    assert set(codec.RESPONSE) == set(ResponseHeaders.model_fields)
    assert set(codec.REQUEST) == set(RequestHeaders.model_fields)
    assert set(SAID) == set(codec.RESPONSE) - {"protocol_version"}
    assert set(ASKED) == set(codec.REQUEST)
    named = {form.name for form in (*codec.RESPONSE.values(), *codec.REQUEST.values())}
    assert named == set(EVERY) == set(GRAMMAR)


@pytest.mark.parametrize("name", EVERY)
def test_a_header_is_a_field_of_the_directions_that_it_has(name: str) -> None:
    ways = {
        "request": name in {form.name for form in codec.REQUEST.values()},
        "response": name in {form.name for form in codec.RESPONSE.values()},
    }
    assert ways == {"request": name not in RESPONSE_ONLY, "response": name not in REQUEST_ONLY}


def test_a_window_is_read_back() -> None:
    headers = render_headers(
        envelope(), report(), session_id=SESSION, window_number=2, window_total=5, seal=seal()
    )
    said = parse_response(headers)
    assert said.facts_used == (2, 4)
    assert said.saturation == 0.994
    assert write_response(said) == headers


def test_nothing_said_and_nothing_asked_is_no_header() -> None:
    assert write_request(RequestHeaders()) == {}
    assert write_response(ResponseHeaders()) == {names.PROTOCOL: "3.0.0"}


PAGE = ROOT / "docs" / "reference" / "headers.md"


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number in {MOST_CHARACTERS, *LIMITS.values()}:
        assert f"{number:,}" in text
    assert len(UP) == 6


def test_the_page_lists_every_request_header_with_a_value_that_is_taken() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("## What a caller may ask")[1].split("##")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| `CRP-")
    ]
    listed = {}
    for name, value, _ in rows:
        said = value.split("`")[1]
        listed[name.strip("`")] = said + "0" * 64 if "hexadecimal" in value else said
    assert set(listed) == {field.name for field in REQUEST.values()}
    for name, value in listed.items():
        if "…" not in value:
            assert set(write_request(parse_request({name: value}))) == {name}
