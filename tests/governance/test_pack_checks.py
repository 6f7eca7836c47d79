"""The example's checks of citations, and its gate between two roles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crp_integrations.audit.drafts import EventDraft, check_draft
from crp_integrations.errors import AccessDenied
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    RetrievalEvidence,
)
from crp_integrations.governance.runtime_state import RuntimeState, SessionMetadata, Snippet
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import AgentRole
from tests.doubles import FixedClock
from tests.example_scripts import load_example

EXAMPLE = load_example("governed_agent")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SUBJECT = Subject(tenant="acme", name="agent")
STATE = RuntimeState(session=SessionMetadata(session_id="s", tenant="acme", created_at=NOW))
TEXTS = {
    "a": "Crane 7 lifts 18 tons at a reach of 32 metres.",
    "b": "The hoist brake of crane 7 was measured at 4.6 millimetres.",
    "c": "The tide at berth 5 adds up to 3.4 metres of water.",
}
SNIPPETS = tuple(Snippet(id=id_, text=text) for id_, text in TEXTS.items())


class NoSecrets:
    """Denies what is labelled secret; the synthesizer may not read what is labelled raw either."""

    name = "no-secrets"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        denied = "level:secret" in labels or (
            "level:raw" in labels and "role:synthesizer" in subject.roles
        )
        return Decision(allowed=not denied, guard=self.name, reason="a test", id="pd:1")


def pack_of(*ids: str, label: str = "level:open") -> ContextPack:
    items = tuple(
        ContextItem(
            id=id_,
            source_type="knowledge",
            content_ref=sha256(TEXTS[id_]),
            score=0.8,
            security_label=label,
            evidence=RetrievalEvidence(retriever="vector", query="q", score=0.8),
        )
        for id_ in ids
    )
    section = ContextSection(
        type="knowledge", token_budget=90, token_actual=30, items=items, selection_reason="a test"
    )
    return ContextPack(
        id="pack:1",
        session_id="s",
        created_at=NOW,
        token_budget=90,
        token_actual=30,
        sections=(section,),
    )


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        ("It lifts 18 tons [1].", [("a",)]),
        ("It lifts 18 tons [1][2]. The tide adds 3.4 metres [3].", [("a", "b"), ("c",)]),
        ("It lifts 18 tons [1, 3].", [("a", "c")]),
        ("It lifts 18 tons [9].", [("",)]),
        ("It lifts 18 tons.", []),
    ],
)
def test_marks_name_items_by_their_number(said: str, ids: list[tuple[str, ...]]) -> None:
    assert [span.item_ids for span in EXAMPLE.find_cited(said, list(TEXTS))] == ids


def test_a_citation_holds_when_the_source_has_its_words_and_figures() -> None:
    assert EXAMPLE.is_supported("Crane 7 lifts 18 tons", TEXTS["a"])
    assert not EXAMPLE.is_supported("Crane 7 lifts 19 tons", TEXTS["a"])
    assert not EXAMPLE.is_supported("The harbour was founded by monks long ago", TEXTS["a"])


@pytest.mark.requirement("SUM-fail-5")
@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("Crane 7 lifts 18 tons at a reach of 32 metres [1].", True),
        ('Quoted from the context:\n\n"' + TEXTS["b"] + '" [2]', True),
        ("Crane 7 lifts 21 tons at a reach of 32 metres [1].", False),
        ("Crane 7 lifts 18 tons [2].", False),
        ("Crane 7 lifts 18 tons [7].", False),
        ("Crane 7 lifts 18 tons at a reach of 32 metres.", False),
        ("Crane 7 lifts 18 tons [1]. It was painted green by the harbour master.", False),
    ],
)
def test_citations_are_checked_against_what_was_shown(said: str, passes: bool) -> None:
    assert (EXAMPLE.find_citation_fault(said, SNIPPETS) == "") is passes


def test_a_gate_asks_for_the_role_that_takes_and_tells_the_journal_either_way() -> None:
    told: list[EventDraft] = []
    gate = EXAMPLE.HandoverGate("run_1", SUBJECT, NoSecrets(), FixedClock(), told.append)
    pack = pack_of("a", "b", label="level:raw")
    gate.pass_on(AgentRole.RETRIEVER, AgentRole.COMPACTOR, pack, items=pack.items, tokens=30)
    with pytest.raises(AccessDenied, match="synthesizer"):
        gate.pass_on(AgentRole.SENTINEL, AgentRole.SYNTHESIZER, pack, items=pack.items)
    assert [(trace.number, trace.taker.value, trace.allowed) for trace in gate.done] == [
        (1, "compactor", True),
        (2, "synthesizer", False),
    ]
    for event in told:
        assert check_draft(event).data == event.data
        assert "Crane" not in str(event.data)
    assert told[0].data["decisions"] == ["pd:1"]
    assert told[1].data["allowed"] is False


def test_nothing_is_handed_over_when_the_journal_cannot_be_told() -> None:
    def broken(event: EventDraft) -> Any:
        raise OSError("disk full")

    gate = EXAMPLE.HandoverGate("run_1", SUBJECT, NoSecrets(), FixedClock(), broken)
    with pytest.raises(OSError, match="disk full"):
        gate.pass_on(AgentRole.CALLER, AgentRole.PLANNER, STATE)
    assert gate.done == []
