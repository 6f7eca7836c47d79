"""What a window's report names is found in its JSON, however that was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crp_integrations.errors import StoreError
from crp_integrations.session.records import WindowNode
from crp_integrations.stores.relational.sessions import WindowContent, content_of
from crp_integrations.vocabulary import Strategy
from tests.doubles import NOON

TEXTS = st.sampled_from(
    ("a", "fact_id", '"fact_id":"b"', '\\"fact_id": "c"', 'x"', "\\", "\\u0061", "é", "\n", "")
)
REPORTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS, inner, max_size=3)
        | st.fixed_dictionaries({"fact_id": inner, "more": inner})
    ),
    max_leaves=12,
)


def named(report: str) -> WindowContent | None:
    node = WindowNode(
        window_id="crp_win_1",
        session_id="crp_sess_0123456789abcdef",
        window_number=1,
        strategy=Strategy.PUSH,
        safety_budget=1.0,
        hmac="",
        timestamp=NOON.now().isoformat(),
        outcome="released",
    )
    return content_of(node, None, report, ["shown"], [])


def ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("fact_id"), str):
            yield value["fact_id"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from ids(one)


@given(REPORTS, st.booleans(), st.sampled_from((None, 2)), st.sampled_from(((",", ":"), None)))
@example({"fact_id": 'a"b\\'}, False, None, None)
@example({"a": '"fact_id":"b"', "fact_id": "c"}, False, None, (",", ":"))
def test_every_fact_of_a_report_is_named_and_no_other(
    report: Any, ascii_: bool, indent: int | None, between: tuple[str, str] | None
) -> None:
    text = json.dumps(report, ensure_ascii=ascii_, indent=indent, separators=between)
    found = named(text)
    assert found is not None
    assert found.report == text
    assert found.facts == tuple(sorted({"shown", *ids(report)}))


def test_a_key_that_is_written_by_its_numbers_is_one_all_the_same() -> None:
    found = named('{"claims": [{"fact\\u005fid": "hidden"}]}')
    assert found is not None
    assert found.facts == ("hidden", "shown")


@pytest.mark.parametrize("report", ['{"fact_id": "a"', '"fact_id": "a"', "fact_id"])
def test_what_is_no_json_is_refused(report: str) -> None:
    with pytest.raises(StoreError, match="cannot be kept"):
        named(report)
