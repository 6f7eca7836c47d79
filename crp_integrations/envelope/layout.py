"""Where each packed fact stands: by a named order, by layout, and in which section.

A model attends best to the beginning and the end of its context, so critical facts stand there.
"Critical" here is a composite score; a fact whose importance makes its absence matter to the tier
is called vital (decision E5). The layout `position` is the order of §7.4 over all facts;
`cache-stable` begins with what stood in the session's previous envelope, as it stood there, and
with pinned facts by id, so that a provider's prompt cache meets the same bytes again.
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
        facts: a permutation of what was packed.
        promoted: ids put first and last although no fact is critical (decision E7).
        algorithms: `name@n` of each rule.
    """

    facts: tuple[RankedFact, ...]
    promoted: tuple[str, ...]
    algorithms: tuple[str, ...]


def order_facts(packed: Sequence[RankedFact], settings: EnvelopeSettings) -> Ordering:
    """Put packed facts into the order of the settings' rule.

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
    """What a session's previous envelope showed.

    Attributes:
        ids: of its facts, in their order.
        text: as it was rendered.
    """

    ids: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, envelope: Envelope | PreviousEnvelope | None) -> PreviousEnvelope:
        """What an envelope showed; nothing for none."""
        if isinstance(envelope, PreviousEnvelope):
            return envelope
        if envelope is None:
            return cls()
        return cls(tuple(fact.fact_id for fact in envelope.facts), envelope.text)


def opening_ids(
    pinned: Collection[str], before: Sequence[str], settings: EnvelopeSettings
) -> tuple[str, ...]:
    """Ids that open a cache-stable envelope, in their order; none in another layout.

    Facts of the previous envelope keep the order that they have there: any other would change
    the bytes that a cache holds. Pinned facts that are new come behind them, by id.
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
    r"""The rendered facts at the beginning that the previous text begins with as well.

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
    """The one section that holds every fact."""
    return (
        Section(
            name=KNOWLEDGE, first=1, last=facts, token_budget=token_budget, token_count=token_count
        ),
    )


@dataclass(frozen=True, slots=True)
class SectionRun:
    """The facts of one section, in their order.

    Attributes:
        token_budget: what the section may have.
    """

    name: str
    facts: tuple[PackedFact, ...]
    token_budget: int


def caller_fact(
    id_: str, content: str, source_id: str, tokens: int, score: float = 1.0
) -> PackedFact:
    """What a caller gives to be shown, such as a message, as a fact of an envelope."""
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
    """An envelope whose facts stand in several sections, numbered through and counted as a whole.

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
