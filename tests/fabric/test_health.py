"""Counting, examining and exporting a namespace."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import FactRejected, IllegalTransition
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.inspection import HealthFinding, NamespaceExamination
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Block, Document, Fact, Source, Where, source_id
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.guard.decisions import Subject
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock
from tests.fabric.test_namespace import ACME, KEYS, Labelled, fabric, sentence

PARAGRAPHS = tuple(sentence(number) for number in range(6))


def document(uri: str, *paragraphs: str) -> Document:
    starts = np.cumsum([0, *(len(p) + 2 for p in paragraphs)]).tolist()
    return Document(
        uri=uri,
        title=uri,
        blocks=tuple(Block(text=p, start=s) for p, s in zip(paragraphs, starts, strict=False)),
        document_hash=sha256("|".join(paragraphs)),
    )


@pytest.fixture(params=["memory", "sqlite"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Fabric:
    return fabric(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb"))


@pytest.fixture
def kept(tmp_path: Path) -> Namespace:
    made = fabric(SqliteStore(tmp_path / "kb")).bind(ACME)
    made.ingest([document("a", *PARAGRAPHS[:3]), document("b", *PARAGRAPHS[3:])])
    return made


def damage(folder: Path, *statements: str) -> Namespace:
    """Change the database as no program of ours would, and open it anew."""
    (database,) = folder.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return fabric(SqliteStore(folder / "kb")).bind(ACME)


def only(found: NamespaceExamination) -> HealthFinding:
    (finding,) = found.findings
    return finding


@pytest.mark.requirement("009-2-9", "009-4.5-2", "009-3.2-5")
def test_stats_counts_facts_sources_events_and_hashes(whole):
    namespace = whole.bind(ACME)
    empty = namespace.stats()
    assert (sum(empty.facts.values()), empty.sources, empty.embedder, empty.events) == (
        0,
        {},
        "",
        0,
    )
    assert empty.state_hash == state_hash([])
    namespace.ingest([document("a", *PARAGRAPHS[:3]), document("b", *PARAGRAPHS[3:])])
    ids = namespace.find(Where(sources=(source_id("a"),)))
    namespace.mark_stale(ids[:1])
    namespace.quarantine(ids[1:2])
    namespace.archive(ids[2:])
    namespace.forget(source=source_id("b"))
    found = namespace.stats()
    assert {name: count for name, count in found.facts.items() if count} == {
        "STALE": 1,
        "QUARANTINED": 1,
        "ARCHIVED": 1,
        "DELETED": 3,
    }
    assert found.sources == {"ACTIVE": 1, "REMOVED": 1}
    assert (found.embedder, found.dimensions) == ("hash-embedder/256", 256)
    assert found.state_hash == namespace.state_hash()
    assert found.generation == namespace.generation()
    assert found.search == "exact"
    assert found.events > 0
    assert (found.files == {}) is isinstance(whole.store, MemoryStore)


def test_a_whole_namespace_has_no_findings(kept):
    found = kept.doctor()
    assert (found.facts, found.sources, found.findings) == (6, 2, ())
    assert found.events == kept.stats().events


@pytest.mark.parametrize(
    ("statement", "check", "named"),
    [
        ("UPDATE facts SET content = content || ' more' WHERE fact = 1", "files", "content hash"),
        ("UPDATE sources SET fact_count = 9 WHERE uri = 'a'", "sources", source_id("a")),
        ("UPDATE sources SET fact_count = 0 WHERE uri = 'a'", "sources", "3 to 3 are stored"),
        ("DELETE FROM sources WHERE uri = 'a'", "sources", "3 of 6 facts have no source"),
        ("UPDATE vectors SET vector = zeroblob(512) || substr(vector, 1, 512) WHERE fact = 2",
         "vectors", "length 1"),
    ],
)  # fmt: skip
def test_each_kind_of_damage_is_named(kept, tmp_path, statement, check, named):
    (database,) = tmp_path.rglob("*.sqlite")
    kept._region.store.close()
    if statement.startswith("UPDATE vectors"):
        vector = np.full(256, 0.5, dtype="<f4").tobytes()
        statement = f"UPDATE vectors SET vector = x'{vector.hex()}' WHERE fact = 2"
    finding = only(damage(tmp_path, statement).doctor())
    assert finding.check == check
    assert named in finding.problem
    assert finding.remedy.endswith(".")
    # Ids and numbers, never a text.
    assert "Passage" not in finding.problem
    assert database.is_file()


@pytest.mark.requirement("009-8.3-5")
def test_a_changed_event_is_found_at_its_place(kept, tmp_path):
    kept._region.store.close()
    changed = damage(
        tmp_path,
        "DROP TRIGGER events_update",
        "UPDATE events SET timestamp = '2020-01-01T00:00:00Z' WHERE seq = 2",
        "INSERT INTO events SELECT 9, schema, event_type, timestamp, session_id, window_id, data,"
        " hmac FROM events WHERE seq = 1",
    )
    findings = changed.doctor().findings
    assert "journal" in [finding.check for finding in findings]
    told = next(finding for finding in findings if finding.check == "journal")
    assert "event 2" in told.problem


def test_what_time_left_behind_is_named_until_it_is_done(tmp_path):
    clock = FixedClock()
    namespace = fabric(SqliteStore(tmp_path / "kb"), clock=clock).bind(ACME)
    namespace.ingest([document("a", *PARAGRAPHS[:3])])
    namespace.forget(facts=namespace.find(Where())[:1])
    assert namespace.doctor().findings == ()
    clock.moment = NOON + timedelta(days=31)
    finding = only(namespace.doctor())
    assert (finding.check, finding.remedy) == ("upkeep", "Run crp fabric maintain.")
    namespace.maintain()
    assert namespace.doctor().findings == ()


def test_an_unfinished_scrubbing_is_named(kept):
    with kept.begin(write=True) as transaction:
        transaction.facts.set_setting("scrub", "1")
    assert only(kept.doctor()).check == "upkeep"
    kept.maintain()
    assert kept.doctor().findings == ()


def test_a_damaged_file_is_a_finding_and_not_a_crash(kept, tmp_path):
    (database,) = tmp_path.rglob("*.sqlite")
    kept._region.store.close()
    data = bytearray(database.read_bytes())
    # Pages of tables, not the header that says that it is a database.
    data[8192:] = bytes(len(data) - 8192)
    database.write_bytes(bytes(data))
    store = SqliteStore(tmp_path / "kb")
    assert store.check("acme") != []


@pytest.mark.requirement("009-9.1-5")
def test_an_export_holds_what_the_subject_may_read_and_nothing_else(whole):
    guarded = Labelled()
    boss = whole.bind(Subject(tenant="acme", roles=("secret",)), guarded)
    boss.ingest([document("open", PARAGRAPHS[0])])
    boss.ingest([document("closed", PARAGRAPHS[1])], labels=["secret"])
    whole.bind(Subject(tenant="other")).ingest([document("theirs", PARAGRAPHS[2])])
    everything = list(boss.export())
    assert [type(record) for record in everything] == [Source, Source, Fact, Fact]
    assert [r.source_id for r in everything[:2]] == sorted(map(source_id, ("open", "closed")))
    clerk = list(whole.bind(ACME, guarded).export())
    assert [record.source_id for record in clerk] == [source_id("open")] * 2
    (fact,) = [r for r in everything if isinstance(r, Fact) and r.labels]
    boss.quarantine([fact.fact_id])
    assert fact.fact_id not in [r.fact_id for r in boss.export() if isinstance(r, Fact)]
    withdrawn = boss.export(Where(statuses=(FactStatus.QUARANTINED,)))
    assert [r.content for r in withdrawn if isinstance(r, Fact)] == [PARAGRAPHS[1]]


def test_an_export_is_of_one_state(kept):
    records = kept.export()
    first = next(records)
    kept.forget(source=source_id("b"))
    rest = [first, *records]
    assert len(rest) == 2 + len(PARAGRAPHS)
    assert len(list(kept.export())) == 2 + 3


@pytest.mark.requirement("009-3.3-3")
def test_compacting_keeps_what_is_there_and_no_byte_of_what_is_gone(kept, tmp_path):
    kept.erase(source_id("a"))
    before = kept.state_hash()
    kept.compact()
    assert kept.state_hash() == before
    assert kept.doctor().findings == ()
    for file in (tmp_path / "kb").rglob("*"):
        if file.is_file():
            assert b"value0" not in file.read_bytes(), file.name


def stored(namespace: Namespace, **where) -> list[str]:
    """Ids of facts whatever their status, which no read gives."""
    with namespace.begin(write=False) as transaction:
        return transaction.facts.find(Where(**where))


@pytest.mark.requirement("009-4.5-3")
def test_a_lifted_fact_whose_passage_is_gone_is_counted_again(whole):
    namespace = whole.bind(ACME)
    (gone,) = namespace.ingest([document("a", PARAGRAPHS[4])]).facts
    namespace.quarantine([gone])
    namespace.ingest([document("a", *PARAGRAPHS[:3])])
    assert namespace.doctor().findings == ()
    namespace.lift([gone])
    assert namespace.sources()[0].fact_count == 4
    assert namespace.doctor().findings == ()


Step = Callable[[Namespace, list[str]], object]

STEPS: dict[str, Step] = {
    "ingest": lambda n, ids: n.ingest([document("a", *PARAGRAPHS[:3]), document("b", *PARAGRAPHS[3:])]),
    "update": lambda n, ids: n.ingest([document("a", PARAGRAPHS[0], PARAGRAPHS[4])]),
    "put": lambda n, ids: n.put([Fact(content=PARAGRAPHS[5], fact_id=ids[0] if ids else "x", source_id="user")]),
    "add": lambda n, ids: n.add([PARAGRAPHS[1], PARAGRAPHS[2]]),
    "stale": lambda n, ids: n.mark_stale(ids[:1]),
    "quarantine": lambda n, ids: n.quarantine(ids[:1]),
    "lift": lambda n, ids: n.lift(stored(n, statuses=(FactStatus.QUARANTINED,))),
    "archive": lambda n, ids: n.archive(ids[-1:]),
    "restore": lambda n, ids: n.restore(stored(n, statuses=tuple(FactStatus), archived=True)),
    "forget": lambda n, ids: n.forget(facts=ids[:1]) if ids else None,
    "remove": lambda n, ids: n.forget(source=source_id("a"))
    if source_id("a") in {source.source_id for source in n.sources()}
    else None,
    "erase": lambda n, ids: n.erase(n.sources()[0].source_id) if n.sources() else None,
    "maintain": lambda n, ids: n.maintain(),
}  # fmt: skip


@pytest.mark.requirement("009-1-1", "009-4.5-3", "009-2-5", "009-6.1-4")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=10))
def test_whatever_is_done_the_fabric_agrees_with_itself_after_every_commit(steps):
    namespace = fabric(keyring=KEYS).bind(ACME)
    for name in steps:
        with suppress(IllegalTransition, FactRejected):
            STEPS[name](namespace, namespace.find(Where()))
        # Bytes of an id that is used again go at the next maintenance.
        assert [f for f in namespace.doctor().findings if f.check != "upkeep"] == [], steps
    namespace.maintain()
    assert namespace.doctor().findings == ()
