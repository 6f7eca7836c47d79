"""A question over the tenant's own facts and shared ones: one envelope, one proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crp_integrations.errors import AccessDenied, StoreBusy
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.relay import Relay
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import FixedClock, HashEmbedder, ScriptedModel, WordCounter
from tests.relay.conftest import FACTS, KEY, Opener

QUESTION = "When was the Meridian reactor commissioned, and who operates it?"
SHARED = {"shared": ["law"]}


class Guarded(MemoryStore):
    """A store that shows who writes where, and can be busy for the shared namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        self.written: list[str] = []

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Any]:
        if write:
            self.written.append(namespace)
            if self.busy and namespace == "shared:law":
                raise StoreBusy("another process writes")
        with super().begin(namespace, write=write) as transaction:
            yield transaction


def operator(store: MemoryStore) -> Namespace:
    return Fabric(
        store,
        HashEmbedder(),
        WordCounter(),
        FixedClock(),
        FixedKeyRing(bytes.fromhex(KEY)),
        settings=FabricSettings(shared=("law",)),
    ).bind_shared("law")


def both(store: MemoryStore, open_relay: Opener) -> tuple[Namespace, Relay]:
    """One fact that is shared, and a relay with one of its own beside it."""
    law = operator(store)
    law.add([FACTS[0]])
    relay = open_relay(store, fabric=SHARED)
    relay.add([FACTS[1]])
    return law, relay


@pytest.mark.requirement("009-9.2-1", "009-9.2-3")
def test_own_and_shared_facts_stand_in_one_envelope(open_relay: Opener) -> None:
    store = Guarded()
    law, relay = both(store, open_relay)
    answer = relay.ask(QUESTION, budget_tokens=400)
    assert {fact.content for fact in answer.envelope.facts} == {FACTS[0], FACTS[1]}
    assert answer.envelope.state_hash == relay.fabric.state_hash()
    assert answer.envelope.state_hash != law.state_hash()
    assert relay.verify().windows == 1
    # The operator sees the use of a shared fact, the tenant sees none.
    (seen,) = law.facts(_ids(law))
    assert seen.access_count == 1
    (shown,) = relay.fabric.facts([seen.fact_id])
    assert (shown.access_count, shown.last_accessed_at) == (0, None)


def _ids(namespace: Namespace) -> list[str]:
    vector = namespace.embedder.embed_query(QUESTION)
    return [hit.fact_id for hit in namespace.nearest(vector, 99)]


class OneByOne(MemoryStore):
    """A store that begins nothing while it is being written."""

    def __init__(self) -> None:
        super().__init__()
        self.writing: list[str] = []

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Any]:
        assert not self.writing, f"{namespace} is begun while {self.writing} is written"
        self.writing += [namespace] * write
        try:
            with super().begin(namespace, write=write) as transaction:
                yield transaction
        finally:
            self.writing.clear()


def test_a_window_is_sealed_without_a_transaction_within_another(open_relay: Opener) -> None:
    """With a pool of connections, questions side by side would wait for each other's."""
    store = OneByOne()
    law, relay = both(store, open_relay)
    answer = relay.ask(QUESTION, budget_tokens=400)
    assert {fact.content for fact in answer.envelope.facts} == {FACTS[0], FACTS[1]}
    assert [fact.access_count for fact in law.facts(_ids(law))] == [1]


def test_a_busy_shared_namespace_loses_a_note_and_nothing_else(open_relay: Opener) -> None:
    store = Guarded()
    law = operator(store)
    law.add([FACTS[0]])
    relay = open_relay(store, fabric=SHARED)
    store.busy = True
    answer = relay.ask(QUESTION, budget_tokens=400)
    assert [fact.content for fact in answer.envelope.facts] == [FACTS[0]]
    assert relay.verify().windows == 1
    assert [fact.access_count for fact in law.facts(_ids(law))] == [0]


@pytest.mark.requirement("009-7.2-3", "009-9.2-2")
def test_under_no_store_not_even_a_use_is_noted_in_a_shared_namespace(open_relay: Opener) -> None:
    store = Guarded()
    law = operator(store)
    law.add([FACTS[0]])
    relay = open_relay(store, fabric=SHARED)
    store.written.clear()
    relay.ask(QUESTION, cache="no-store", budget_tokens=400)
    assert store.written == ["local"]
    assert [fact.access_count for fact in law.facts(_ids(law))] == [0]


def test_a_fact_that_the_operator_withdraws_is_gone_for_every_tenant(open_relay: Opener) -> None:
    store = Guarded()
    law = operator(store)
    (id_,) = law.add([FACTS[0]]).facts
    relays = [open_relay(store, fabric=SHARED, subject=Subject(tenant=name)) for name in "ab"]
    assert all(relay.preview(QUESTION).facts_available == 1 for relay in relays)
    law.quarantine([id_], "under review")
    assert all(relay.preview(QUESTION).facts_available == 0 for relay in relays)
    with pytest.raises(AccessDenied, match="'shared:law'"):
        open_relay(store, fabric=SHARED, subject=Subject(tenant="shared:law"))


# --- facts that answers keep going wrong with --------------------------------------------

WRONG = "The Meridian reactor was commissioned on 9 May 2011 and delivers 900 megawatts."


def test_findings_against_a_shared_fact_are_counted_for_its_operator(
    open_relay: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    law = operator(store)
    (id_,) = law.add([FACTS[0]]).facts
    tenants = [
        open_relay(store, fabric=SHARED, subject=Subject(tenant=name), models=ScriptedModel(WRONG))
        for name in "ab"
    ]
    for relay in (*tenants, tenants[0]):
        assert "due for quarantine" not in caplog.text
        assert relay.ask(QUESTION, budget_tokens=400).text == WRONG
    # Three in all, whoever asked. One tenant's answers take nothing away from another.
    assert f"shared fact {id_} is due for quarantine by its operator" in caplog.text
    assert [fact.status for fact in law.facts([id_])] == [FactStatus.ACTIVE]
    assert tenants[1].preview(QUESTION).facts_available == 1
    # The operator's own relay takes it out, for everybody.
    open_relay(store, fabric=SHARED, shared="law")
    assert all(relay.preview(QUESTION).facts_available == 0 for relay in tenants)
    with store.begin("shared:law", write=False) as transaction:
        assert transaction.faulted.due(1, 0.1) == []


def test_a_tenants_own_finding_counts_in_its_namespace_alone(open_relay: Opener) -> None:
    store = MemoryStore()
    law = operator(store)
    law.add([FACTS[1]])
    relay = open_relay(store, fabric=SHARED, models=ScriptedModel(WRONG))
    relay.add([FACTS[0]])
    for _ in range(3):
        relay.ask(QUESTION, budget_tokens=400)
    found = relay.fabric.export(Where(statuses=(FactStatus.QUARANTINED,)))
    assert [fact.content for fact in found if isinstance(fact, Fact)] == [FACTS[0]]
    with store.begin("shared:law", write=False) as transaction:
        assert transaction.faulted.due(1, 0.1) == []
