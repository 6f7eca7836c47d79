"""Turns a framework's items and passages into facts, and packed facts into metadata."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pydantic import ValidationError

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import FactRejected, LimitReached
from crp_integrations.fabric.ingest.chunker import cut_blocks
from crp_integrations.fabric.records import Block, Fact
from crp_integrations.relay.evidence import readable
from crp_integrations.relay.relay import Relay

Item = TypeVar("Item")

log = logging.getLogger("crp_integrations.adapters")

# Key of a packed fact in the metadata of a document or node; `crp` is that of an answer's report.
FACT_KEY: Final = "crp_fact"
# Skips "sha256:"; twelve digits are enough to tell the texts of one id apart.
HASH_PART = slice(7, 19)


@dataclass(frozen=True, slots=True)
class OfferedFact(Generic[Item]):
    """One item of a framework, with the fields for its fact.

    Attributes:
        item: the framework's object.
        content: its text as the model will see it; empty when it has none.
        fact_id: the framework's id; empty derives one from source, location and text.
    """

    item: Item
    content: str
    fact_id: str = ""
    source_id: str = "user"
    source_location: str = ""


def facts_of(
    offers: Iterable[OfferedFact[Item]], *, noun: str
) -> tuple[list[Fact], dict[str, Item]]:
    """Offers as facts, and the framework's items by fact id.

    Items without text are left out; duplicates count once. Vector stores reuse ids, so where
    an id occurs with several texts, each text becomes a separate fact, named `ID#` plus the
    start of its text's hash.
    """
    made = [
        (_as_fact(f"{noun} {number}", offer), offer.item)
        for number, offer in enumerate(offers, start=1)
        if offer.content
    ]
    texts: dict[str, set[str]] = defaultdict(set)
    for fact, _ in made:
        texts[fact.fact_id].add(fact.content_hash)
    facts: list[Fact] = []
    items: dict[str, Item] = {}
    for fact, item in made:
        if len(texts[fact.fact_id]) > 1:
            fact = fact.changed(fact_id=f"{fact.fact_id}#{fact.content_hash[HASH_PART]}")
        if fact.fact_id not in items:
            items[fact.fact_id] = item
            facts.append(fact)
    return facts, items


def fact_metadata(envelope: Envelope, place: int) -> dict[str, Any]:
    """Plain JSON about one packed fact and its envelope, without the fact's text."""
    return {
        **envelope.facts[place].model_dump(mode="json", exclude={"content"}),
        "envelope": {
            "etag": envelope.etag,
            "state_hash": envelope.state_hash,
            "quality_tier": envelope.quality_tier.value,
            "token_count": envelope.token_count,
            "token_budget": envelope.token_budget,
        },
    }


def _as_fact(name: str, offer: OfferedFact[Item]) -> Fact:
    """An item as a fact; characters that cannot be encoded become U+FFFD."""
    fields = {
        "content": offer.content,
        "fact_id": offer.fact_id,
        "source_id": offer.source_id,
        "source_location": offer.source_location,
    }
    try:
        cleaned = {field: readable(value) for field, value in fields.items()}
        fact = Fact(**cleaned)
    except (TypeError, ValidationError):
        # Pydantic's message would quote the text.
        raise FactRejected(f"{name} is not a text") from None
    if cleaned != fields:
        log.warning("%s has characters that cannot be written; they are shown as U+FFFD", name)
    return fact


Reader: TypeAlias = Callable[[str], Iterable[Block]]


def hold_facts(relay: Relay, session_id: str, facts: list[Fact]) -> int:
    """Keep facts in memory for a session, store nothing, and return their number."""
    if not facts:
        return 0
    try:
        report = relay.add(facts, session_id=session_id, cache="no-store")
    except (FactRejected, LimitReached):
        return 0
    return len(report.facts) + len(report.unchanged)


def passage_facts(
    relay: Relay, read: Reader, source_id: str, text: str, frame: str
) -> Iterator[Fact]:
    """A text as facts: a long one is split, a short one prefixed with `frame` or left out."""
    passage = readable(text).strip()
    if not passage:
        return
    settings, counter = relay.settings.fabric.chunking, relay.fabric.counter
    if counter.count(passage) < settings.min_fact_tokens:
        passage = frame + passage
        if counter.count(passage) < settings.min_fact_tokens:
            return
    for number, block in enumerate(
        cut_blocks(read(passage), counter=counter, settings=settings), 1
    ):
        yield Fact(content=block.content, source_id=source_id, source_location=f"#{number}")
