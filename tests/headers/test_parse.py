"""Headers read: what each says, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import codec, grammar, names
from crp_integrations.headers.codec import (
    parse_request,
    parse_response,
    write_request,
    write_response,
)
from crp_integrations.headers.grammar import GRAMMAR, MOST_CHARACTERS, SECRET
from crp_integrations.headers.names import RetryCondition
from crp_integrations.headers.records import (
    CacheDirectives,
    RequestHeaders,
    ResponseHeaders,
    SetSessionValue,
)
from crp_integrations.vocabulary import (
    QualityTier,
)
from tests.headers.header_samples import ETAG, EVERY, REQUEST_ONLY, RESPONSE_ONLY, SESSION
from tests.headers.header_strategies import REQUESTS, RESPONSES

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
        ({"CRP-Context-Continuation-Id": f"{CONTINUATION},{CONTINUATION}"}, "occurs twice"),
        ({"CRP-Context-Cache": "no-store, no-store"}, "no-store occurs twice"),
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
    with pytest.raises(HeaderSyntaxError, match="occurs twice"):
        parse_request(pairs)
    assert parse_request(pairs[:2]) == RequestHeaders(safety_policy="halt-on HIGH")


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


DIRECTIVES = st.builds(
    CacheDirectives,
    no_store=st.booleans(),
    no_cache=st.booleans(),
    reuse_ckf=st.booleans(),
    only_if_ckf=st.booleans(),
    max_age_seconds=st.none() | st.integers(0, 10**15 - 1),
)


@given(DIRECTIVES.filter(lambda directives: directives.text))
def test_what_is_written_reads_back_in_any_case(directives: CacheDirectives) -> None:
    assert CacheDirectives.parse(directives.text) == directives
    assert CacheDirectives.parse(directives.text.upper().replace(", ", "\t,")) == directives


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not one of"),
        ("no-stor", "'no-stor' is not one of no-store, no-cache"),
        ("no-store,", "'' is not one of"),
        ("max-age", "'max-age' is not one of"),
        ("max-age=1.5", "'max-age=1.5'"),
        ("max-age=٣", "'max-age=٣'"),
        ("max-age=1, MAX-AGE=2", "max-age occurs twice"),
        ("no-store=1", "'no-store=1'"),
    ],
)
def test_what_is_no_directive_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=words) as caught:
        CacheDirectives.parse(text)
    assert caught.value.status_hint == 400


def test_request_headers_hold_directives_and_region() -> None:
    asked = parse_request(
        {"crp-context-cache": "No-Store, max-age=60", "CRP-Compliance-Data-Residency": "EU"}
    )
    assert asked.cache == CacheDirectives(no_store=True, max_age_seconds=60)
    assert asked.residency == "eu"


OF_REQUESTS = {form.name for form in codec.REQUEST.values()}
PIECES = st.lists(
    st.sampled_from(
        ["\r\n", "\x00", "\x0b", "\x85", "\u2028", "١٢", "ſ", "K", "a\r\n b", "1" * 40, "sha256:",
         "crp_sess_", "crp_cont_", "crp_win_", "token=", "; ", ", ", " -> ", "=", "0.5", "1.0",
         "A" * 16, "max-age=", "base64:", "https://a", "%zz", "P1D", "2026-05-25T10:00:00Z", "{}"]
    ),
    max_size=6,
).map("".join)  # fmt: skip
HOSTILE = st.text(max_size=40) | PIECES | st.integers(0, 10**9).map(str)
LONG = (
    "0", "a", "A.1", "crp_win_0123456789abcdef -> ", "crp_cont_0123456789abcdef, ", "push,", "S,",
    "no-store, ", "token=a", "; ", "%41", "\t ", "P1DT1H", "0.0", "inheritance,", "NUMBER_CHANGED,",
)  # fmt: skip
NAME = st.sampled_from(sorted(EVERY)) | st.text(max_size=20).map(lambda x: "CRP-" + x)


def checked(error: HeaderSyntaxError) -> None:
    sentence = str(error)
    assert len(sentence) < 300
    assert not any(ord(character) < 32 for character in sentence)


@given(st.dictionaries(NAME | st.text(max_size=20), HOSTILE, max_size=6))
def test_random_headers_are_read_or_refused(headers: dict[str, str]) -> None:
    law(parse_request, write_request, headers)
    law(parse_response, write_response, headers)


def law(reader: Any, writer: Any, headers: dict[str, str]) -> None:
    """Read, or refused; and whatever could be read can be written and means the same."""
    try:
        made = reader(headers)
    except HeaderSyntaxError as error:
        checked(error)
    else:
        assert reader(writer(made)) == made


@given(REQUESTS, st.integers(0, 99), st.integers(0, 99), HOSTILE, st.booleans())
def test_a_request_that_was_tampered_with(
    asked: RequestHeaders, which: int, place: int, piece: str, keep: bool
) -> None:
    law(parse_request, write_request, tampered(write_request(asked), which, place, piece, keep))


@given(RESPONSES, st.integers(0, 99), st.integers(0, 99), HOSTILE, st.booleans())
def test_a_response_that_was_tampered_with(
    said: ResponseHeaders, which: int, place: int, piece: str, keep: bool
) -> None:
    law(parse_response, write_response, tampered(write_response(said), which, place, piece, keep))


def tampered(
    headers: dict[str, str], which: int, place: int, piece: str, keep: bool
) -> dict[str, str]:
    """Headers of which one value has a piece put in, or put over one of its characters."""
    if not headers:
        return headers
    name = sorted(headers)[which % len(headers)]
    value = headers[name]
    at = place % (len(value) + 1)
    return {**headers, name: value[:at] + piece + value[at + (0 if keep else 1) :]}


@given(st.sampled_from(sorted(GRAMMAR)), HOSTILE)
def test_hostile_values_are_refused_or_plain(name: str, value: str) -> None:
    reader = parse_request if name in OF_REQUESTS else parse_response
    try:
        reader({name: value})
    except HeaderSyntaxError as error:
        checked(error)
        told = str(error)
        assert any(word in told for word in (name, "duration", "moment", "directive", "ids"))
        if name in SECRET and len(value.strip()) > 8:
            assert value.strip() not in told
    else:
        assert value.strip(" \t").isascii()
        assert all(ord(character) >= 32 or character == "\t" for character in value)


@pytest.mark.parametrize("name", RESPONSE_ONLY)
def test_response_names_are_refused_in_a_request(name: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=f"{name} is a response header"):
        parse_request({name.upper(): "S"})


@pytest.mark.parametrize("name", REQUEST_ONLY)
def test_request_names_are_refused_in_a_response(name: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=f"{name} is a request header"):
        parse_response({name.lower(): "S"})


@pytest.mark.parametrize("name", EVERY)
def test_every_header_refuses_control_characters_and_stands_once(name: str) -> None:
    reader = parse_request if name in OF_REQUESTS else parse_response
    for bad in ("a\rb", "a\nb", "a\r\n b", "\x00", "a\x7fb"):
        with pytest.raises(HeaderSyntaxError, match=f"{name} contains a control character"):
            reader({name: bad})
    with pytest.raises(HeaderSyntaxError, match="characters, at most"):
        reader({name: "a" * (MOST_CHARACTERS + 1)})


@pytest.mark.parametrize("name", sorted(GRAMMAR))
def test_a_long_value_is_judged_in_steps_that_grow_with_it(name: str) -> None:
    # A rule that went back over its text would not come to an end here.
    for piece in LONG:
        text = (piece * MOST_CHARACTERS)[: MOST_CHARACTERS - 1] + "é"
        assert GRAMMAR[name].fullmatch(text) is None


def test_a_whole_set_session_is_no_token_and_that_is_said() -> None:
    """Who hands back the header as it came is told which part of it is the token."""
    token = f"{'e' * 40}.{'f' * 43}"
    given = (
        f"token={token}; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=1; QualityHistory=C"
    )
    assert parse_request({names.SESSION_TOKEN: token}).session_token == token
    with pytest.raises(HeaderSyntaxError, match="between token= and the first semicolon") as error:
        parse_request({names.SESSION_TOKEN: given})
    assert token not in str(error.value)
    with pytest.raises(HeaderSyntaxError, match="which its syntax forbids"):
        parse_request({names.SESSION_TOKEN: f"token={token}"})
