"""Facts with chosen vectors, put into a store through its facets, for the tests of the index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from crp_integrations.fabric.ports import FactsFacet, Store
from crp_integrations.fabric.records import Fact, Source
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows, unit_rows
from tests.doubles import NOON

NAME = "acme"


def fact(number: int, **fields: Any) -> Fact:
    """A fact whose id tells its number, in an order that is not that of the numbers."""
    chosen: dict[str, Any] = {
        "content": f"Fact {number} says something of its own in as many words as a fact needs.",
        "fact_id": f"{sha256(str(number))[7:15]}-{number:05d}",
        "source_id": "user",
        "ingested_at": NOON + timedelta(minutes=number),
        "modified_at": NOON,
    }
    return Fact(**{**chosen, **fields})


def vectors(count: int, *, width: int = 16, seed: int = 0, topics: int = 12) -> FloatRows:
    """Rows around a few topics, as those of real texts are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((topics, width))
    spread = 0.5 * random.standard_normal((count, width))
    return unit_rows(centres[random.integers(0, topics, count)] + spread)


def ties(count: int, *, width: int = 6, seed: int = 0) -> FloatRows:
    """Rows of few distinct values, so that equal scores are common."""
    return unit_rows(np.random.default_rng(seed).integers(-1, 2, size=(count, width)))


def source(facts: FactsFacet) -> None:
    """The registry's entry of the facts made here."""
    facts.add_source(
        Source(
            source_id="user", title="user", uri="user:user", document_hash="sha256:0",
            ingested_at=NOON,
        )
    )  # fmt: skip


def put(store: Store, made: Sequence[Fact], rows: FloatRows, name: str = NAME) -> None:
    """Add facts in a transaction of their own."""
    with store.begin(name, write=True) as transaction:
        if transaction.facts.source("user") is None:
            source(transaction.facts)
            transaction.facts.set_setting("embedder", "rows/1")
        transaction.facts.add(list(made), rows)


def numbered(count: int, start: int = 0, **fields: Any) -> list[Fact]:
    """Facts by number."""
    return [fact(number, **fields) for number in range(start, start + count)]
