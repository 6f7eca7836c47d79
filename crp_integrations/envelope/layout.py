"""Where each packed fact is placed: by a named order, by layout, and in which section.

A model attends best to the beginning and the end of its context, so critical facts are put there.
A fact is critical by its composite score; one whose importance makes its absence cap the tier
is called vital (decision E5). The layout `position` applies the order of §7.4 to all facts;
`cache-stable` begins with the facts of the session's previous envelope, in their order there, and
with pinned facts by id, so that a provider's prompt cache finds the same bytes again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from crp_integrations.envelope.candidates import RankedFact
from crp_integrations.envelope.prompt import SEPARATOR, render
from crp_integrations.envelope.records import Drop, Envelope, PackedFact, Section
from crp_integrations.envelope.reuse import etag
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.tier import saturation, saturation_label
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed


@dataclass(frozen=True, slots=True)
class Ordering:
    """Packed facts in the order they are shown.

    Attributes:
        facts: the packed facts in their new order.
        promoted: ids put first and last although no fact is critical (decision E7).
        algorithms: `name@n` of each ordering algorithm.
    """

    facts: tuple[RankedFact, ...]
    promoted: tuple[str, ...]
    algorithms: tuple[str, ...]


def order_facts(packed: Sequence[RankedFact], settings: EnvelopeSettings) -> Ordering:
    """Put packed facts into the order that `settings.ordering` names.

    Spec: CRP-SPEC-003 §7.4 (decisions E6, E7)
    """
    critical_from = to_fixed(settings.critical_composite)
    important_from = to_fixed(settings.important_composite)
    algorithms = (f"{settings.ordering}@1",)
    if settings.ordering in ("rank", "reversed"):
        facts = tuple(packed) if settings.ordering == "rank" else tuple(reversed(packed))
        return Ordering(facts, (), algorithms)
    critical = [fact for fact in packed if fact.composite >= critical_from]
    promoted: tuple[str, ...] = ()
    first: list[RankedFact] = []
    last: list[RankedFact] = []
    rest = list(packed)
    if not critical and settings.promote:
        first, last = rest[:1], rest[1:2]
        rest = rest[2:]
        promoted = tuple(fact.candidate.fact_id for fact in (*first, *last))
    elif settings.ordering == "sandwich_rank" or len(critical) <= 2:
        first, last = critical[:2], critical[2:]
    else:
        first, last = [critical[0], critical[-1]], critical[1:-1]
    important = [fact for fact in rest if important_from <= fact.composite < critical_from]
    supporting = [fact for fact in rest if fact.composite < min(important_from, critical_from)]
    return Ordering((*first, *supporting, *important, *last), promoted, algorithms)


CACHE_STABLE = "cache-stable"


@dataclass(frozen=True, slots=True)
class PreviousEnvelope:
    """Facts and text of a session's previous envelope.

    Attributes:
        ids: ids of its facts, in their order.
        text: its rendered text.
    """

    ids: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, envelope: Envelope | PreviousEnvelope | None) -> PreviousEnvelope:
        """Ids and text of an envelope; both are empty for None."""
        if isinstance(envelope, PreviousEnvelope):
            return envelope
        if envelope is None:
            return cls()
        return cls(tuple(fact.fact_id for fact in envelope.facts), envelope.text)


def opening_ids(
    pinned: Collection[str], before: Sequence[str], settings: EnvelopeSettings
) -> tuple[str, ...]:
    """Ids of the first facts of a cache-stable envelope, in order; empty in another layout.

    Facts of the previous envelope keep their order, since another order would change the bytes
    that a prompt cache contains. New pinned facts follow, by id.
    """
    if settings.layout != CACHE_STABLE:
        return ()
    return (*before, *sorted(set(pinned).difference(before)))


def arrange_facts(
    packed: Sequence[RankedFact], opening: Sequence[str], settings: EnvelopeSettings
) -> Ordering:
    """Packed facts in the order of the settings' layout.

    Spec: CRP-SPEC-003 §7.4
    """
    if settings.layout != CACHE_STABLE:
        return order_facts(packed, settings)
    places = {fact_id: place for place, fact_id in enumerate(opening)}
    steady = [fact for fact in packed if fact.candidate.fact_id in places]
    steady.sort(key=lambda fact: places[fact.candidate.fact_id])
    tail = order_facts([fact for fact in packed if fact.candidate.fact_id not in places], settings)
    return replace(
        tail,
        facts=(*steady, *tail.facts),
        algorithms=(f"{CACHE_STABLE}@1", *tail.algorithms),
    )


def reusable_prefix(contents: Sequence[str], previous: str) -> str:
    r"""The rendered facts with which both the new text and the previous text begin.

    >>> reusable_prefix(["A.", "B.", "C."], "[1] A.\n\n[2] B.\n\n[3] D.")
    '[1] A.\n\n[2] B.'
    """
    end = 0
    for number, content in enumerate(contents, start=1):
        block = f"[{number}] {content}" if end == 0 else f"{SEPARATOR}[{number}] {content}"
        if not previous.startswith(block, end):
            break
        end += len(block)
    return previous[:end]


KNOWLEDGE = "knowledge"
SECTIONS = "sections@1"


def knowledge_section(facts: int, *, token_budget: int, token_count: int) -> tuple[Section, ...]:
    """The one section that contains every fact."""
    return (
        Section(
            name=KNOWLEDGE, first=1, last=facts, token_budget=token_budget, token_count=token_count
        ),
    )


@dataclass(frozen=True, slots=True)
class SectionRun:
    """The facts of one section, in their order.

    Attributes:
        token_budget: maximum tokens of the section.
    """

    name: str
    facts: tuple[PackedFact, ...]
    token_budget: int


def caller_fact(
    id_: str, content: str, source_id: str, tokens: int, score: float = 1.0
) -> PackedFact:
    """Make a fact of an envelope from a text of the caller's, such as a message."""
    return PackedFact(
        fact_id=id_,
        content=content,
        source_id=source_id,
        relevance_score=score,
        importance_weight=1.0,
        freshness_score=1.0,
        diversity_bonus=0.0,
        composite_score=score,
        token_count=tokens,
        position=1,
    )


def build_sections(
    base: Envelope,
    runs: Sequence[SectionRun],
    *,
    dropped: Sequence[Drop],
    available: int,
    budget_tokens: int,
    counter: TokenCounter,
    settings: EnvelopeSettings,
) -> Envelope:
    """An envelope with several sections, its facts numbered across them and counted as a whole.

    Spec: Summit §Context Assembly Pipeline
    """
    facts: list[PackedFact] = []
    sections: list[Section] = []
    for run in runs:
        if not run.facts:
            continue
        first = len(facts) + 1
        facts += [
            fact.model_copy(update={"position": first + place})
            for place, fact in enumerate(run.facts)
        ]
        sections.append(
            Section(
                name=run.name,
                first=first,
                last=len(facts),
                token_budget=run.token_budget,
                token_count=sum(fact.token_count for fact in run.facts),
            )
        )
    text = render([fact.content for fact in facts])
    tokens = max(0, counter.count(text)) if text else 0
    used = saturation(tokens, budget_tokens)
    return base.model_copy(
        update={
            "text": text,
            "facts": tuple(facts),
            "sections": tuple(sections),
            "dropped": tuple(dropped),
            "total_facts_available": available,
            "total_facts_included": len(facts),
            "token_count": tokens,
            "token_budget": budget_tokens,
            "saturation": float(used),
            "saturation_label": saturation_label(used, settings),
            "etag": etag(fact.fact_id for fact in facts),
            "prefix_tokens": 0,
            "prefix_characters": 0,
            "algorithms": (*base.algorithms, SECTIONS),
        }
    )
