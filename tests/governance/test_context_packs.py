"""Context packs: their records, their making from an envelope, and their compaction."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.errors import AccessDenied, CompactionRefused, RequestError
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.verification import check_pack
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    DropReport,
    PolicyDecisionRef,
    ProvenanceRef,
    RetrievalEvidence,
    RetrieverName,
    SectionType,
    SourceType,
    pack_of,
    render_pack,
    section_tokens,
    texts_of,
)
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.seals import sha256
from tests.doubles import NOON, WordCounter
from tests.governance.agent_histories import Random, Shelf, result, sentence

COUNTER = WordCounter()


def evidence(**changes: Any) -> RetrievalEvidence:
    fields = {"retriever": "vector", "query": "how many tons", "filters": {"tenant": "A"}}
    fields |= {"reranker": "rank@1", "score": 0.5, "policy_decision_id": "d1"}
    return RetrievalEvidence.model_validate({**fields, **changes})


def item(number: int, text: str, score: float = 0.5, label: str = "tenant:A") -> ContextItem:
    return ContextItem(
        id=f"i{number}",
        source_type="knowledge",
        content_ref=sha256(text),
        score=score,
        security_label=label,
        pii_flags=("email",) if number % 7 == 3 else (),
        evidence=evidence(score=score),
    )


def pack(seed: int) -> tuple[ContextPack, dict[str, str]]:
    """Sections of all types with items of every kind; some texts and labels are shared."""
    chance = Random(seed)
    texts: dict[str, str] = {}
    sections = []
    number = 0
    for name in get_args(SectionType):
        items = []
        for _ in range(
            chance.randrange(0, 3)
            if name not in ("knowledge", "memory")
            else chance.randrange(1, 9)
        ):
            text = (
                chance.choice(list(texts.values()))
                if texts and chance.random() < 0.1
                else result(chance)
            )
            if name in ("user", "task", "policy"):
                text = sentence(chance)
            texts[sha256(text)] = text
            label = chance.choice(("tenant:A", "tenant:A,pii:low"))
            items.append(item(number, text, round(chance.random(), 3), label))
            number += 1
        tokens = section_tokens([texts[one.content_ref] for one in items], COUNTER)
        sections.append(
            ContextSection(
                type=name,
                token_budget=tokens,
                token_actual=tokens,
                items=tuple(items),
                selection_reason="hybrid",
            )
        )
    made = ContextPack(
        id="pack:1",
        session_id="s",
        created_at=NOON,
        token_budget=10**6,
        token_actual=0,
        sections=tuple(sections),
        provenance_refs=tuple(
            ProvenanceRef(
                item_id=one.id, source=f"doc{chance.randrange(3)}", checksum=one.content_ref
            )
            for section in sections
            for one in section.items
        ),
    )
    return made.changed(token_actual=COUNTER.count(render_pack(made, texts))), texts


# --- records -----------------------------------------------------------------------------------------


def wire(record: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.model_dump_json())
    assert type(record).model_validate(found) == record
    schema = type(record).model_json_schema()
    assert set(schema["properties"]) == set(found) - {"schema"}
    assert schema["additionalProperties"] is False
    return found


@pytest.mark.requirement("SUM-contract-1")
def test_a_context_pack_has_its_fields() -> None:
    decision = PolicyDecisionRef(id="d1", allowed=True)
    made = pack(1)[0].changed(policy_decisions=(decision,))
    assert set(wire(made)) == {
        "schema", "id", "session_id", "created_at", "token_budget", "token_actual",
        "policy_decisions", "sections", "provenance_refs",
    }  # fmt: skip
    for name in ("token_budget", "token_actual"):
        with pytest.raises(ValidationError):
            made.changed(**{name: -1})


@pytest.mark.requirement("SUM-contract-2")
def test_a_section_is_one_of_six_types() -> None:
    section = pack(1)[0].sections[3]
    assert set(wire(section)) == {
        "schema",
        "type",
        "token_budget",
        "token_actual",
        "items",
        "selection_reason",
    }
    assert get_args(SectionType) == ("user", "task", "tools", "knowledge", "memory", "policy")
    for name in get_args(SectionType):
        assert section.changed(type=name).type == name
    with pytest.raises(ValidationError):
        section.changed(type="chatter")


@pytest.mark.requirement("SUM-contract-3")
def test_an_item_has_a_source_type_and_never_lacks_a_label() -> None:
    made = item(1, "text")
    assert set(wire(made)) == {
        "schema", "id", "source_type", "content_ref", "summary_ref", "score", "security_label", "pii_flags", "evidence",
    }  # fmt: skip
    assert made.summary_ref is None
    assert made.shown_ref == made.content_ref
    assert made.changed(summary_ref="sha256:x").shown_ref == "sha256:x"
    assert get_args(SourceType) == ("memory", "knowledge", "tool")
    for name in get_args(SourceType):
        assert made.changed(source_type=name).source_type == name
    for wrong in ({"source_type": "web"}, {"security_label": ""}, {"score": 1.1}, {"id": ""}):
        with pytest.raises(ValidationError):
            made.changed(**wrong)


@pytest.mark.requirement("SUM-contract-4")
def test_evidence_names_its_retriever() -> None:
    assert set(wire(evidence())) == {
        "schema",
        "retriever",
        "query",
        "filters",
        "reranker",
        "score",
        "policy_decision_id",
    }
    assert get_args(RetrieverName) == ("keyword", "vector", "graph", "tool-rag")
    for name in get_args(RetrieverName):
        assert evidence(retriever=name).retriever == name
    for wrong in ({"retriever": "web"}, {"score": -0.1}, {"filters": {"a": ["b"]}}):
        with pytest.raises(ValidationError):
            evidence(**wrong)


@pytest.mark.requirement("SUM-contract-5")
def test_a_drop_report_has_ids_a_reason_and_savings() -> None:
    made = DropReport.of("pruned", ["i1", "i2#4-9"], 12, NOON)
    assert set(wire(made)) == {
        "schema",
        "id",
        "dropped_item_ids",
        "reason",
        "token_savings",
        "created_at",
    }
    assert DropReport.of("pruned", ["i1", "i2#4-9"], 12, NOON) == made
    assert DropReport.of("budget", ["i1", "i2#4-9"], 12, NOON).id != made.id
    for wrong in ({"token_savings": -1}, {"reason": ""}):
        with pytest.raises(ValidationError):
            made.changed(**wrong)


# --- from an envelope ----------------------------------------------------------------------------------


def packed(envelope: Any, labels: dict[str, str]) -> ContextPack:
    first = envelope.facts[0].fact_id
    return pack_of(
        envelope,
        labels=labels,
        evidence={fact.fact_id: evidence() for fact in envelope.facts},
        decisions={first: PolicyDecisionRef(id="d7", allowed=True)},
        pii_flags={first: ("content:direct",)},
        reasons={"knowledge": "a test"},
    )


def test_a_pack_is_the_envelope_item_by_item(envelope: Any) -> None:
    labels = {fact.fact_id: "tenant:A" for fact in envelope.facts}
    made = packed(envelope, labels)
    assert len(made.items) == len(envelope.facts) > 2
    assert [one.id for one in made.items] == [fact.fact_id for fact in envelope.facts]
    assert render_pack(made, texts_of(envelope)) == envelope.text
    assert (made.token_actual, made.token_budget) == (envelope.token_count, envelope.token_budget)
    assert made.policy_decisions == (PolicyDecisionRef(id="d7", allowed=True),)
    assert [one.pii_flags for one in made.items[:2]] == [("content:direct",), ()]
    wire(made)


def test_a_fact_without_a_label_is_shown_to_nobody(envelope: Any) -> None:
    labels = {fact.fact_id: "tenant:A" for fact in envelope.facts[1:]}
    with pytest.raises(AccessDenied, match="has no security label"):
        packed(envelope, labels)


def test_a_text_that_is_not_the_one_referred_to_is_refused() -> None:
    made, texts = pack(3)
    ref = made.items[0].content_ref
    with pytest.raises(RequestError, match="is another one"):
        render_pack(made, {**texts, ref: "other"})
    with pytest.raises(RequestError, match="no text is given"):
        render_pack(made, {})


# --- compaction ------------------------------------------------------------------------------------------

cases = st.tuples(st.integers(0, 10**9), st.sampled_from((0.1, 0.3, 0.5, 0.8, 1.3)), st.booleans())


@pytest.mark.requirement("SUM-api-3")
@settings(max_examples=150, deadline=None)
@given(cases)
def test_a_pack_and_its_drop_reports_come_back_and_summaries_are_stored_with_sources(
    case: tuple[int, float, bool],
) -> None:
    seed, part, kept = case
    made, texts = pack(seed)
    budget = max(1, int(made.token_actual * part))
    shelf = Shelf()
    chosen = CompactionSettings(offload_tokens=60, extract_tokens=20, max_items=9)
    compactor = AutoCompactor(COUNTER, chosen, artifacts=shelf if kept else None)
    compact = compactor.compact(made, budget, texts=texts, now=NOON)
    left, account = compact.compacted, compact.account
    text = render_pack(left, {**texts, **compact.texts})
    assert COUNTER.count(text) == left.token_actual == account.tokens_after
    assert account.fits == (left.token_actual <= budget)
    assert account.fits or account.why_not
    if not account.triggers:
        assert left == made
        return
    # What is firm is there as it was, and every other item is there or named.
    firm = [
        one
        for section in made.sections
        for one in section.items
        if section.type in ("user", "task", "policy")
    ]
    assert all(one in left.items for one in firm)
    named = {name for report in compact.drop_reports for name in report.dropped_item_ids}
    there = {one.id: one for one in left.items}
    parts = {name.partition("#")[0] for name in named}
    for one in made.items:
        assert one.id in parts or there[one.id] == one
    # Labels are never mixed, and flags are not lost.
    labels = {one.id: one for one in made.items}
    for summary in account.summaries:
        cited = {labels[c.item_id].security_label for c in summary.citations}
        assert len(cited) == 1
        if summary.id in there:
            assert cited == {there[summary.id].security_label}
            flags = {flag for c in summary.citations for flag in labels[c.item_id].pii_flags}
            assert flags <= set(there[summary.id].pii_flags)
            assert there[summary.id].summary_ref == summary.checksum
            assert any(ref.item_id == summary.id for ref in left.provenance_refs)
        if kept and summary.level != "targeted":
            ref = next(ref for ref, held in shelf.texts.items() if held == summary.text)
            assert shelf.sources[ref]
    assert compactor.compact(made, budget, texts=texts, now=NOON) == compact


def test_a_pack_whose_drop_is_unreported_is_refused() -> None:
    made, texts = pack(11)
    compact = AutoCompactor(COUNTER).compact(made, made.token_actual // 3, texts=texts, now=NOON)
    check_pack(made, compact, texts)
    silent = compact.changed(account=compact.account.model_copy(update={"reports": ()}))
    with pytest.raises(CompactionRefused, match="no report names"):
        check_pack(made, silent, texts)
    one = compact.compacted.items[-1]
    sections = [
        section.changed(
            items=tuple(
                i.changed(security_label="public") if i.id == one.id else i for i in section.items
            )
        )
        for section in compact.compacted.sections
    ]
    relabelled = compact.changed(compacted=compact.compacted.changed(sections=tuple(sections)))
    with pytest.raises(CompactionRefused, match="a different label"):
        check_pack(made, relabelled, texts)


def test_the_least_relevant_goes_first() -> None:
    texts = [
        f"Crane {n} lifts {n + 11} tons. " + "It stands beside the quay and is painted green. " * 4
        for n in range(6)
    ]
    items = tuple(item(n, text, 0.9 - 0.17 * n) for n, text in enumerate(texts))
    tokens = section_tokens(texts, COUNTER)
    section = ContextSection(
        type="knowledge", token_budget=tokens, token_actual=tokens, items=items, selection_reason=""
    )
    made = ContextPack(
        id="p",
        session_id="",
        created_at=NOON,
        token_budget=tokens,
        token_actual=tokens,
        sections=(section,),
    )
    by_ref = {sha256(text): text for text in texts}
    compact = AutoCompactor(COUNTER).compact(
        made, tokens, texts=by_ref, now=NOON, question="How heavy are loads?"
    )
    assert [one.id for one in compact.compacted.items][:3] == ["i0", "i1", "i2"]
    assert compact.compacted.items[0] == items[0]
    assert "i5" in compact.account.reports[0].dropped_item_ids
    assert set(compact.account.reports[0].dropped_item_ids) <= {"i4", "i5"}
