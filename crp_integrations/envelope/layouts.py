"""Layouts: where attention is best, or what a provider's prompt cache can use again.

`position` is the order of §7.4 over all facts. `cache-stable` begins with what stood in the
session's previous envelope, as it stood there, and with pinned facts by id, so that the text
begins with the same bytes; everything else follows in the order of §7.4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from crp_integrations.envelope.order import Ordering, order
from crp_integrations.envelope.records import Envelope, RankedFact
from crp_integrations.envelope.render import SEPARATOR
from crp_integrations.envelope.settings import EnvelopeSettings

CACHE_STABLE = "cache-stable"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a session's previous envelope showed.

    Attributes:
        ids: of its facts, in their order.
        text: as it was rendered.
    """

    ids: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, envelope: Envelope | Shown | None) -> Shown:
        """What an envelope showed; nothing for none."""
        if isinstance(envelope, Shown):
            return envelope
        if envelope is None:
            return cls()
        return cls(tuple(fact.fact_id for fact in envelope.facts), envelope.text)


def front(
    pinned: Collection[str], before: Sequence[str], settings: EnvelopeSettings
) -> tuple[str, ...]:
    """Ids that open a cache-stable envelope, in their order; none in another layout.

    Facts of the previous envelope keep the order that they have there: any other would change
    the bytes that a cache holds. Pinned facts that are new come behind them, by id.

    Args:
        pinned: ids that the caller wants in every envelope, as far as they are candidates.
        before: ids of the session's previous envelope, in their order.
    """
    if settings.layout != CACHE_STABLE:
        return ()
    return (*before, *sorted(set(pinned).difference(before)))


def arranged(
    packed: Sequence[RankedFact], opening: Sequence[str], settings: EnvelopeSettings
) -> Ordering:
    """Packed facts in the order of the settings' layout.

    Spec: CRP-SPEC-003 §7.4

    Args:
        packed: facts in rank order; those of the opening may stand anywhere.
        opening: what `front` gave.
    """
    if settings.layout != CACHE_STABLE:
        return order(packed, settings)
    places = {fact_id: place for place, fact_id in enumerate(opening)}
    steady = [fact for fact in packed if fact.candidate.fact_id in places]
    steady.sort(key=lambda fact: places[fact.candidate.fact_id])
    tail = order([fact for fact in packed if fact.candidate.fact_id not in places], settings)
    return replace(
        tail,
        facts=(*steady, *tail.facts),
        algorithms=(f"{CACHE_STABLE}@1", *tail.algorithms),
    )


def reusable(contents: Sequence[str], previous: str) -> str:
    r"""The rendered facts at the beginning that the previous text begins with as well.

    Args:
        contents: texts of the facts in their order.
        previous: the previous envelope's text.

    Returns:
        Whole facts with the separators between them; empty when the first differs.

    >>> reusable(["A.", "B.", "C."], "[1] A.\n\n[2] B.\n\n[3] D.")
    '[1] A.\n\n[2] B.'
    """
    end = 0
    for number, content in enumerate(contents, start=1):
        block = f"[{number}] {content}" if end == 0 else f"{SEPARATOR}[{number}] {content}"
        if not previous.startswith(block, end):
            break
        end += len(block)
    return previous[:end]
