"""Evidence of each item in a pack: its label, its retriever, and the decision to show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from crp_integrations.envelope.candidates import Candidate
from crp_integrations.envelope.records import Drop, Envelope, PackedFact
from crp_integrations.envelope.retriever_hits import RetrieverHit, RetrieverHits
from crp_integrations.fabric.view import FabricView
from crp_integrations.governance.context_pack import DropReport, RetrievalEvidence
from crp_integrations.governance.memory_writer import PolicyContext
from crp_integrations.governance.tools import TOOL_RAG, ToolSelection
from crp_integrations.governance.window_trace import security_label
from crp_integrations.guard.decisions import Decision, PolicyDecisionRef
from crp_integrations.vocabulary import DropReason

# Of what the caller gives: no retriever found it.
GIVEN: Mapping[str, str] = {"given": "request"}


@dataclass(frozen=True, slots=True)
class ItemEvidence:
    """What stands beside the items of a pack, by their ids."""

    labels: Mapping[str, str]
    evidence: Mapping[str, RetrievalEvidence]
    sightings: Mapping[str, tuple[RetrieverHit, ...]]
    decisions: Mapping[str, PolicyDecisionRef]


def collect_evidence(
    envelope: Envelope,
    candidates: Iterable[Candidate],
    sightings: RetrieverHits,
    tools: ToolSelection | None,
    view: FabricView,
    context: PolicyContext,
    reranker: str,
) -> ItemEvidence:
    """What is told of the items of an envelope with sections.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    tenant = f"tenant:{context.subject.tenant}"
    known = {fact.fact_id: fact for fact in candidates}
    chosen = {f"tool:{one.tool.name}": one for one in (tools.chosen if tools else ())}
    labels: dict[str, str] = {}
    evidence: dict[str, RetrievalEvidence] = {}
    seen: dict[str, tuple[RetrieverHit, ...]] = {}
    decisions: dict[str, PolicyDecisionRef] = {}
    asked: dict[tuple[str, ...], Decision] = {}
    # Few classes of labels, many items.
    names: dict[tuple[str, ...], str] = {}

    def decided(id_: str, own: tuple[str, ...]) -> str:
        """The id of the decision that lets an item be shown; empty where none is numbered."""
        carried = tuple(sorted(own))
        found = asked.get(carried)
        if found is None:
            found = asked[carried] = view.decision(carried)
        if found.id:
            decisions[id_] = PolicyDecisionRef(
                id=found.id, allowed=found.allowed, reason=found.reason
            )
        return found.id

    for fact in envelope.facts:
        id_ = fact.fact_id
        own: tuple[str, ...] = ()
        if id_ in known:
            own, seen[id_] = known[id_].labels, sightings.of(known[id_])
            evidence[id_] = RetrievalEvidence(
                retriever=next((one.retriever for one in seen[id_]), "vector"),
                query=envelope.query,
                filters=context.labels.told,
                reranker=reranker,
                score=fact.composite_score,
                policy_decision_id=decided(id_, own),
            )
        elif id_ in chosen:
            own = chosen[id_].tool.labels
            evidence[id_] = RetrievalEvidence(
                retriever="tool-rag",
                query=envelope.query,
                filters=context.tool_tags.told,
                reranker=TOOL_RAG,
                score=chosen[id_].score,
                policy_decision_id=decided(id_, own),
            )
        else:
            evidence[id_] = RetrievalEvidence(
                retriever="keyword", query="", filters=dict(GIVEN), score=fact.composite_score
            )
        name = names.get(own)
        if name is None:
            bare = not any(label.startswith("tenant:") for label in own)
            name = names[own] = security_label((*own, tenant) if bare else own)
        labels[id_] = name
    return ItemEvidence(labels, evidence, seen, decisions)


def make_drop_reports(
    dropped: Sequence[Drop],
    shown: Sequence[PackedFact],
    candidates: Mapping[str, Candidate],
    now: datetime,
) -> tuple[DropReport, ...]:
    """One report a reason, in the order in which the reasons first come.

    Of a fact that is shown in part the rest is named by its characters.

    Spec: Summit §Context Assembly Data Contracts
    """
    found: dict[DropReason, tuple[list[str], int]] = {}
    for drop in dropped:
        ids, tokens = found.get(drop.reason, ([], 0))
        ids.append(drop.fact_id)
        found[drop.reason] = (ids, tokens + drop.tokens)
    for fact in shown:
        whole = candidates.get(fact.fact_id)
        if whole is None or not fact.spans or whole.spans:
            continue
        ids, tokens = found.get(DropReason.BUDGET, ([], 0))
        rest = [f"{fact.fact_id}#{start}-{end}" for start, end in _hidden_spans(fact, whole)]
        saved = max(0, whole.tokens - fact.token_count)
        found[DropReason.BUDGET] = ([*ids, *rest], tokens + saved)
    return tuple(
        DropReport.of(reason.value, ids, tokens, now) for reason, (ids, tokens) in found.items()
    )


def _hidden_spans(fact: PackedFact, whole: Candidate) -> Iterable[tuple[int, int]]:
    """What of a fact is not shown, in its characters."""
    start = 0
    for first, last in sorted(fact.spans):
        if first > start:
            yield start, first
        start = max(start, last)
    if start < len(whole.content):
        yield start, len(whole.content)
