"""Short ways to make candidates and rankings for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.caller_candidates import CallerTexts
from crp_integrations.envelope.candidates import Candidate, Candidates, RankedFact
from crp_integrations.envelope.near_duplicates import _all_pairs
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.messages import Message
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Exactness, GroundingMode
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter

SETTINGS = EnvelopeSettings()
LITERAL = EnvelopeSettings.preset("literal")


class LetterCounter:
    """One token a character: parts add up exactly, and any budget can be met to the token."""

    identity = "letters@1"
    exactness = Exactness.EXACT
    source = "tests"

    def count(self, text: str) -> int:
        return len(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        return sum(self.count(message.content) for message in messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        return self.count(json.dumps(tools)) if tools else 0


def fact(
    fact_id: str,
    relevance: float = 0.5,
    importance: float = 0.5,
    *,
    tokens: int | None = None,
    community: str | None = None,
    ingested_at: datetime | None = NOON,
    stale: bool = False,
    content: str | None = None,
    source_id: str = "source",
) -> Candidate:
    text = f"text of {fact_id}" if content is None else content
    return Candidate(
        fact_id=fact_id,
        content=text,
        source_id=source_id,
        relevance=to_fixed(relevance),
        importance=to_fixed(importance),
        tokens=len(text) + 7 if tokens is None else tokens,
        ingested_at=ingested_at,
        stale=stale,
        community=community,
    )


def candidates(*facts: Candidate, query: str = "a question", **fields: Any) -> Candidates:
    ordered = tuple(sorted(facts, key=lambda item: item.fact_id))
    fields.setdefault("tokenizer", "letters@1")
    return Candidates(query=query, sub_queries=(query,), facts=ordered, **fields)


def ranked(fact_id: str, composite: float, **fields: Any) -> RankedFact:
    return RankedFact(fact(fact_id, **fields), to_fixed(composite), 0, 0)


def made(
    given: Candidates,
    *,
    budget_tokens: int = 10_000,
    counter: TokenCounter | None = None,
    grounding: GroundingMode = GroundingMode.PREFERRED,
    settings: EnvelopeSettings = SETTINGS,
    now: datetime = NOON,
    **fields: Any,
) -> Envelope:
    return assemble(
        given,
        budget_tokens=budget_tokens,
        counter=counter or LetterCounter(),
        grounding=grounding,
        settings=settings,
        now=now,
        **fields,
    )


def build_candidates(
    query: str,
    facts: Sequence[Fact | str],
    *,
    embedder: Embedder,
    counter: TokenCounter,
    settings: EnvelopeSettings,
    chunking: ChunkingSettings | None = None,
    sub_queries: Sequence[str] = (),
) -> Candidates:
    texts = CallerTexts(
        embedder=embedder,
        counter=counter,
        settings=settings,
        chunking=chunking or ChunkingSettings(),
    )
    return texts.candidates(query, facts, sub_queries=sub_queries)


def near_pairs(vectors: FloatRows, threshold: float) -> tuple[tuple[int, int], ...]:
    """Pairs of rows whose cosine is above a threshold: the plain definition, over all pairs."""
    left, right = _all_pairs(vectors, threshold)
    return tuple(zip(left.tolist(), right.tolist(), strict=True))


def originals(result: Ranking) -> list[RankedFact]:
    """What is ranked without near-duplicates."""
    gone = result.walk.all()
    return [ranked for place, ranked in enumerate(result.every) if place not in gone]


def open_fabric(
    embedder: Embedder | None = None, clock: FixedClock | None = None, **parts: Any
) -> Fabric:
    return Fabric(
        MemoryStore(),
        embedder or HashEmbedder(),
        WordCounter(),
        clock or FixedClock(),
        FixedKeyRing(b"k" * 32),
        **parts,
    )


class NoSecrets:
    """A guard that shows facts with the label `secret` to Ann alone."""

    name = "no-secrets"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = action != "read" or "secret" not in labels or subject.name == "ann"
        return Decision(allowed=allowed, guard=self.name, reason="label")
