"""Headers read: what each says, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import grammar, names
from crp_integrations.headers.codec import parse_request, parse_response
from crp_integrations.headers.names import RetryCondition
from crp_integrations.headers.records import RequestHeaders, SetSessionValue
from crp_integrations.vocabulary import (
    QualityTier,
)
from tests.headers.header_samples import ETAG, SESSION

CONTINUATION = "crp_cont_0123456789abcdef"


@pytest.mark.parametrize(
    "value", ["1", "0", ".5", "1.1", "2.0", "-0.5", "0,5", "1.01", "nan", "1e0", "+0.5", "0.5 0.5"]
)
@pytest.mark.parametrize("name", [names.SATURATION, names.SAFETY_BUDGET, names.QUALITY_SCORE])
def test_a_fraction_needs_its_point_and_its_bounds(name: str, value: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=name):
        parse_response({name: value})


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("120", 120),
        ("PT1H30M", 5_400),
        ("2026-05-25T12:00:00+02:00", datetime(2026, 5, 25, 10, tzinfo=UTC)),
        ("2026-05-25t10:00:00z", datetime(2026, 5, 25, 10, tzinfo=UTC)),
        ("oversight-required", RetryCondition.OVERSIGHT),
        ("New-Session-Required", RetryCondition.NEW_SESSION),
    ],
)
def test_when_to_come_again(text: str, wait: object) -> None:
    assert parse_response({names.RETRY_AFTER: text}).retry_after == wait


@pytest.mark.parametrize(
    "text",
    ["soon", "-1", "1.5", "2026-13-01T00:00:00Z", "2026-05-25", "2026-05-25T10:00:00",
     "0001-01-01T00:00:00+23:59", "P999999999D", "2026-05-25T10:00:00+99:99"],
)  # fmt: skip
def test_when_nobody_can_come_again(text: str) -> None:
    with pytest.raises(HeaderSyntaxError):
        parse_response({names.RETRY_AFTER: text})


def test_a_session_token_with_what_belongs_to_it() -> None:
    text = (
        "token=abc.DEF; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=3; "
        "QualityHistory=A,A,B"
    )
    said = parse_response({names.SET_SESSION: text}).set_session
    assert said == SetSessionValue(
        token="abc.DEF", window=3, quality_history=(QualityTier.A, QualityTier.A, QualityTier.B)
    )
    assert said is not None
    assert "abc.DEF" not in repr(said)


@pytest.mark.parametrize(
    "text",
    [
        "token=abc.DEF",
        "token=abc.DEF; Path=/; Max-Age=3600; SameSite=Strict; Window=3",
        "token=abc.DEF; Path=/; Max-Age=3600; Signed; SameSite=None; Window=3",
        "token=abc.DEF; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=0",
        "token=abc.DEF; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=1; QualityHistory=",
        f"token={'a' * 4_096}.b; Path=/; Max-Age=1; Signed; SameSite=Strict; Window=1",
    ],
)
def test_a_session_token_without_what_belongs_to_it(text: str) -> None:
    with pytest.raises(HeaderSyntaxError, match="CRP-Set-Session") as caught:
        parse_response({names.SET_SESSION: text})
    assert "abc.DEF" not in str(caught.value)


def test_lineage_and_root() -> None:
    one, two = "crp_win_0123456789abcdef", "crp_win_0123456789abcdeF"
    said = parse_response({names.LINEAGE: f"{one} -> {two}", names.DAG_ROOT: "dag:root-1"})
    assert said.lineage == (one, two)
    assert said.dag_root == "root-1"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"CRP-Context-If-Match": "abc"}, "CRP-Context-If-Match has the value 'abc'"),
        ({"CRP-Context-If-Match": f"{ETAG}, {ETAG}"}, "CRP-Context-If-Match has the value"),
        ({"CRP-Context-Continuation-Id": "crp_cont_short"}, "Continuation-Id has the value"),
        ({"CRP-Context-Continuation-Id": f"{CONTINUATION},{CONTINUATION}"}, "stands twice"),
        ({"CRP-Context-Cache": "no-store, no-store"}, "no-store stands twice"),
        ({"CRP-Context-Cache": "max-age=-1"}, "CRP-Context-Cache has the value 'max-age=-1'"),
        ({"CRP-Context-Cache": "keep"}, "CRP-Context-Cache has the value 'keep'"),
        ({"CRP-Compliance-Data-Residency": "Europe"}, "Data-Residency has the value 'Europe'"),
        ({"CRP-Accept-Strategy": "push, teleport"}, "teleport"),
        ({"CRP-Accept-Quality": "S, E"}, "Accept-Quality has the value 'S, E'"),
        ({"CRP-Accept-Quality": ""}, "Accept-Quality has the value ''"),
        ({"CRP-Accept-Risk": "NONE"}, "Accept-Risk has the value 'NONE'"),
        ({"CRP-Safety-Mode": "lenient"}, "Safety-Mode has the value 'lenient'"),
        ({"CRP-Safety-Oversight-Mode": "off"}, "Oversight-Mode has the value 'off'"),
        ({"CRP-Safety-Policy": "halt-on “HIGH”"}, "Safety-Policy has the value"),
        ({"CRP-Safety-Policy": "  "}, "Safety-Policy has the value ''"),
        ({"CRP-Safety-Policy": "x" * 9_000}, "9000 characters"),
        ({"CRP-Safety-Report-URI": "file:///etc/passwd"}, "Report-URI has the value"),
        ({"CRP-Safety-Report-URI": "https://a b"}, "Report-URI has the value"),
        ({"CRP-Safety-Report-URI": "https://a/" + "x" * 2_048}, "at most 2048"),
        ({"CRP-Safety-Nonce": "abc"}, "Nonce has the value 'abc'"),
        ({"CRP-Agent-Safety-Budget": "1"}, "Safety-Budget has the value '1'"),
        ({"CRP-Agent-Loop-Depth": "-1"}, "Loop-Depth has the value '-1'"),
        ({"CRP-Agent-Session-Parent": "me"}, "Session-Parent has the value 'me'"),
        ({"CRP-Agent-Phase": "THINK"}, "Phase has the value 'THINK'"),
        ({"CRP-Session-Token": "a" * 4_095 + ".b"}, "at most 4096"),
        ({"CRP-Oversight-Token": "approved:yes"}, "Oversight-Token has the value of 12 characters"),
        ({"CRP-No-Such-Thing": "1"}, "CRP-No-Such-Thing"),
        ({"CRP-LLM-Grounding-Mode": "loose"}, "loose"),
        ({"CRP-LLM-Reproducibility-Seed": "-1"}, "Seed"),
        ({"CRP-Context-Session-Id": SESSION, "crp-context-session-id": SESSION}, "twice"),
        ({"CRP-Context-Session-Id": SESSION + "\r\nX: y"}, "control character"),
        ({"CRP-Context-Session-Id": SESSION + "\r\n folded"}, "control character"),
        ({"CRP-Context-Session-Id": "x" * 9_000}, "9000 characters"),
        ({"CRP-Context-Session-Id ": SESSION}, "has blanks around it"),
        ({"\r\nCRP-Context-Session-Id": SESSION}, "has blanks around it"),
        ({"CRP-Context-Session-Id": 7}, "type int, wanted text"),
        ({b"CRP-Context-Session-Id": SESSION}, "type bytes"),
    ],
)
def test_what_cannot_be_read_is_refused_not_ignored(headers: dict[str, str], words: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=words) as caught:
        parse_request(headers)
    assert caught.value.status_hint == 400


def test_pairs_show_a_name_that_was_sent_twice_in_one_spelling() -> None:
    pairs = [(names.POLICY, "halt-on HIGH"), ("Accept", "*/*"), (names.POLICY, "oversight auto")]
    with pytest.raises(HeaderSyntaxError, match="stands twice"):
        parse_request(pairs)
    assert parse_request(pairs[:2]) == RequestHeaders(safety_policy="halt-on HIGH")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_no_fraction_is_made_of_other_numbers(value: float) -> None:
    with pytest.raises(HeaderSyntaxError):
        grammar.write_fraction(value)


@given(st.floats(0.0, 1.0))
def test_a_budget_never_grows_on_its_way(budget: float) -> None:
    said = grammar.floor_budget(budget)
    # Noise of sums of decimals is all that may be added.
    assert budget - 1e-4 <= said <= budget + 1e-9
    assert RequestHeaders(safety_budget=budget).safety_budget == said
    assert parse_request({names.SAFETY_BUDGET: f"{said:.4f}"}).safety_budget == said


def test_a_budget_of_many_digits_is_cut_off() -> None:
    assert parse_request({names.SAFETY_BUDGET: "0.99999999"}).safety_budget == 0.9999
    assert parse_request({names.SAFETY_BUDGET: "0.1000"}).safety_budget == 0.1


@given(st.text())
def test_a_slug_is_a_token_or_empty(label: str) -> None:
    made = grammar.slug(label)
    assert made == "" or grammar.TOKEN.fullmatch(made)
