"""Random and hostile headers: read, or refused with one sentence; never anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import codec, names
from crp_integrations.headers.codec import (
    parse_request,
    parse_response,
    write_request,
    write_response,
)
from crp_integrations.headers.grammar import GRAMMAR, MOST_CHARACTERS, SECRET
from crp_integrations.headers.records import RequestHeaders, ResponseHeaders
from tests.headers.header_samples import EVERY, REQUEST_ONLY, RESPONSE_ONLY
from tests.headers.header_strategies import REQUESTS, RESPONSES

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
        with pytest.raises(HeaderSyntaxError, match=f"{name} holds a control character"):
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
