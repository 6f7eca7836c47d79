"""Small records for tests of stores; equal arguments give equal records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from crp_integrations.audit.records import WindowSeal
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Source, source_id
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows, unit_rows

NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
NAMESPACE = "tenant-a"
OTHER = "tenant-b"
KEY = bytes(range(32))
DIMENSIONS = 8


def fact(content: str, **fields: Any) -> Fact:
    """A fact of `NAMESPACE`, ingested at noon unless said otherwise."""
    return Fact(**{"content": content, "namespace": NAMESPACE, "ingested_at": NOON, **fields})


def facts(*contents: str) -> list[Fact]:
    """A fact for each text."""
    return [fact(content) for content in contents]


def rows(chosen: Sequence[Fact]) -> FloatRows:
    """A unit row for each fact that depends on its text alone, shape (n, 8)."""
    numbers = [[int(c, 16) + 1 for c in one.content_hash[-DIMENSIONS:]] for one in chosen]
    return unit_rows(np.array(numbers, dtype=np.float32).reshape(len(chosen), DIMENSIONS))


def fill(store: Store, *contents: str) -> list[str]:
    """Add a fact for each text; returns their ids in the same order."""
    made = facts(*contents)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    return [one.fact_id for one in made]


def source(uri: str, **fields: Any) -> Source:
    """A source with a URI."""
    return Source(
        **{
            "source_id": source_id(uri),
            "title": uri,
            "uri": uri,
            "document_hash": sha256(uri),
            "ingested_at": NOON,
            **fields,
        }
    )


def seal(session_id: str, number: int, **fields: Any) -> WindowSeal:
    """A seal as a record; its HMAC is none."""
    return WindowSeal(
        **{
            "session_id": session_id,
            "window_id": f"crp_win_{number}",
            "window_number": number,
            "timestamp": "2026-05-25T10:00:00Z",
            "response_hash": "sha256:aaa",
            "report_hash": "sha256:bbb",
            "parent_hmac": "" if number == 1 else f"sha256:{number - 1}",
            "hmac": f"sha256:{number}",
            **fields,
        }
    )
