"""What the tests of the lifecycle share: a fabric over both stores, passages, and looking below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crp_integrations.audit import journal
from crp_integrations.audit.records import Event
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Document, Fact, Source, Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.loaders.text import read_text
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import PARAGRAPHS, FixedClock, HashEmbedder, WordCounter

KEYS = FixedKeyRing(b"k" * 32)
ACME = Subject(tenant="acme")
EVERY = tuple(FactStatus)


class Labelled:
    """A guard that allows a subject what carries no label but its roles, and names no labels.

    A role such as `read:secret` allows that action alone.
    """

    name = "labelled"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = {*subject.roles} | {
            role.partition(":")[2] for role in subject.roles if role.startswith(f"{action}:")
        }
        return Decision(allowed=set(labels) <= allowed, guard=self.name, reason="by its labels")


class Counted(HashEmbedder):
    """Keeps the texts that it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_passages(self, texts: Any) -> Any:
        self.texts += texts
        return super().embed_passages(texts)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def fabric(store: Store | None = None, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": KEYS,
        "settings": FabricSettings(chunking=PARAGRAPHS),
    }
    return Fabric(store or MemoryStore(), **{**chosen, **parts})


def sentence(number: int | str) -> str:
    return f"Passage {number} says in ten words or more that value{number} is {number} units."


def document(name: str, *passages: str, **fields: Any) -> Document:
    text = "\n\n".join(passages)
    return read_text(text.encode(), uri=f"test:{name}", name=name).model_copy(update=fields)


def stored(made: Fabric, *ids: str) -> list[Fact]:
    """Facts as they lie in the store, whatever their status; all of them when none are named."""
    with made.store.begin("acme", write=False) as transaction:
        facts = transaction.facts
        return facts.get(ids or facts.find(Where(statuses=EVERY)))


def source_of(made: Fabric, source_id: str) -> Source | None:
    with made.store.begin("acme", write=False) as transaction:
        return transaction.facts.source(source_id)


def setting(made: Fabric, name: str) -> str | None:
    with made.store.begin("acme", write=False) as transaction:
        return transaction.facts.setting(name)


def formula(made: Fabric) -> str:
    """The state hash by the letter, over what is stored."""
    return state_hash(
        (fact.fact_id, fact.content_hash, fact.status.value)
        for fact in stored(made)
        if fact.status in (FactStatus.ACTIVE, FactStatus.STALE) and fact.archived_at is None
    )


def events(made: Fabric) -> list[Event]:
    """The journal, verified."""
    with made.store.begin("acme", write=False) as transaction:
        told = list(transaction.journal.events())
    journal.verify_journal(told, journal_key(KEYS, "acme"))
    return told


def everything(made: Fabric) -> tuple[Any, ...]:
    """All that a refused verb must leave as it was."""
    with made.store.begin("acme", write=False) as transaction:
        facts = transaction.facts
        return (
            facts.generation(),
            facts.mark(),
            facts.get(facts.find(Where(statuses=EVERY))),
            list(facts.sources()),
            list(transaction.journal.events()),
        )


def seen(namespace: Namespace) -> set[str]:
    """Ids that come out of reading, by every way there is; all ways agree."""
    vector = namespace.embedder.embed_query("passage")
    near = {hit.fact_id for hit in namespace.nearest(vector, 10_000)}
    worded = {hit.fact_id for hit in namespace.search_text("passage", 10_000)}
    found = set(namespace.find(Where()))
    assert near == worded == found
    assert {fact.fact_id for fact in namespace.facts(sorted(found))} == found
    assert namespace.size() == len(found)
    return found
