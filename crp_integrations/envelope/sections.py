"""Named runs of positions in an envelope; one section, `knowledge`, unless asked for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.etag import etag
from crp_integrations.envelope.records import Drop, Envelope, PackedFact, Section
from crp_integrations.envelope.render import render
from crp_integrations.envelope.saturation import label, saturation
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.ports import TokenCounter

KNOWLEDGE = "knowledge"
SECTIONS = "sections@1"


def knowledge(facts: int, *, token_budget: int, token_count: int) -> tuple[Section, ...]:
    """The one section that holds every fact.

    Args:
        facts: number of facts in the envelope.
        token_budget: the envelope's budget.
        token_count: tokens of the rendered text as a whole.
    """
    return (
        Section(
            name=KNOWLEDGE, first=1, last=facts, token_budget=token_budget, token_count=token_count
        ),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The facts of one section, in their order.

    Attributes:
        token_budget: what the section may have.
    """

    name: str
    facts: tuple[PackedFact, ...]
    token_budget: int


def given(id_: str, content: str, source_id: str, tokens: int, score: float = 1.0) -> PackedFact:
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


def sectioned(
    base: Envelope,
    runs: Sequence[Run],
    *,
    dropped: Sequence[Drop],
    available: int,
    budget_tokens: int,
    counter: TokenCounter,
    settings: EnvelopeSettings,
) -> Envelope:
    """An envelope whose facts stand in several sections, numbered through and counted as a whole.

    Spec: Summit §Context Assembly Pipeline

    Args:
        base: of the knowledge; what it says of quality, candidates and state stays.
        runs: sections in the order in which they are shown; those without facts are left out.
        dropped: the whole drop report.
        available: facts that could have been shown.
        budget_tokens: of all sections; the caller sees to it that they fit.
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
            "saturation_label": label(used, settings),
            "etag": etag(fact.fact_id for fact in facts),
            "prefix_tokens": 0,
            "prefix_characters": 0,
            "algorithms": (*base.algorithms, SECTIONS),
        }
    )
