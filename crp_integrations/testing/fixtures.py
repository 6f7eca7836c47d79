"""Records for the tests of stores; equal arguments give equal records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from crp_integrations.audit.records import WindowSeal
from crp_integrations.envelope.records import EarlierWindow, SeenFact
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.fabric.records import Fact, Source, source_id
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.ports import ReceiptsFacet, receipts_of
from crp_integrations.receipt.predicate import SCHEMA
from crp_integrations.receipt.records import Draft, Receipt, issue
from crp_integrations.receipt.signed_statement import Chain, SigningKey
from crp_integrations.seals import iso, sha256
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import QualityTier

NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
NAMESPACE = "tenant-a"
OTHER = "tenant-b"
KEY = bytes(range(32))
DIMENSIONS = 8


def fact(content: str, **fields: Any) -> Fact:
    """A fact of `NAMESPACE`, by default ingested at noon."""
    return Fact(**{"content": content, "namespace": NAMESPACE, "ingested_at": NOON, **fields})


def facts(*contents: str) -> list[Fact]:
    """A fact for each text."""
    return [fact(content) for content in contents]


def rows(chosen: Sequence[Fact]) -> FloatRows:
    """A unit row for each fact that depends only on its text, shape (n, 8)."""
    numbers = [[int(c, 16) + 1 for c in item.content_hash[-DIMENSIONS:]] for item in chosen]
    return unit_rows(np.array(numbers, dtype=np.float32).reshape(len(chosen), DIMENSIONS))


def fill(store: Store, *contents: str) -> list[str]:
    """Add a fact for each text; returns their ids in the same order."""
    made = facts(*contents)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    return [item.fact_id for item in made]


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
    """A seal as a record, without a valid HMAC."""
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


def session(name: str = "s", **fields: Any) -> Session:
    """A session, by default created and last modified at noon."""
    return Session(
        **{"session_id": name, "created_at": iso(NOON), "modified_at": iso(NOON), **fields}
    )


def window(number: int, name: str = "s", **fields: Any) -> WindowNode:
    """A session's window, closed `number` minutes after noon."""
    return WindowNode(
        **{
            "window_id": f"w-{name}-{number}",
            "session_id": name,
            "window_number": number,
            "parents": (f"w-{name}-{number - 1}",) if number > 1 else (),
            "hmac": f"sha256:{number}",
            "timestamp": iso(NOON + timedelta(minutes=number)),
            **fields,
        }
    )


def prior(number: int, *fact_ids: str, **fields: Any) -> EarlierWindow:
    """What a window with these facts passes on to the next window."""
    return EarlierWindow(
        **{
            "window_number": number,
            "etag": "sha256:e",
            "facts_seen": tuple(
                SeenFact(fact_id=id_, content_hash=sha256(id_)) for id_ in fact_ids
            ),
            "answer": f"answer {number}",
            "quality_tier": QualityTier.A,
            **fields,
        }
    )


def open_session(store: Store, *names: str, **fields: Any) -> None:
    """Store sessions of these names."""
    with store.begin(NAMESPACE) as transaction:
        for name in names:
            sessions_of(transaction).keep(session(name, **fields))


def add_window(store: Store, node: WindowNode, *fact_ids: str, **content: Any) -> None:
    """Store a window whose context had these facts."""
    fields = {"prior": prior(node.window_number, *fact_ids), "report": report(), **content}
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).add_window(node, **fields)


def report(*fact_ids: str) -> str:
    """A report with one claim that has these facts as evidence."""
    evidence = [{"fact_id": id_, "start": 0} for id_ in fact_ids]
    return json.dumps({"schema": "dpe-report/1", "claims": [{"evidence": evidence}]})


def windows_with_content(store: Store, *names: str) -> list[str]:
    """Ids of the windows of sessions that have stored content, in order."""
    with store.begin(NAMESPACE, write=False) as transaction:
        sessions = sessions_of(transaction)
        window_ids = []
        for name in names or ("s",):
            ids = [node.window_id for node in sessions.windows(name)]
            priors = sessions.priors(ids)
            for id_ in ids:
                assert (id_ in priors) == (sessions.report(id_) is not None)
                if id_ in priors:
                    window_ids.append(id_)
        return window_ids


def withdraw(
    store: Store, *fact_ids: str, source_id: str = "", at: datetime = NOON + timedelta(hours=1)
) -> int:
    """Withdraw facts; returns how many windows were emptied."""
    with store.begin(NAMESPACE) as transaction:
        return sessions_of(transaction).withdraw(fact_ids, at, source_id=source_id)


SIGNER = SigningKey(bytes(range(32)))


def receipt(number: int, *facts: str, shown: int | None = None, **chain: Any) -> Receipt:
    """A receipt on a window of `conformance_sessions`, with facts as candidates.

    Args:
        facts: ids of the candidates; the text of each is `text of` and its id.
        shown: number of facts that the context contains, from the first on; None for all.
    """
    texts = [f"text of {id_}" for id_ in facts]
    numbers = tuple(range(4, 4 + len(facts)))[:shown]
    leaves = (
        Leaf("request", f"question {number}"),
        Leaf("context", parts=numbers) if numbers else Leaf("context"),
        Leaf("answer", f"answer {number}", of=numbers, follows=True),
        Leaf("prior", "what was said before", follows=True),
        *(Leaf(f"fact/{id_}", text, id_) for id_, text in zip(facts, texts, strict=True)),
    )
    at = {
        "session_id": "s",
        "window_id": f"w-s-{number}",
        "window_number": number,
        "timestamp": "2026-11-21T12:00:00Z",
        "hmac": f"sha256:{number}",
        "parents": (f"sha256:{number - 1}",) if number > 1 else (),
        "outcome": "released",
    }
    return issue(
        Draft({"number": number, "schema": SCHEMA}, leaves), Chain(**{**at, **chain}), SIGNER, KEY
    )


def receipts_in(transaction: Transaction) -> ReceiptsFacet:
    """The facet of receipts, which this suite requires."""
    facet = receipts_of(transaction)
    assert facet is not None
    return facet
