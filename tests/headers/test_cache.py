"""Cache directives: one grammar for a header and an argument, and none taken for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers.codec import parse_request
from crp_integrations.headers.records import CacheDirectives

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
        ("max-age=1, MAX-AGE=2", "max-age stands twice"),
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
