"""A time to live that is given with documents (CRP-SPEC-009 §8.1)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Where
from crp_integrations.vocabulary import FactStatus
from tests.commands import Here
from tests.commands import here as here
from tests.doubles import NOON, HashEmbedder
from tests.fabric.keeping import ACME, document, fabric, sentence, store

__all__ = ["store"]

DAY = timedelta(days=1)


def at(made: Fabric, moment: Any) -> None:
    made.clock.moment = moment  # type: ignore[attr-defined]


def statuses(namespace: Namespace) -> list[str]:
    namespace.maintain()
    return sorted(fact.status.value for fact in namespace.facts(namespace.find(Where())))


def times(namespace: Namespace) -> set[str | None]:
    return {fact.ttl for fact in namespace.facts(namespace.find(Where()))}


@pytest.mark.requirement("009-8.1-1")
def test_facts_of_documents_expire_when_their_time_is_over(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.ingest([document("a", sentence(1), sentence(2))], ttl="P30D")
    namespace.ingest([document("b", sentence(3))])
    assert times(namespace) == {"P30D", None}
    at(made, NOON + 30 * DAY)
    assert statuses(namespace) == ["ACTIVE", "ACTIVE", "ACTIVE"]
    at(made, NOON + 31 * DAY)
    assert statuses(namespace) == ["ACTIVE", "STALE", "STALE"]


def test_an_unchanged_document_takes_another_ttl_and_none_leaves_it(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    given = document("a", sentence(1), sentence(2))
    ids = namespace.ingest([given]).facts
    first = namespace.state_hash()
    report = namespace.ingest([given], ttl="P30D")
    assert (report.facts, report.unchanged) == ((), ())
    assert times(namespace) == {"P30D"}
    assert namespace.state_hash() == first
    assert namespace.ingest([given], ttl="P30D").unchanged == (given.uri,)
    assert namespace.ingest([given]).unchanged == (given.uri,)
    assert times(namespace) == {"P30D"}
    assert set(namespace.find(Where())) == set(ids)


def test_a_longer_ttl_brings_back_what_had_expired(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    given = document("a", sentence(1))
    (fact,) = namespace.ingest([given], ttl="P30D").facts
    at(made, NOON + 40 * DAY)
    assert statuses(namespace) == ["STALE"]
    # Said again with the same time, its time is over all the same.
    assert namespace.ingest([given], ttl="P30D").returned == ()
    assert namespace.ingest([given], ttl="P60D").returned == (fact,)
    assert statuses(namespace) == ["ACTIVE"]


def test_a_changed_document_gives_its_ttl_to_old_and_new_facts(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.ingest([document("a", sentence(1), sentence(2))], ttl="P30D")
    at(made, NOON + 10 * DAY)
    report = namespace.ingest([document("a", sentence(1), sentence(3))], ttl="P20D")
    assert len(report.facts) == 1
    found = {f.content: f for f in namespace.facts(namespace.find(Where()))}
    active = [f for f in found.values() if f.status is FactStatus.ACTIVE]
    assert {f.ttl for f in active} == {"P20D"}
    assert sorted(f.expires_at for f in active if f.expires_at) == [
        NOON + 20 * DAY,
        NOON + 30 * DAY,
    ]
    # Without one, what is new lives on and what is stored keeps its own.
    namespace.ingest([document("a", sentence(1), sentence(4))])
    assert times(namespace) == {"P20D", None}


@pytest.mark.parametrize("wrong", ["90 days", "P-1D", "P0D", "", "PT", "90", 90])
def test_what_is_no_duration_is_refused_before_anything(store: Store, wrong: Any) -> None:
    namespace = fabric(store).bind(ACME)
    with pytest.raises(RequestError, match="ttl is not usable"):
        namespace.ingest([document("a", sentence(1))], ttl=wrong)
    assert namespace.generation() == 0


def test_the_relay_and_the_command_take_it(here: Here, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(sentence(1))
    with Relay.open(embedder=HashEmbedder()) as relay:
        relay.ingest(tmp_path / "a.md", ttl="PT12H")
        assert times(relay.fabric) == {"PT12H"}
    run = {"cwd": tmp_path, "CRP_KEY": "ab" * 32}
    done = here("ingest", "a.md", "--ttl", "P90D", "--store", "kb", **run)
    assert done.returncode == 0, done.stderr
    later = {**run, "CRP_CLOCK": "2100-01-01T00:00:00Z"}
    assert "1 fact" in here("fabric", "maintain", "--store", "kb", **later).stdout
    assert '"STALE": 1' in here("fabric", "stats", "--store", "kb", "--json", **run).stdout
    wrong = here("ingest", "a.md", "--ttl", "90d", "--store", "kb", **run)
    assert wrong.returncode == 1
    assert wrong.stderr == (
        "crp: ttl is not usable: duration '90d' is not ISO 8601; wanted one such as P90D\n"
    )
