"""Sections of what a caller gives: in its order, whole or not at all, equal texts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.layout import caller_fact
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Drop, PackedFact
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import digest
from crp_integrations.vocabulary import DropReason


@dataclass(frozen=True, slots=True)
class Entry:
    """A text that is given for a section.

    Attributes:
        firm: it is shown whatever the section's budget.
        refused: why it may not be shown; None for one that may.
    """

    id: str
    text: str
    source: str
    firm: bool = False
    score: float = 1.0
    refused: DropReason | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """A section of given texts.

    Attributes:
        firm: ids of those of the facts that no budget leaves out.
        tokens: of its items with their markers and separators.
        budget: tokens of its share.
    """

    name: str
    facts: tuple[PackedFact, ...]
    firm: frozenset[str]
    dropped: tuple[Drop, ...]
    tokens: int
    budget: int

    @property
    def over(self) -> int:
        """Tokens by which what is firm is above the share."""
        return max(0, self.tokens - self.budget)


def entry(kind: str, text: str, source: str, *, firm: bool = False) -> Entry:
    """An entry whose id follows from its text and source, so that equal ones are one.

    >>> entry("task", "Answer.", "request").id == entry("task", "Answer.", "request").id
    True
    """
    name = digest([text, source]).removeprefix("sha256:")[:16]
    return Entry(f"{kind}:{name}", text, source, firm)


def filled(name: str, entries: Sequence[Entry], budget: int, counter: TokenCounter) -> Filled:
    """Fill a section: first what is firm, then what fits, each in its order; equal ids are one.

    Spec: Summit §Context Assembly Pipeline
    """
    unique = list({one.id: one for one in reversed(entries)}.values())[::-1]
    counts = [max(0, n) for n in counter.count_many([marker_text(one.text) for one in unique])]
    used = sum(n for one, n in zip(unique, counts, strict=True) if one.firm and not one.refused)
    facts: list[PackedFact] = []
    dropped: list[Drop] = []
    for one, tokens in zip(unique, counts, strict=True):
        reason = one.refused
        if reason is None and not one.firm:
            if used + tokens > budget:
                reason = DropReason.BUDGET
            else:
                used += tokens
        if reason is None:
            facts.append(caller_fact(one.id, one.text, one.source, tokens, one.score))
        else:
            dropped.append(Drop(fact_id=one.id, reason=reason, tokens=tokens))
    firm = frozenset(one.id for one in unique if one.firm)
    return Filled(name, tuple(facts), firm, tuple(dropped), used, budget)
