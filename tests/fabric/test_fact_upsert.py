"""Facts under ids that their owner chose: what the frameworks' views rest on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from crp_integrations.errors import (
    AccessDenied,
    EngineError,
    FactRejected,
    IllegalTransition,
    StoreBusy,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ingest.fact_upsert import named
from crp_integrations.fabric.records import Fact, Where, source_id
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus
from tests.doubles import NOON, FixedClock, HashEmbedder
from tests.fabric.test_health import document
from tests.fabric.test_namespace import ACME, Labelled, fabric, sentence


@pytest.fixture(params=["memory", "sqlite"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Fabric:
    return fabric(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb"))


def item(name: str, number: int, **fields) -> Fact:
    return Fact(content=sentence(number), fact_id=named(name), **fields)


def test_a_name_has_one_id_which_is_a_uuid5():
    assert named("a") == named("a") != named("b")
    assert named("a")[14] == "5"


@pytest.mark.requirement("009-2-1", "009-2-10")
def test_a_new_fact_gets_times_importance_and_a_source(made):
    namespace = made.bind(ACME)
    report = namespace.put(
        [item("a", 1, source_id=source_id("u"), kind=SourceKind.OFFICIAL, metadata={"k": [1]})],
        uris={source_id("u"): "u"},
    )
    (fact,) = namespace.facts([named("a")])
    assert report.facts == (fact.fact_id,)
    assert (fact.ingested_at, fact.modified_at, fact.status) == (NOON, NOON, FactStatus.ACTIVE)
    assert (fact.importance_weight, fact.metadata, fact.namespace) == (0.80, {"k": [1]}, "acme")
    (source,) = namespace.sources()
    assert (source.uri, source.kind, source.fact_count) == ("u", SourceKind.OFFICIAL, 1)
    assert report.state_hash == namespace.state_hash()


def test_putting_the_same_again_writes_nothing(made):
    namespace = made.bind(ACME)
    facts = [item("a", 1), item("b", 2)]
    namespace.put(facts)
    with namespace.begin(write=False) as transaction:
        before = (transaction.facts.mark(), transaction.journal.tip())
    report = namespace.put([*facts, facts[0]])
    assert (report.facts, report.rewritten, len(report.unchanged)) == ((), (), 2)
    with namespace.begin(write=False) as transaction:
        assert (transaction.facts.mark(), transaction.journal.tip()) == before


@pytest.mark.requirement("009-4.5-3", "009-2-5")
def test_a_fact_moves_to_another_source_and_both_count(made):
    namespace = made.bind(ACME)
    uris = {source_id(u): u for u in "uv"}
    namespace.put(
        [item("a", 1, source_id=source_id("u")), item("b", 2, source_id=source_id("u"))], uris=uris
    )
    report = namespace.put([item("a", 1, source_id=source_id("v"))], uris=uris)
    assert report.rewritten == (named("a"),)
    assert {s.uri: s.fact_count for s in namespace.sources()} == {"u": 1, "v": 1}
    namespace.put([item("b", 2, source_id=source_id("v"))], uris=uris)
    assert {s.uri: (s.fact_count, s.status) for s in namespace.sources()} == {
        "u": (0, SourceStatus.REMOVED),
        "v": (2, SourceStatus.ACTIVE),
    }
    assert namespace.doctor().findings == ()


def test_a_source_whose_facts_say_something_else_is_told_of():
    told = []
    namespace = fabric(notify=told.append).bind(ACME)
    namespace.put([item("a", 1, source_id="u"), item("b", 2, source_id="u")])
    namespace.put([item("a", 1, source_id="u", metadata={"k": 1})])
    assert told == []
    namespace.mark_stale([named("b")])
    namespace.put([item("a", 5, source_id="u"), item("b", 2, source_id="u"), item("c", 3)])
    (notice,) = told
    assert (notice.kind, notice.source_id) == ("source-changed", "u")
    assert (notice.facts, notice.returned) == ((named("a"),), (named("b"),))


def test_a_fact_of_a_document_stays_in_its_source(made):
    namespace = made.bind(ACME)
    page = document("page", sentence(1), sentence(2))
    namespace.ingest([page])
    ids = namespace.find(Where())
    namespace.put([Fact(content=sentence(7), fact_id=ids[0], source_id="elsewhere")])
    assert {f.source_id for f in namespace.facts(ids)} == {source_id("page")}
    assert namespace.doctor().findings == ()
    namespace.erase(source_id("page"))
    assert namespace.size() == 0
    namespace.ingest([page])
    assert namespace.find(Where()) == ids


@pytest.mark.requirement("009-2.2-4", "009-8.2-3")
def test_stale_and_archived_facts_come_back_when_they_are_put_again(made):
    namespace = made.bind(ACME)
    namespace.put([item("a", 1), item("b", 2)])
    namespace.mark_stale([named("a")])
    namespace.archive([named("b")])
    report = namespace.put([item("a", 1), item("b", 2)])
    assert sorted(report.returned) == sorted([named("a"), named("b")])
    assert {f.status for f in namespace.facts([named("a"), named("b")])} == {FactStatus.ACTIVE}
    assert len(namespace.facts([named("a"), named("b")])) == 2


@pytest.mark.requirement("009-8.1-1")
def test_a_fact_whose_time_is_over_stays_stale_when_it_is_put_again(made):
    namespace = made.bind(ACME)
    namespace.put([item("a", 1, ttl="P1D"), item("b", 2, ttl="P1D")])
    made.clock.moment = NOON + timedelta(days=2)
    assert namespace.maintain().stale == 2
    namespace.archive([named("b")])
    report = namespace.put([item("a", 1), item("b", 2)])
    assert (report.unchanged, report.returned) == ((named("a"),), (named("b"),))
    assert {f.status for f in namespace.facts([named("a"), named("b")])} == {FactStatus.STALE}
    assert len(namespace.facts([named("a"), named("b")])) == 2
    assert namespace.maintain().stale == 0


def test_a_refusal_does_not_tell_the_labels_of_what_is_withheld(made):
    made.bind(ACME).put([item("a", 1, labels=("secret",))])
    low = made.bind(ACME, Labelled())
    with pytest.raises(FactRejected, match="other labels than") as refused:
        low.put([item("a", 1)])
    assert "secret" not in str(refused.value)


def test_an_erased_source_can_be_put_into_again(made):
    namespace = made.bind(ACME)
    uris = {source_id("u"): "u"}
    namespace.put([item("a", 1, source_id=source_id("u"))], uris=uris)
    namespace.erase(source_id("u"))
    namespace.put([item("a", 1, source_id=source_id("u"))], uris=uris)
    (source,) = namespace.sources()
    assert (source.uri, source.status, source.fact_count) == ("u", SourceStatus.ACTIVE, 1)
    assert namespace.doctor().findings == ()


@pytest.mark.requirement("009-2.2-6", "009-2.2-7")
def test_a_deleted_id_is_a_new_row_and_the_old_bytes_are_noted_for_scrubbing(made):
    clock = made.clock
    assert isinstance(clock, FixedClock)
    namespace = made.bind(ACME)
    namespace.put([item("a", 1)])
    namespace.forget(facts=[named("a")])
    clock.moment = NOON.replace(hour=14)
    namespace.put([item("a", 2)])
    (fact,) = namespace.facts([named("a")])
    assert (fact.ingested_at, fact.content) == (clock.moment, sentence(2))
    assert [finding.check for finding in namespace.doctor().findings] == ["upkeep"]
    namespace.maintain()
    assert namespace.doctor().findings == ()


def test_given_vectors_are_stored_normalised_and_change_a_fact_by_themselves(made):
    namespace = made.bind(ACME)
    rows = np.zeros((2, 256), dtype=np.float32)
    rows[0, 3], rows[1, 5] = 7.0, 0.5
    namespace.put([item("a", 1), item("b", 1)], vectors=rows)
    assert np.array_equal(
        namespace.vectors([named("a"), named("b")]), (rows > 0).astype(np.float32)
    )
    hits = namespace.nearest((rows[1] > 0).astype(np.float32), 2)
    assert (hits[0].fact_id, hits[0].score) == (named("b"), 1.0)
    assert namespace.put([item("a", 1)], vectors=rows[:1]).unchanged == (named("a"),)
    assert namespace.put([item("a", 1)], vectors=rows[1:]).rewritten == (named("a"),)
    for wrong in (rows, rows[:1, :9], np.full((1, 256), np.nan, dtype=np.float32)):
        with pytest.raises(EngineError):
            namespace.put([item("c", 3)], vectors=wrong)
    assert namespace.size() == 2


@pytest.mark.parametrize(
    ("facts", "named_in_it"),
    [
        ([item("a", 1), item("a", 2)], "given twice"),
        ([item("a", 1, namespace="other")], "'other'"),
        ([item("z", 1), Fact(content=" ", fact_id="b")], "fact 2 has 0 tokens"),
        ([item("z", 1), item("there", 3, labels=("x",))], "other labels than"),
    ],
)
def test_what_is_refused_changes_nothing(made, facts, named_in_it):
    namespace = made.bind(Subject(tenant="acme", roles=("x",)), Labelled())
    namespace.put([item("there", 3)])
    before = namespace.state_hash()
    with pytest.raises(FactRejected, match=named_in_it):
        namespace.put(facts)
    assert namespace.state_hash() == before
    assert namespace.facts([named("z")]) == []


@pytest.mark.requirement("009-2.2-10")
def test_neither_guard_nor_quarantine_is_gone_around(made):
    namespace = made.bind(ACME, Labelled())
    with pytest.raises(AccessDenied):
        namespace.put([item("a", 1, labels=("secret",))])
    namespace.put([item("a", 1)])
    namespace.quarantine([named("a")])
    with pytest.raises(IllegalTransition, match="QUARANTINED"):
        namespace.put([item("a", 2)])
    assert namespace.find(Where()) == []


def test_a_writer_in_between_makes_the_put_begin_anew(made, monkeypatch):
    namespace = made.bind(ACME)
    namespace.put([item("a", 1)])
    other = made.bind(ACME)
    embed, done = HashEmbedder.embed_passages, []

    def overtaken(self, texts):
        if not done:
            done.append(1)
            other.put([item("a", 5)])
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_passages", overtaken)
    report = namespace.put([item("a", 2), item("b", 3)])
    assert (report.facts, report.rewritten) == ((named("b"),), (named("a"),))
    assert [f.content for f in namespace.facts([named("a")])] == [sentence(2)]

    def always(self, texts):
        other.update(named("a"), metadata={"n": len(done)})
        done.append(1)
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_passages", always)
    with pytest.raises(StoreBusy, match="nothing was written"):
        namespace.put([item("a", 4)])
    assert [f.content for f in namespace.facts([named("a")])] == [sentence(2)]
