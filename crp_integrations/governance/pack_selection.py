"""Selection of a pack's facts and of the caller's texts, with the evidence of each item.

The order is: guard and label filter, confidence, duplicates, injections and relevance, the nearest
of each section. Facts that fail are listed as refused and never ranked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from crp_integrations.envelope.candidates import (
    Candidate,
    Candidates,
    keep_candidates,
    refuse_candidates,
    split_refused,
)
from crp_integrations.envelope.layout import caller_fact
from crp_integrations.envelope.ports import Reranker, Walker
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Drop, Envelope, PackedFact, refused_drops
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.retriever_hits import RetrieverHit, RetrieverHits
from crp_integrations.envelope.screen import rerank_candidates, screen_candidates
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import MEMORY_KEY, Fact
from crp_integrations.fabric.view import FabricView
from crp_integrations.governance.compaction.text_pieces import part_id, subtract_spans
from crp_integrations.governance.context_pack import (
    ComposedPack,
    DropReport,
    PackWarning,
    RetrievalEvidence,
    WarningWord,
)
from crp_integrations.governance.memory_writer import PolicyContext
from crp_integrations.governance.settings import PackSettings
from crp_integrations.governance.tools import TOOL_RAG, ToolSelection, ToolSelector
from crp_integrations.governance.window_trace import group_drops, security_label
from crp_integrations.guard.decisions import Decision, LabelFilter, PolicyDecisionRef
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.ports import Clock, TokenCounter
from crp_integrations.seals import digest, sha256
from crp_integrations.vocabulary import DropReason


@dataclass(frozen=True, slots=True)
class AssemblerParts:
    """The components of an assembler.

    Attributes:
        settings: settings of packs; `envelope` has those of envelopes.
        log: called with each pack before it is returned; None logs nothing.
    """

    namespace: Namespace
    counter: TokenCounter
    clock: Clock
    settings: PackSettings
    envelope: EnvelopeSettings
    selector: ToolSelector
    detector: InjectionDetector = field(default_factory=InjectionDetector)
    walker: Walker | None = None
    reranker: Reranker | None = None
    log: Callable[[ComposedPack], None] | None = None


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """Properties of the memory that a fact stores."""

    confidence: float
    pii: tuple[str, ...]


class MemoryCache:
    """Caches which facts store memories, for one state of a namespace. Thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._generation = -1
        self._known: dict[str, MemoryTraits | None] = {}
        self._lock = threading.Lock()

    def of(self, view: FabricView, ids: Sequence[str]) -> dict[str, MemoryTraits]:
        """Traits of the facts that store memories, by id; each fact is read once per state."""
        generation = view.generation()
        with self._lock:
            if generation != self._generation:
                self._generation, self._known = generation, {}
            by_id = {id_: self._known[id_] for id_ in ids if id_ in self._known}
        missing = [id_ for id_ in ids if id_ not in by_id]
        if missing:
            new = {fact.fact_id: _read_traits(fact) for fact in view.facts(missing)}
            by_id |= new
            with self._lock:
                if generation == self._generation:
                    self._known |= new
        return {id_: traits for id_, traits in by_id.items() if traits is not None}


def _read_traits(fact: Fact) -> MemoryTraits | None:
    stored: Any = fact.metadata.get(MEMORY_KEY)
    if not isinstance(stored, Mapping):
        return None
    flags = dict.fromkeys(
        f"{flag['field']}:{flag['category']}" for flag in stored.get("pii_flags") or ()
    )
    return MemoryTraits(float(stored.get("confidence", 0.0)), tuple(flags))


@dataclass(frozen=True, slots=True)
class PackSelection:
    """The candidates that may be shown, by section, and those that may not.

    Attributes:
        minimal: whether every candidate was refused, so that the pack must be the minimal one.
    """

    knowledge: Candidates
    memory: Candidates
    refused: tuple[Drop, ...]
    memories: Mapping[str, MemoryTraits]
    sightings: RetrieverHits
    minimal: bool


def select_candidates(
    view: FabricView,
    query: str,
    parts: AssemblerParts,
    labels: LabelFilter,
    known: MemoryCache,
) -> PackSelection:
    """Read the candidates of a pack and refuse those that may not be shown.

    Spec: Summit §Context Assembly Pipeline
    """
    settings, sightings = parts.settings, RetrieverHits()
    candidates = gather(
        view,
        query,
        counter=parts.counter,
        settings=parts.envelope.model_copy(update={"graph": settings.graph}),
        k_nearest=settings.top_k * settings.depth,
        walker=parts.walker,
        labels=labels,
        sightings=sightings,
    )
    memories = known.of(view, [fact.fact_id for fact in candidates.facts])
    doubtful = {
        id_ for id_, traits in memories.items() if traits.confidence < settings.min_confidence
    }
    candidates = refuse_candidates(candidates, dict.fromkeys(doubtful, DropReason.CONFIDENCE))
    copies = _find_copies(candidates.facts)
    candidates = keep_candidates(
        candidates, [at for at, fact in enumerate(candidates.facts) if fact.fact_id not in copies]
    )
    screening = settings.screening.model_copy(update={"enabled": True})
    candidates = screen_candidates(candidates, screening, parts.detector)
    candidates = refuse_candidates(
        candidates, _find_beyond(candidates.facts, memories, sightings, settings.top_k)
    )
    if parts.reranker is not None:
        candidates = rerank_candidates(candidates, parts.reranker, parts.envelope)
    left, refused = split_refused(candidates)
    stored = [at for at, fact in enumerate(left.facts) if fact.fact_id in memories]
    others = [at for at, fact in enumerate(left.facts) if fact.fact_id not in memories]
    return PackSelection(
        knowledge=keep_candidates(left, others),
        memory=keep_candidates(left, stored),
        refused=(*refused_drops(refused), *copies.values()),
        memories=memories,
        sightings=sightings,
        minimal=not left.facts and bool(refused),
    )


def _find_copies(facts: Sequence[Candidate]) -> dict[str, Drop]:
    """Drops of facts that repeat the text and source of a better candidate, by id."""
    best: dict[tuple[str, str], Candidate] = {}
    copies: dict[str, Drop] = {}
    for fact in sorted(
        facts,
        key=lambda candidate: (candidate.refused is not None, -candidate.merit, candidate.fact_id),
    ):
        original = best.setdefault((sha256(fact.content), fact.source_id), fact)
        if original is not fact:
            copies[fact.fact_id] = Drop(
                fact_id=fact.fact_id,
                reason=DropReason.DUPLICATE,
                tokens=fact.tokens,
                kept=original.fact_id,
            )
    return copies


def _find_beyond(
    facts: Sequence[Candidate],
    memories: Mapping[str, MemoryTraits],
    sightings: RetrieverHits,
    top_k: int,
) -> dict[str, DropReason]:
    """Facts found only by vectors and not among the nearest of their section."""
    beyond: dict[str, DropReason] = {}
    open_ = [fact for fact in facts if fact.refused is None]
    for section in (True, False):
        members = [fact for fact in open_ if (fact.fact_id in memories) is section]
        members.sort(key=lambda fact: (-fact.relevance, fact.fact_id))
        for fact in members[top_k:]:
            ranked = {hit.retriever for hit in sightings.of(fact) if hit.rank}
            if not ranked - {"vector"}:
                beyond[fact.fact_id] = DropReason.K
    return beyond


@dataclass(frozen=True, slots=True)
class SectionEntry:
    """A text that the caller gives for a section.

    Attributes:
        firm: whether it is shown whatever the section's budget.
        refused: why it may not be shown; None if it may.
    """

    id: str
    text: str
    source: str
    firm: bool = False
    score: float = 1.0
    refused: DropReason | None = None


@dataclass(frozen=True, slots=True)
class FilledSection:
    """A section filled with the caller's texts.

    Attributes:
        firm: ids of the facts that are shown whatever the budget.
        tokens: tokens of its items with their markers and separators.
    """

    name: str
    facts: tuple[PackedFact, ...]
    firm: frozenset[str]
    dropped: tuple[Drop, ...]
    tokens: int
    budget: int

    @property
    def over(self) -> int:
        """Tokens by which the firm entries exceed the section's share."""
        return max(0, self.tokens - self.budget)


def make_entry(kind: str, text: str, source: str, *, firm: bool = False) -> SectionEntry:
    """An entry whose id is derived from its text and source, so that equal entries merge.

    >>> make_entry("task", "Answer.", "request").id == make_entry("task", "Answer.", "request").id
    True
    """
    name = digest([text, source]).removeprefix("sha256:")[:16]
    return SectionEntry(f"{kind}:{name}", text, source, firm)


def fill_section(
    name: str, entries: Sequence[SectionEntry], budget: int, counter: TokenCounter
) -> FilledSection:
    """Fill a section: first firm entries, then those that fit, in order; an id counts once.

    Spec: Summit §Context Assembly Pipeline
    """
    unique = list({entry.id: entry for entry in reversed(entries)}.values())[::-1]
    counts = [max(0, n) for n in counter.count_many([marker_text(entry.text) for entry in unique])]
    used = sum(
        n for entry, n in zip(unique, counts, strict=True) if entry.firm and not entry.refused
    )
    facts: list[PackedFact] = []
    dropped: list[Drop] = []
    for entry, tokens in zip(unique, counts, strict=True):
        reason = entry.refused
        if reason is None and not entry.firm:
            if used + tokens > budget:
                reason = DropReason.BUDGET
            else:
                used += tokens
        if reason is None:
            facts.append(caller_fact(entry.id, entry.text, entry.source, tokens, entry.score))
        else:
            dropped.append(Drop(fact_id=entry.id, reason=reason, tokens=tokens))
    firm = frozenset(entry.id for entry in unique if entry.firm)
    return FilledSection(name, tuple(facts), firm, tuple(dropped), used, budget)


WARNINGS: Final = "crp:warnings"
_WARNING_TEXTS: Mapping[WarningWord, tuple[str, str]] = {
    "stale": ("may be out of date", "say so wherever you rely on it"),
    "low-confidence": ("is of low confidence", "confirm it or say that it is uncertain"),
}


def warn_of_items(
    facts: Sequence[PackedFact],
    place: int,
    memories: Mapping[str, MemoryTraits],
    settings: PackSettings,
    counter: TokenCounter,
) -> tuple[list[PackedFact], list[PackWarning]]:
    """The reminders for the policy section, and the warnings that they are made from.

    Spec: Summit §Failure Modes & Mitigations
    """
    positions: dict[WarningWord, list[int]] = {}
    warnings: list[PackWarning] = []
    for position, fact in enumerate(facts, start=place):
        memory = memories.get(fact.fact_id)
        words: list[tuple[WarningWord, str]] = []
        if fact.freshness_score <= settings.stale_freshness:
            words.append(("stale", f"its freshness is {fact.freshness_score:.2f}"))
        if memory is not None and memory.confidence < settings.low_confidence:
            words.append(("low-confidence", f"its confidence is {memory.confidence:.2f}"))
        for word, reason in words:
            positions.setdefault(word, []).append(position)
            warnings.append(PackWarning(word=word, reason=reason, item_id=fact.fact_id))
    texts = {
        word: _warning_text(word, positions[word]) for word in _WARNING_TEXTS if word in positions
    }
    counts = counter.count_many([marker_text(text) for text in texts.values()])
    notes = [
        caller_fact(f"warning:{word}", text, WARNINGS, max(0, tokens))
        for (word, text), tokens in zip(texts.items(), counts, strict=True)
    ]
    return notes, warnings


def _warning_text(word: WarningWord, positions: Sequence[int]) -> str:
    state, wanted = _WARNING_TEXTS[word]
    items = ", ".join(f"[{position}]" for position in positions)
    return f"Each of these items {state}, {wanted}: {items}."


# Filters of an item that the caller gives, which no retriever found.
GIVEN: Mapping[str, str] = {"given": "request"}


@dataclass(frozen=True, slots=True)
class ItemEvidence:
    """Labels, evidence, hits and decisions of a pack's items, by their ids."""

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
    """Labels, evidence and decisions of the items of an envelope with sections.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    tenant = f"tenant:{context.subject.tenant}"
    known = {fact.fact_id: fact for fact in candidates}
    chosen = {f"tool:{choice.tool.name}": choice for choice in (tools.chosen if tools else ())}
    labels: dict[str, str] = {}
    evidence: dict[str, RetrievalEvidence] = {}
    seen: dict[str, tuple[RetrieverHit, ...]] = {}
    decisions: dict[str, PolicyDecisionRef] = {}
    asked: dict[tuple[str, ...], Decision] = {}
    # There are few sets of labels and many items.
    names: dict[tuple[str, ...], str] = {}

    def decided(id_: str, own: tuple[str, ...]) -> str:
        """The id of the decision that allows showing an item; empty if decisions have no ids."""
        carried = tuple(sorted(own))
        decision = asked.get(carried)
        if decision is None:
            decision = asked[carried] = view.decision(carried)
        if decision.id:
            decisions[id_] = PolicyDecisionRef(
                id=decision.id, allowed=decision.allowed, reason=decision.reason
            )
        return decision.id

    for fact in envelope.facts:
        id_ = fact.fact_id
        own: tuple[str, ...] = ()
        found_by: dict[str, Any]
        if id_ in known:
            own, seen[id_] = known[id_].labels, sightings.of(known[id_])
            found_by = {
                "retriever": next((hit.retriever for hit in seen[id_]), "vector"),
                "filters": context.labels.written,
                "reranker": reranker,
            }
        elif id_ in chosen:
            own = chosen[id_].tool.labels
            found_by = {
                "retriever": "tool-rag",
                "filters": context.tool_tags.written,
                "reranker": TOOL_RAG,
            }
        else:
            found_by = {"retriever": "keyword", "filters": dict(GIVEN)}
        stored = id_ in known or id_ in chosen
        evidence[id_] = RetrievalEvidence(
            query=envelope.query if stored else "",
            score=chosen[id_].score if id_ in chosen else fact.composite_score,
            policy_decision_id=decided(id_, own) if stored else "",
            **found_by,
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
    """One report per reason, in the order in which the reasons first occur.

    For a fact that is shown in part, the report names the ranges that are left out.

    Spec: Summit §Context Assembly Data Contracts
    """
    groups = group_drops(dropped)
    for fact in shown:
        whole = candidates.get(fact.fact_id)
        if whole is None or not fact.spans or whole.spans:
            continue
        ids, tokens = groups.get(DropReason.BUDGET, ([], 0))
        hidden = subtract_spans(((0, len(whole.content)),), sorted(fact.spans))
        rest = [part_id(fact.fact_id, *span) for span in hidden]
        saved = max(0, whole.tokens - fact.token_count)
        groups[DropReason.BUDGET] = ([*ids, *rest], tokens + saved)
    return tuple(
        DropReport.of(reason.value, ids, tokens, now) for reason, (ids, tokens) in groups.items()
    )
