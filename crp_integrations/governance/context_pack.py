"""Records of a context pack and of its request, and conversion of an envelope to a pack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from pydantic import Field

from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.retriever_hits import RetrieverHit
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.tools import Decide, ToolSelection, ToolSpec
from crp_integrations.guard.decisions import LabelFilter, PolicyDecisionRef
from crp_integrations.messages import ToolCall
from crp_integrations.ports import TokenCounter
from crp_integrations.records import Part, Record
from crp_integrations.seals import digest, sha256

SectionType = Literal["user", "task", "tools", "knowledge", "memory", "policy"]
SourceType = Literal["memory", "knowledge", "tool"]
RetrieverName = Literal["keyword", "vector", "graph", "tool-rag"]

_SOURCE_OF: Mapping[str, SourceType] = {"knowledge": "knowledge", "tools": "tool"}


class ProvenanceRef(Part):
    """The origin of an item.

    Attributes:
        checksum: `sha256:…` of the item's text as shown.
        signer: name of the signer; empty if no one signed.
    """

    item_id: str
    source: str
    checksum: str
    signer: str = ""


class RetrievalEvidence(Record):
    """Why an item was selected.

    Spec: Summit §Context Assembly Data Contracts

    Attributes:
        policy_decision_id: id of the decision that allowed reading the item; empty if the guard's
            decisions have no ids.
    """

    SCHEMA = "retrieval-evidence/1"

    retriever: RetrieverName
    query: str
    filters: dict[str, str] = {}
    reranker: str = ""
    score: float = Field(ge=0.0, le=1.0)
    policy_decision_id: str = ""


class ContextItem(Record):
    """One item of a pack; its text is looked up by reference.

    Spec: Summit §Context Assembly Data Contracts

    Attributes:
        content_ref: `sha256:…` of the item's own text.
        summary_ref: `sha256:…` of the text that the model is shown instead, if any.
        security_label: the item's label; never empty, since an item without one is denied.
    """

    SCHEMA = "context-item/1"

    id: str = Field(min_length=1)
    source_type: SourceType
    content_ref: str = Field(min_length=1)
    summary_ref: str | None = None
    score: float = Field(ge=0.0, le=1.0)
    security_label: str = Field(min_length=1)
    pii_flags: tuple[str, ...] = ()
    evidence: RetrievalEvidence

    @property
    def shown_ref(self) -> str:
        """Reference of the text that the model is shown."""
        return self.content_ref if self.summary_ref is None else self.summary_ref


class ContextSection(Record):
    """A named part of a pack with its own budget.

    Spec: Summit §Context Assembly Data Contracts
    """

    SCHEMA = "context-section/1"

    type: SectionType
    token_budget: int = Field(ge=0)
    token_actual: int = Field(ge=0)
    items: tuple[ContextItem, ...]
    selection_reason: str


class ContextPack(Record):
    """The context of one model call, item by item.

    Spec: Summit §Context Assembly Data Contracts

    Attributes:
        token_actual: tokens of the rendered text, counted as a whole.
    """

    SCHEMA = "context-pack/1"

    id: str = Field(min_length=1)
    session_id: str
    created_at: Moment
    token_budget: int = Field(ge=0)
    token_actual: int = Field(ge=0)
    policy_decisions: tuple[PolicyDecisionRef, ...] = ()
    sections: tuple[ContextSection, ...]
    provenance_refs: tuple[ProvenanceRef, ...] = ()

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """All items in the order in which they are shown."""
        return tuple(item for section in self.sections for item in section.items)


class DropReport(Record):
    """The items that were left out for one reason, as ids without any text.

    Spec: Summit §Context Assembly Data Contracts

    Attributes:
        dropped_item_ids: ids, or `id#start-end` for a range of an item that is shown in part.
    """

    SCHEMA = "drop-report/1"

    id: str = Field(min_length=1)
    dropped_item_ids: tuple[str, ...]
    reason: str = Field(min_length=1)
    token_savings: int = Field(ge=0)
    created_at: Moment

    @classmethod
    def of(cls, reason: str, ids: Sequence[str], savings: int, now: Moment) -> DropReport:
        """A report whose id is derived from its content."""
        content_hash = digest({"reason": reason, "ids": list(ids), "at": now.isoformat()})
        return cls(
            id="drop:" + content_hash.removeprefix("sha256:")[:24],
            dropped_item_ids=tuple(ids),
            reason=reason,
            token_savings=savings,
            created_at=now,
        )


def pack_of(
    envelope: Envelope,
    *,
    labels: Mapping[str, str],
    evidence: Mapping[str, RetrievalEvidence],
    decisions: Mapping[str, PolicyDecisionRef],
    pii_flags: Mapping[str, tuple[str, ...]],
    reasons: Mapping[str, str],
) -> ContextPack:
    """An envelope as a pack: the same facts in the same order, section by section.

    Spec: Summit §Context Assembly Data Contracts

    Args:
        labels, evidence, decisions, pii_flags: values by the fact's id.
        reasons: why each section contains its items, by the section's name.
    """
    bare = sorted(fact.fact_id for fact in envelope.facts if not labels.get(fact.fact_id))
    if bare:
        raise AccessDenied(f"fact {bare[0]!r} has no security label, so it may not be shown")
    sections = []
    for section in envelope.sections:
        facts = envelope.facts[section.first - 1 : section.last]
        items = tuple(
            ContextItem(
                id=fact.fact_id,
                source_type=_SOURCE_OF.get(section.name, "memory"),
                content_ref=sha256(fact.content),
                score=fact.composite_score,
                security_label=labels[fact.fact_id],
                pii_flags=pii_flags.get(fact.fact_id, ()),
                evidence=evidence[fact.fact_id],
            )
            for fact in facts
        )
        sections.append(
            ContextSection(
                type=cast("SectionType", section.name),
                token_budget=section.token_budget,
                token_actual=sum(fact.token_count for fact in facts),
                items=items,
                selection_reason=reasons.get(section.name, ""),
            )
        )
    hashed = digest([envelope.session_id, envelope.window_number, envelope.etag])
    used = {ref.id: ref for fact in envelope.facts if (ref := decisions.get(fact.fact_id))}
    return ContextPack(
        id="pack:" + hashed.removeprefix("sha256:")[:24],
        session_id=envelope.session_id,
        created_at=envelope.created_at,
        token_budget=envelope.token_budget,
        token_actual=envelope.token_count,
        policy_decisions=tuple(used.values()),
        sections=tuple(sections),
        provenance_refs=tuple(
            ProvenanceRef(
                item_id=fact.fact_id, source=fact.source_id, checksum=sha256(fact.content)
            )
            for fact in envelope.facts
        ),
    )


def texts_of(envelope: Envelope) -> dict[str, str]:
    """The texts of a pack's items, by reference."""
    return {sha256(fact.content): fact.content for fact in envelope.facts}


def section_tokens(texts: Sequence[str], counter: TokenCounter) -> int:
    """Tokens of a section's items with their markers and separators."""
    return sum(counter.count_many([marker_text(text) for text in texts]))


def render_pack(pack: ContextPack, texts: Mapping[str, str]) -> str:
    """The text of a pack for a model, rendered as for an envelope."""
    return render([text_of(item, item.shown_ref, texts) for item in pack.items])


def text_of(item: ContextItem, ref: str, texts: Mapping[str, str]) -> str:
    """The text of an item's reference; raises if it is missing or is another text."""
    text = texts.get(ref)
    if text is None:
        raise RequestError(
            f"item {item.id!r:.80} refers to {ref!r:.80}, for which no text is given"
        )
    if sha256(text) != ref:
        raise RequestError(f"the text given for {ref!r:.80} of item {item.id!r:.80} is another one")
    return text


WarningWord = Literal["stale", "low-confidence", "overflow", "minimal"]


class StateEntry(Part):
    """A part of the session that the model may need, such as an earlier answer.

    Attributes:
        source: id or URI of its origin; equal texts of one source are shown once.
    """

    text: str = Field(min_length=1)
    source: str = "session"


class AssembleRequest(Record):
    """The request for a pack.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        message: the user's message; it is never cut.
        budget_tokens: maximum tokens of the whole pack as rendered.
        state: entries of the session, most important first.
        policies: reminders of the active policies; none of them is left out.
        query: search query; empty to search for the message.
    """

    SCHEMA = "assemble-request/1"

    message: str = Field(min_length=1)
    budget_tokens: int = Field(ge=1)
    preamble: str = ""
    state: tuple[StateEntry, ...] = ()
    task: str = ""
    policies: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    query: str = ""
    session_id: str = ""


class PackWarning(Part):
    """Something that a user of the pack should know.

    Attributes:
        item_id: id of the item; empty if the warning is about the whole pack.
    """

    word: WarningWord
    reason: str
    item_id: str = ""


@dataclass(frozen=True, slots=True)
class ComposedPack:
    """A pack with its envelope, texts and account.

    Attributes:
        envelope: the envelope that the pack presents; its text is what a model is shown.
        texts: the texts of the pack's items, by reference.
        drop_reports: one per reason; together they name everything that was left out.
        evidence: all retrievers' hits for each item, by its id; empty for what the caller gave.
        minimal: whether the pack contains only message and policies, or no fact.
    """

    pack: ContextPack
    envelope: Envelope
    texts: Mapping[str, str]
    drop_reports: tuple[DropReport, ...]
    evidence: Mapping[str, tuple[RetrieverHit, ...]]
    warnings: tuple[PackWarning, ...] = ()
    tools: ToolSelection | None = None
    minimal: bool = False

    @property
    def text(self) -> str:
        """The text that a model is shown."""
        return self.envelope.text


_TOOL_ID: Final = "tool:"
FaultWord = Literal["unknown", "altered", "unauthorised", "unsafe", "not-offered"]


class ToolFault(Part):
    """A problem with a tool that is offered or called.

    Attributes:
        fault: `unknown` to the registry; `altered`, not shown as the registry has it;
            `unauthorised` by the guard; `unsafe` by its tags; `not-offered` in the pack.
    """

    name: str
    fault: FaultWord
    reason: str


def check_offered(
    pack: ContextPack, registry: Iterable[ToolSpec], decide: Decide, tags: LabelFilter
) -> tuple[ToolFault, ...]:
    """Problems of the tools in a pack, in their order; empty if there are none.

    Spec: Summit §Failure Modes & Mitigations
    """
    known = {tool.name: tool for tool in registry}
    faults: list[ToolFault] = []
    for name, shown_ref in _tools_of(pack).items():
        tool = known.get(name)
        if tool is not None and shown_ref != sha256(tool.shown):
            reason = "it is not shown as the registry has it"
            faults.append(ToolFault(name=name, fault="altered", reason=reason))
        else:
            faults += _tool_faults(name, tool, decide, tags)
    return tuple(faults)


def check_calls(
    calls: Sequence[ToolCall],
    pack: ContextPack,
    registry: Iterable[ToolSpec],
    decide: Decide,
    tags: LabelFilter,
) -> tuple[ToolFault, ...]:
    """Problems of the calls that a model asks for; a call with a problem must not be made.

    Spec: Summit §Failure Modes & Mitigations
    """
    known = {tool.name: tool for tool in registry}
    offered = _tools_of(pack)
    faults: list[ToolFault] = []
    for call in calls:
        wrong = _tool_faults(call.name, known.get(call.name), decide, tags)
        if not wrong and call.name not in offered:
            reason = "the model was not offered it"
            wrong = [ToolFault(name=call.name, fault="not-offered", reason=reason)]
        faults += wrong
    return tuple(faults)


def _tools_of(pack: ContextPack) -> dict[str, str]:
    """References of the shown texts of a pack's tools, by tool name."""
    return {
        item.id.removeprefix(_TOOL_ID): item.shown_ref
        for section in pack.sections
        if section.type == "tools"
        for item in section.items
    }


def _tool_faults(
    name: str, tool: ToolSpec | None, decide: Decide, tags: LabelFilter
) -> list[ToolFault]:
    if tool is None:
        return [ToolFault(name=name, fault="unknown", reason="no such tool is registered")]
    decision = decide(tuple(sorted(tool.labels)))
    if not decision.allowed:
        return [ToolFault(name=name, fault="unauthorised", reason=decision.reason)]
    if not tags.passes(tool.safety_tags):
        reason = f"its safety tags {', '.join(tool.safety_tags)} are not allowed by policy"
        return [ToolFault(name=name, fault="unsafe", reason=reason)]
    return []
