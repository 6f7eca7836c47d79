"""What adapters share: a framework's own items as facts, and an envelope's word on each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import FactRejected
from crp_integrations.fabric.records import Fact

Item = TypeVar("Item")

# Behind "sha256:", enough digits to keep the texts of one id apart.
HASH_PART = slice(7, 19)


@dataclass(frozen=True, slots=True)
class Offer(Generic[Item]):
    """One item of a framework, and what a fact is made of.

    Attributes:
        item: the framework's object.
        content: its text as the model is to see it; empty when it has none.
        fact_id: the framework's id, empty for one made of source, location and text.
    """

    item: Item
    content: str
    fact_id: str = ""
    source_id: str = "user"
    source_location: str = ""


def facts_of(offers: Iterable[Offer[Item]], *, noun: str) -> tuple[list[Fact], dict[str, Item]]:
    """Offers as facts, and the framework's items by fact id.

    Items without text hold nothing to pack and are left out; equal ones count once. Vector
    stores use ids again, so where an id stands for several texts, each becomes a fact of its
    own, named `ID#` and the start of its text's hash.

    Args:
        noun: what the framework calls an item, for messages.

    Raises:
        FactRejected: a text, id or source cannot be encoded as UTF-8.
    """
    made = [
        (_fact(f"{noun} {number}", offer), offer.item)
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


def about(envelope: Envelope, place: int) -> dict[str, Any]:
    """Plain JSON about one packed fact and its envelope, without the fact's text.

    Args:
        place: index in `envelope.facts`, from 0.
    """
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


def _fact(name: str, offer: Offer[Item]) -> Fact:
    try:
        fact = Fact(
            content=offer.content,
            fact_id=offer.fact_id,
            source_id=offer.source_id,
            source_location=offer.source_location,
        )
        (fact.fact_id + fact.source_id + fact.source_location).encode()
    except (ValidationError, UnicodeEncodeError):
        # The library's message would quote the text.
        raise FactRejected(f"{name} is not text that can be encoded as UTF-8") from None
    return fact
