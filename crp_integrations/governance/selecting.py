"""What of a fabric may enter a pack: read by three retrievers, then every defence before ranking.

In this order: guard and label filter (`gather`), confidence, copies, injections and what is off
the topic, the nearest of each section. What fails is refused by name and never ranked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crp_integrations.envelope.candidates import (
    Candidate,
    Candidates,
    keep_candidates,
    refuse_candidates,
    split_refused,
)
from crp_integrations.envelope.ports import Reranker, Walker
from crp_integrations.envelope.records import Drop, refused_drops
from crp_integrations.envelope.rerank import rerank_candidates
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.retriever_hits import RetrieverHits
from crp_integrations.envelope.screen import screen_candidates
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.governance.items import MEMORY_KEY
from crp_integrations.governance.pack_settings import PackSettings
from crp_integrations.guard.decisions import LabelFilter
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import DropReason

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView


@dataclass(frozen=True, slots=True)
class Memorised:
    """What a fact that stores a memory says of it."""

    confidence: float
    pii: tuple[str, ...]


class KnownMemories:
    """Which facts store memories, of one state of a namespace. Safe under threads."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._generation = -1
        self._known: dict[str, Memorised | None] = {}
        self._lock = threading.Lock()

    def of(self, view: FabricView, ids: Sequence[str]) -> dict[str, Memorised]:
        """Those of the facts that store memories, by id; whole facts are read once a state."""
        generation = view.generation()
        with self._lock:
            if generation != self._generation:
                self._generation, self._known = generation, {}
            found = {id_: self._known[id_] for id_ in ids if id_ in self._known}
        missing = [id_ for id_ in ids if id_ not in found]
        if missing:
            new = {fact.fact_id: _memorised(fact) for fact in view.facts(missing)}
            found |= new
            with self._lock:
                if generation == self._generation:
                    self._known |= new
        return {id_: one for id_, one in found.items() if one is not None}


def _memorised(fact: Fact) -> Memorised | None:
    said: Any = fact.metadata.get(MEMORY_KEY)
    if not isinstance(said, Mapping):
        return None
    flags = dict.fromkeys(
        f"{one['field']}:{one['category']}" for one in said.get("pii_flags") or ()
    )
    return Memorised(float(said.get("confidence", 0.0)), tuple(flags))


@dataclass(frozen=True, slots=True)
class Selected:
    """What may be shown, by section, and what may not.

    Attributes:
        refused: records of the drop report.
        memories: by fact id.
        minimal: so little is safe that the pack is the minimal one.
    """

    knowledge: Candidates
    memory: Candidates
    refused: tuple[Drop, ...]
    memories: Mapping[str, Memorised]
    sightings: RetrieverHits
    minimal: bool


def select(
    view: FabricView,
    query: str,
    *,
    counter: TokenCounter,
    settings: PackSettings,
    envelope: EnvelopeSettings,
    labels: LabelFilter,
    detector: InjectionDetector,
    walker: Walker | None,
    reranker: Reranker | None,
    known: KnownMemories,
) -> Selected:
    """Read the candidates of a pack and keep out what may not enter.

    Spec: Summit §Context Assembly Pipeline

    Args:
        settings: of the pack; those of the envelope hold for everything else.
        labels: which labels policy lets in.
        known: what facts said of the memories that they store.
    """
    sightings = RetrieverHits()
    reading = envelope.model_copy(update={"graph": settings.graph})
    found = gather(
        view,
        query,
        counter=counter,
        settings=reading,
        k_nearest=settings.top_k * settings.depth,
        walker=walker,
        labels=labels,
        sightings=sightings,
    )
    memories = known.of(view, [fact.fact_id for fact in found.facts])
    doubtful = {id_ for id_, one in memories.items() if one.confidence < settings.min_confidence}
    found = refuse_candidates(found, dict.fromkeys(doubtful, DropReason.CONFIDENCE))
    copies = _copies(found.facts)
    found = keep_candidates(
        found, [at for at, fact in enumerate(found.facts) if fact.fact_id not in copies]
    )
    screening = settings.screening.model_copy(update={"enabled": True})
    found = screen_candidates(found, screening, detector)
    found = refuse_candidates(found, _beyond(found.facts, memories, sightings, settings.top_k))
    if reranker is not None:
        found = rerank_candidates(found, reranker, envelope)
    left, refused = split_refused(found)
    held = [at for at, fact in enumerate(left.facts) if fact.fact_id in memories]
    others = [at for at, fact in enumerate(left.facts) if fact.fact_id not in memories]
    return Selected(
        knowledge=keep_candidates(left, others),
        memory=keep_candidates(left, held),
        refused=(*refused_drops(refused), *copies.values()),
        memories=memories,
        sightings=sightings,
        minimal=not left.facts and bool(refused),
    )


def _copies(facts: Sequence[Candidate]) -> dict[str, Drop]:
    """What has the checksum and the provenance of a better candidate, by id."""
    best: dict[tuple[str, str], Candidate] = {}
    copies: dict[str, Drop] = {}
    for fact in sorted(facts, key=lambda one: (one.refused is not None, -one.merit, one.fact_id)):
        kept = best.setdefault((sha256(fact.content), fact.source_id), fact)
        if kept is not fact:
            copies[fact.fact_id] = Drop(
                fact_id=fact.fact_id,
                reason=DropReason.DUPLICATE,
                tokens=fact.tokens,
                kept=kept.fact_id,
            )
    return copies


def _beyond(
    facts: Sequence[Candidate],
    memories: Mapping[str, Memorised],
    sightings: RetrieverHits,
    top_k: int,
) -> dict[str, DropReason]:
    """What neither words nor graph found and is not among the nearest of its section."""
    beyond: dict[str, DropReason] = {}
    open_ = [fact for fact in facts if fact.refused is None]
    for section in (True, False):
        members = [fact for fact in open_ if (fact.fact_id in memories) is section]
        members.sort(key=lambda one: (-one.relevance, one.fact_id))
        for fact in members[top_k:]:
            ranked = {one.retriever for one in sightings.of(fact) if one.rank}
            if not ranked - {"vector"}:
                beyond[fact.fact_id] = DropReason.K
    return beyond
