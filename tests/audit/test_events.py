"""Whatever comes in, no event holds a text."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.audit import drafts
from crp_integrations.audit.drafts import (
    DIRECTIVES,
    SHAPES,
    TRIGGERS,
    EventDraft,
    check_draft,
    name_or_hash,
)
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.errors import StoreError
from crp_integrations.policy.directives import DIRECTIVES as POLICY
from crp_integrations.policy.directives import Demand
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    ChainIntegrity,
    Circuit,
    CompletenessLevel,
    EventType,
    HaltReason,
    Oversight,
    Pattern,
    RiskLevel,
    Strategy,
    TransferType,
)
from tests.audit.chain_graphs import RING, SESSION, TENANT, Memory

WINDOW = "crp_win_0000000000000000"
HASH = sha256("x")
CANARY = "zyxcanary"
HOSTILE = (
    f"the {CANARY} opens the vault",
    f"{CANARY}\r\nSet-Cookie: a=b",
    f"<script>{CANARY}</script>",
    f"{CANARY}\u241f{CANARY}",
    f"{CANARY} " * 400,
    f"\x00{CANARY}",
    f"\ud800{CANARY}",
    f"Ü{CANARY}",
    json.dumps({CANARY: 1}),
)
BUILDERS = {
    name: function
    for name, function in inspect.getmembers(drafts, inspect.isfunction)
    if name.startswith("draft_")
}
# What a builder is called with; a text where a type allows one.
VALUES: dict[str, Any] = {
    "policy_hash": HASH, "parent_session": SESSION, "loop_depth": 1, "agent": "writer",
    "safety_budget": 0.85, "parent_hmac": HASH, "parents": [WINDOW], "pattern": Pattern.LINEAR,
    "transfer": TransferType.SUMMARY, "tokens": 12, "summary_hash": HASH,
    "reason": HaltReason.POLICY, "windows": 2, "attempt": 1, "triggers": ["risk"],
    "strategy": Strategy.REFLEXIVE, "to": Strategy.REFLEXIVE, "before": Strategy.PUSH,
    "why": "risk", "directives": ["require-grounding"], "risk_level": RiskLevel.HIGH,
    "report_only": True, "budget": 0.1, "circuit": Circuit.OPEN, "mode": Oversight.HALT,
    "response_hash": HASH, "approved": False, "of": WINDOW, "uncovered": 2, "completeness": 0.5,
    "level": CompletenessLevel.INCOMPLETE, "continuation": 1, "stitch_hash": HASH, "flow": 0.2,
    "remedy": "stitched", "iteration": 3, "tool": "search", "number": 1, "arguments": "{}",
    "result": "found", "failed": True, "tool_calls": 2, "children": [WINDOW], "session": SESSION,
    "chain_tip": HASH, "integrity": ChainIntegrity.VALID, "quality_score": 0.9, "cost": 0.05,
}  # fmt: skip


def arguments(function: Any) -> dict[str, Any]:
    places = {"session_id": SESSION, "window_id": WINDOW}
    return {name: {**VALUES, **places}[name] for name in inspect.signature(function).parameters}


def stored(draft: EventDraft) -> str:
    journal = Memory()
    append_events(journal, journal_key(RING, TENANT), [draft], "2026-05-25T10:00:00Z")
    return journal.written[0].model_dump_json()


def said_of(make: Callable[[], EventDraft]) -> str:
    """What is stored of a draft, or what the refusal says."""
    try:
        return stored(make())
    except (StoreError, TypeError, AttributeError) as error:
        return str(error)


def test_every_type_has_a_shape() -> None:
    assert set(SHAPES) == set(EventType)


@pytest.mark.parametrize("name", BUILDERS)
def test_what_a_builder_makes_is_what_its_type_allows(name: str) -> None:
    given = arguments(BUILDERS[name])
    draft = BUILDERS[name](**given)
    data = check_draft(draft).data
    assert data == draft.data
    said = given.keys() - {"session_id", "window_id", "arguments", "result"}
    assert {field.removesuffix("_hash") for field in data} >= {
        field.removesuffix("_hash") for field in said
    }
    assert json.loads(stored(draft))["data"]["session_id"] == SESSION


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", BUILDERS)
def test_a_text_in_the_place_of_an_argument_leaves_nothing_of_itself(
    name: str, hostile: str
) -> None:
    given = arguments(BUILDERS[name])
    for field in given:
        for value in (hostile, [hostile], [[hostile]], {hostile: hostile}):
            changed = {**given, field: value}
            assert CANARY not in said_of(lambda: BUILDERS[name](**changed)), field  # noqa: B023


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("kind", EventType)
def test_no_field_of_any_type_takes_a_text(kind: EventType, hostile: str) -> None:
    fields = {*SHAPES[kind], "window_hmac", "outcome", "etag", "risk_level", "session_id", hostile}
    for field in fields:
        for value in (hostile, [hostile], {hostile: 1}, 1, hostile.encode("utf-8", "replace")):
            session = hostile if field == "session_id" else ""
            draft = EventDraft(kind, {field: value}, session)
            assert CANARY not in said_of(lambda: draft), field  # noqa: B023


@pytest.mark.parametrize("kind", EventType)
def test_what_a_type_does_not_say_is_refused(kind: EventType) -> None:
    with pytest.raises(StoreError, match="does not allow field 'question'"):
        check_draft(EventDraft(kind, {"question": 1}))
    for place in ({"session_id": "a b"}, {"window_id": "a\nb"}):
        with pytest.raises(StoreError, match="does not look like an id"):
            check_draft(EventDraft(kind, {}, **place))


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (EventType.FACT_RETRIEVED, "dropped", -1),
        (EventType.FACT_RETRIEVED, "dropped", True),
        (EventType.FACT_RETRIEVED, "dropped", 1.0),
        (EventType.FACT_RETRIEVED, "facts", "a"),
        (EventType.FACT_RETRIEVED, "state_hash", "abc"),
        (EventType.FACT_DELETED, "cause", "because"),
        (EventType.SUB_AGENT_RESULT, "budget", 1.5),
        (EventType.SUB_AGENT_RESULT, "budget", float("nan")),
        (EventType.SUB_AGENT_RESULT, "budget", "0.5"),
        (EventType.POLICY_VIOLATION, "report_only", 1),
        (EventType.POLICY_VIOLATION, "directives", ["be nice"]),
        (EventType.SESSION_CONTINUED, "parent_hmac", f"{HASH}|"),
        (EventType.SAFETY_HALT, "reason", ""),
    ],
)
def test_a_value_of_another_shape_is_refused_and_not_shown(
    kind: EventType, field: str, value: Any
) -> None:
    with pytest.raises(StoreError, match=f"{field} of event {kind}") as refused:
        check_draft(EventDraft(kind, {field: value}))
    if isinstance(value, str) and value:
        assert f"{value!r}" not in str(refused.value)


@given(st.text(max_size=200))
def test_a_name_is_itself_or_its_hash(name: str) -> None:
    said = name_or_hash(name)
    if said == name:
        assert re.fullmatch(r"[\w.:/@+#=-]{1,160}", name, re.ASCII)
    else:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", said)
    assert name_or_hash(said) == said


def test_a_violation_may_name_every_directive_and_a_trigger_every_demand() -> None:
    """The policy room is above this one, so its words are written down here again."""
    assert set(DIRECTIVES) == POLICY.keys() - {"report-uri", "report-to"}
    assert set(Demand) <= set(TRIGGERS)
