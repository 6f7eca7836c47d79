"""Candidates for the measurement of packing, and the loops of the specification as printed."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

from crp_integrations.envelope.candidates import Candidate, Candidates
from crp_integrations.envelope.near_duplicates import PairRelation, split_near_duplicates
from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import from_fixed, to_fixed
from crp_integrations.vectors import FloatRows, cosine, unit_rows

DIMENSIONS = 384
NOW = datetime(2026, 5, 1, tzinfo=UTC)
# Every so many-th passage has a near-duplicate; one in three of them says another number.
TWIN_EVERY = 12
A_TOPIC = 20
COMMUNITIES = 25
SIMILARITY = 0.95
_WORDS = """account agency annual answer appeal archive article audit budget building carrier
    case change charge claim clause client code committee contract cost council country court
    customer data deadline decision delivery department directive document duty employee energy
    engine estimate evidence exchange factory fee field file form fund grant group guideline
    hearing health income index industry inspection insurance interest invoice law lease letter
    level licence limit list loan machine manager market material measure meeting member method
    model month network notice number office operator order owner parcel partner party patent
    payment pension permit person plan plant policy power price process product project property
    protocol quality record region register report request reserve resource result review right
    risk road route rule sample schedule school section service share site source staff standard
    station statement stock storage supplier supply survey system target tax team term test
    title trade traffic transfer transport trust unit user value vehicle vendor vessel voucher
    wage warranty water weight worker year zone""".split()
_VERBS = "covers needs follows limits requires supports names replaces checks holds".split()


@dataclass(frozen=True)
class Material:
    """What every system is given: the same passages in the order of their relevance.

    Attributes:
        facts: candidates by id, with stored token counts.
        rows: their unit vectors, shape (n, 384).
        vector: the question's.
    """

    query: str
    facts: tuple[Candidate, ...]
    rows: FloatRows
    vector: FloatRows
    tokenizer: str

    def candidates(self) -> Candidates:
        """What `gather` hands on; nothing of it is remembered from an earlier run."""
        duplicates, conflicts = self.alike()
        return Candidates(
            query=self.query,
            sub_queries=(self.query,),
            facts=self.facts,
            tokenizer=self.tokenizer,
            duplicates=duplicates,
            conflicts=conflicts,
        )

    def alike(self) -> tuple[PairRelation, PairRelation]:
        """Near-identical pairs, not worked out yet."""
        contents = [fact.content for fact in self.facts]
        return split_near_duplicates(contents, self.rows, SIMILARITY)

    @cached_property
    def by_relevance(self) -> Sequence[int]:
        """Positions, the most relevant first: the order in which a retriever hands them over."""
        return sorted(
            range(len(self.facts)),
            key=lambda at: (-self.facts[at].relevance, self.facts[at].fact_id),
        )


def make(count: int, counter: TokenCounter, *, seed: int = 0) -> Material:
    """So many passages of about 145 tokens, the same for a seed.

    Vectors lie around topics as sentence embeddings do: about .5 within a topic, .1 between
    topics, above .95 for near-duplicates.
    """
    generator = np.random.default_rng(seed)
    chance = random.Random(seed)
    topics = generator.normal(size=(max(4, count // A_TOPIC), DIMENSIONS))
    topic = generator.integers(len(topics), size=count)
    question = generator.normal(size=DIMENSIONS)
    rows = topics[topic] + 0.9 * generator.normal(size=(count, DIMENSIONS)) + 0.4 * question
    texts = [_text(chance, number) for number in range(count)]
    for number in range(0, count - 1, TWIN_EVERY):
        rows[number + 1] = rows[number] + 0.1 * generator.normal(size=DIMENSIONS)
        texts[number + 1] = _twin(texts[number], number)
    block = unit_rows(rows)
    vector = unit_rows(question[None])[0]
    ids = [str(uuid.UUID(bytes=generator.bytes(16))) for _ in range(count)]
    order = sorted(range(count), key=ids.__getitem__)
    block = np.ascontiguousarray(block[order])
    relevance = cosine(block, vector)
    counts = counter.count_many([marker_text(texts[at]) for at in order])
    facts = tuple(
        Candidate(
            fact_id=ids[at],
            content=texts[at],
            source_id=f"source-{topic[at]}",
            relevance=to_fixed(float(relevance[place])),
            importance=100_000 * (3 + at % 5),
            tokens=counts[place],
            ingested_at=NOW - timedelta(days=(at * 7) % 400),
            community=f"community-{topic[at] % COMMUNITIES}",
        )
        for place, at in enumerate(order)
    )
    query = "Which rule holds for the contract of a supplier?"
    return Material(query, facts, block, vector, counter.identity)


def _text(chance: random.Random, number: int) -> str:
    sentences = [f"Passage {number} is about the {chance.choice(_WORDS)} and names 40 members."]
    for _ in range(9):
        one, two, three, four = chance.sample(_WORDS, 4)
        verb = chance.choice(_VERBS)
        sentences.append(
            f"The {one} of the {two} {verb} each {three} that the {four} has in force."
        )
    return " ".join(sentences)


def _twin(text: str, number: int) -> str:
    if number % (3 * TWIN_EVERY) == 0:
        return text.replace("names 40 members", "names 41 members")
    return text.replace("is about", "speaks about")


@dataclass(slots=True)
class _Fact:
    candidate: Candidate
    embedding: FloatRows
    relevance: float
    composite: float = 0.0


def loops(
    facts: tuple[Candidate, ...],
    rows: FloatRows,
    *,
    token_budget: int,
    now: datetime,
    counter: TokenCounter,
) -> tuple[list[str], str]:
    """Ids in their order and the ETag; the text is rendered and counted once as ours is.

    Spec: CRP-SPEC-003 §6.2 to §6.7, §7.3 to §7.5
    """
    candidates = [
        _Fact(fact, row, from_fixed(fact.relevance)) for fact, row in zip(facts, rows, strict=True)
    ]
    candidates.sort(key=lambda fact: -fact.relevance)
    _score(candidates, now)
    ranked = sorted(candidates, key=lambda fact: (-fact.composite, fact.candidate.fact_id))
    kept: list[_Fact] = []
    for fact_a in ranked:
        for fact_b in kept:
            # Unit vectors: the cosine is the dot product.
            if float(np.dot(fact_a.embedding, fact_b.embedding)) > 0.95:
                break
        else:
            kept.append(fact_a)
    envelope: list[_Fact] = []
    tokens_used = 0
    for fact in kept:
        if tokens_used + fact.candidate.tokens <= token_budget:
            envelope.append(fact)
            tokens_used += fact.candidate.tokens
    final_order = _ordered(envelope)
    text = render([fact.candidate.content for fact in final_order])
    counter.count(text)
    sorted_ids = sorted(fact.candidate.fact_id for fact in envelope)
    etag_input = "|".join(sorted_ids) + "|" + str(len(envelope))
    etag = "sha256:" + hashlib.sha256(etag_input.encode()).hexdigest()
    return [fact.candidate.fact_id for fact in final_order], etag


def _score(candidates: list[_Fact], now: datetime) -> None:
    selected: list[_Fact] = []
    for fact in candidates:
        community = fact.candidate.community
        count = len([one for one in selected if one.candidate.community == community])
        total = len([one for one in candidates if one.candidate.community == community])
        bonus = 0.0 if count / total > 0.40 else 1.0 - count / total
        ingested = fact.candidate.ingested_at or now
        age_days = (now - ingested).total_seconds() / 86_400
        freshness = max(0.0, 1.0 - age_days / 365)
        fact.composite = (
            fact.relevance * 0.50
            + from_fixed(fact.candidate.importance) * 0.25
            + freshness * 0.15
            + bonus * 0.10
        )
        selected.append(fact)


def _ordered(envelope: list[_Fact]) -> list[_Fact]:
    critical = [fact for fact in envelope if fact.composite >= 0.80]
    important = [fact for fact in envelope if 0.50 <= fact.composite < 0.80]
    supporting = [fact for fact in envelope if fact.composite < 0.50]
    return [*critical[:1], *critical[1:][-1:], *supporting, *important, *critical[1:-1]]
