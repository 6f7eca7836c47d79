"""A relay over PostgreSQL: the same states, the same answers, its own index."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import (
    ConfigError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.records import Where
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.files import FolderObjects
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, fill, rows
from crp_integrations.vectors import unit_rows
from tests.doubles import HashEmbedder
from tests.postgres import postgres_address  # noqa: F401 - a fixture

TEXTS = [
    f"fact number {n} tells us quite a lot about {word} and their number {n % 7}"
    for n, word in enumerate(("tides", "moons", "reefs") * 40)
]
OPTIONS = {"embedder": HashEmbedder(), "key": "ab" * 32, "clock": NOON}
QUESTION = "what is fact 17 about the moons?"


@pytest.fixture
def relays(tmp_path, postgres_address):  # noqa: F811
    with (
        Relay.open(tmp_path / "kb", **OPTIONS) as ours,
        Relay.open(postgres_address, **OPTIONS) as theirs,
    ):
        for relay in (ours, theirs):
            relay.fabric.add(TEXTS)
        yield ours, theirs


def test_equal_content_has_an_equal_state_hash_and_gives_equal_envelopes(relays):
    ours, theirs = relays
    assert ours.fabric.state_hash() == theirs.fabric.state_hash()
    assert ours.preview(QUESTION).etag == theirs.preview(QUESTION).etag


def test_an_answer_is_sealed_and_verified(postgres_address):  # noqa: F811
    with Relay.open(postgres_address, **OPTIONS) as relay:
        relay.fabric.add(TEXTS)
        answer = relay.ask("what is fact number 17 about?", model="extractive")
        assert answer.text
    with Relay.open(postgres_address, **OPTIONS) as again:
        assert again.verify().windows == 1


def searched(store: PostgresStore | Path, settings: dict) -> Relay:
    return Relay.open(store, **OPTIONS, fabric={"graph": {"exact_up_to": 50}, **settings})


def test_its_own_index_answers_as_an_exact_search_does(tmp_path, postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=50)
    with Relay.open(tmp_path / "kb", **OPTIONS) as ours, searched(store, {}) as theirs:
        for relay in (ours, theirs):
            relay.fabric.add(TEXTS)
        vector = HashEmbedder().embed_query(QUESTION)
        assert theirs.fabric.search_text(QUESTION, 50) == ours.fabric.search_text(QUESTION, 50)
        wheres = (None, Where(communities=("none",)), Where(sources=("user",)))
        for where in wheres:
            exact = ours.fabric.nearest(vector, 10, where)
            assert theirs.fabric.nearest(vector, 10, where) == exact
        # The same while a fact is put aside and another one is deleted.
        gone = [hit.fact_id for hit in ours.fabric.nearest(vector, 2)]
        for relay in (ours, theirs):
            relay.fabric.quarantine(gone[:1])
            relay.fabric.forget(facts=gone[1:])
            assert not {hit.fact_id for hit in relay.fabric.nearest(vector, 10)} & {*gone}
        assert theirs.fabric.nearest(vector, 10) == ours.fabric.nearest(vector, 10)
    store.close()


def test_vectors_and_words_are_found_as_in_the_embedded_store(tmp_path, postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=50)
    with Relay.open(tmp_path / "kb", **OPTIONS) as ours, searched(store, {}) as theirs:
        for relay in (ours, theirs):
            relay.fabric.add(TEXTS)
        vector = HashEmbedder().embed_query(QUESTION)
        assert theirs.fabric.nearest(vector, 12) == ours.fabric.nearest(vector, 12)
        assert theirs.fabric.search_text(QUESTION, 30) == ours.fabric.search_text(QUESTION, 30)
    store.close()


def test_a_search_with_labels_gives_those_facts_alone(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=2)
    made = [fact(f"text {n} of the sea", labels=("hr",) if n % 2 else ()) for n in range(6)]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    vector = rows(made)[0]
    with store.begin(NAMESPACE, write=False) as transaction:
        searching = vector_search_of(transaction.facts)
        assert len(searching.nearest(vector, 6)[0]) == 6
        open_ids = {one.fact_id for one in made if not one.labels}
        assert {*searching.nearest(vector, 6, label_sets=[()])[0]} == open_ids
    store.close()


def test_a_search_uses_the_index_of_its_own_schema_alone(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=50)
    texts = [f"text {n} " + "word " * (n % 5) for n in range(3_000)]
    for name in (NAMESPACE, "tenant-b"):
        made = [fact(text, namespace=name) for text in texts]
        rows = unit_rows(np.random.default_rng(1).normal(size=(len(made), 32)).astype(np.float32))
        with store.begin(name) as transaction:
            transaction.facts.add(made, rows)
    schema = schema_of(NAMESPACE)
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute(f"ANALYZE {schema}.vectors; ANALYZE {schema}.facts")
        raw.execute(f"SET search_path = {schema}, public; SET plan_cache_mode = force_generic_plan")
        plan = "\n".join(
            line
            for (line,) in raw.execute(
                "EXPLAIN SELECT fact_id, vector FROM vectors JOIN facts USING (fact) "
                "WHERE status IN ('ACTIVE', 'STALE') AND archived_at IS NULL AND series = 0 "
                "ORDER BY vector::halfvec(32) <#> %s::vector::halfvec(32) LIMIT 26",
                [str(rows[0].tolist())],
            )
        )
        used = {
            index
            for (index, owner) in raw.execute(
                "SELECT indexname, schemaname FROM pg_indexes WHERE schemaname LIKE 'crp%'"
            )
            if f"using {index} " in plan.lower() and owner == schema
        }
    assert "vectors_near" in used
    assert schema_of("tenant-b") not in plan
    store.close()


def test_a_damaged_or_newer_schema_is_refused(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    fill(store, "a")
    store.close()
    schema = schema_of(NAMESPACE)
    for change, error in (
        ("UPDATE {}.own SET value = 99 WHERE name = 'schema_version'", StoreNewer),
        (
            "UPDATE {}.own SET value = 1 WHERE name = 'schema_version'; UPDATE {}.named SET namespace = 'x'",
            StoreDamaged,
        ),
        ("DROP TABLE {}.named", StoreDamaged),
    ):
        with psycopg.connect(postgres_address, autocommit=True) as raw:
            raw.execute(change.format(schema, schema))
        store = PostgresStore(postgres_address)
        for write in (True, False):
            with pytest.raises(error), store.begin(NAMESPACE, write=write):
                raise AssertionError("a transaction was begun")
        assert store.check(NAMESPACE) != []
        store.close()


def test_changed_texts_and_lost_rows_are_found(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    ids = fill(store, "the sea", "the sky", "the moon")
    schema = schema_of(NAMESPACE)
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute(f"UPDATE {schema}.facts SET content = 'other' WHERE fact_id = '{ids[0]}'")
        raw.execute(f"DELETE FROM {schema}.postings WHERE stem = 'sky'")
        raw.execute(
            f"DELETE FROM {schema}.vectors WHERE fact = "
            f"(SELECT fact FROM {schema}.facts WHERE fact_id = '{ids[2]}')"
        )
    found = store.check(NAMESPACE)
    assert [one for one in found if "does not match its content hash" in one and ids[0] in one]
    assert [one for one in found if "postings" in one and ids[1] in one]
    assert [one for one in found if "no vector" in one and ids[2] in one]
    store.close()


@pytest.mark.parametrize(
    "verb",
    [
        "UPDATE {}.events SET hmac = ''",
        "DELETE FROM {}.events",
        "TRUNCATE {}.seals",
        "DELETE FROM {}.receipts",
    ],
)
def test_what_was_sealed_cannot_be_changed_by_accident(postgres_address, verb):  # noqa: F811
    store = PostgresStore(postgres_address)
    fill(store, "a")
    with (
        psycopg.connect(postgres_address, autocommit=True) as raw,
        pytest.raises(psycopg.errors.RaiseException),
    ):
        raw.execute(verb.format(schema_of(NAMESPACE)))
    store.close()


def test_an_address_says_nothing_of_its_password():
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/db", busy_seconds=0.2)
    with pytest.raises(StoreBusy) as told, store.begin(NAMESPACE):
        raise AssertionError("a transaction was begun")
    assert "secret" not in store.name + str(told.value) + repr(told.value.__cause__)
    store.close()
    with pytest.raises(ConfigError) as told:
        PostgresStore("postgresql://me:secret@127.0.0.1:1/db?nonsense=1")
    assert "secret" not in str(told.value)


def test_dropping_a_namespace_leaves_nothing_of_it(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    fill(store, "a")
    assert store.drop(NAMESPACE) is True
    assert store.drop(NAMESPACE) is False
    assert store.namespaces() == []
    with store.begin(NAMESPACE, write=False) as transaction:
        assert transaction.facts.retrievable() == []
    assert fill(store, "a")
    store.close()


def test_artifacts_of_a_dropped_namespace_are_erased(tmp_path, postgres_address):  # noqa: F811
    kept = FolderObjects(tmp_path / "artifacts")
    names = ("local", "other")
    for name in names:
        with Relay.open(
            postgres_address, subject=Subject(tenant=name), artifacts=kept, **OPTIONS
        ) as relay:
            ref = relay.sandbox().put("the walrus sleeps", kind="log", sources=["a"]).ref
            relay.sandbox().open(*_parts(relay.sandbox().sign(ref)))

    def files() -> list[str]:
        found = [one for one in (tmp_path / "artifacts").rglob("*") if one.is_file()]
        return sorted({one.relative_to(tmp_path).parts[1] for one in found})

    folders = files()
    assert len(folders) == 2
    store = PostgresStore(postgres_address)
    with pytest.raises(StoreError, match="artifacts"):
        store.drop("local")
    with pytest.raises(StoreError, match="artifacts"):
        store.dismiss("local")
    assert store.namespaces() == sorted(names)
    assert store.drop("local", artifacts=[kept]) is True
    (left,) = files()
    assert left in folders
    # Called again it finds what came in while the schema was dropped.
    assert store.drop("local", artifacts=[kept]) is False
    assert store.drop("other", artifacts=[]) is True
    assert files() == [left]
    store.close()


def _parts(address: str) -> tuple[str, str]:
    path, _, token = address.partition("?")
    return path.rpartition("/")[2], token.partition("=")[2]


def test_a_writer_that_waits_does_not_stand_in_the_way_of_the_index(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=3)
    failed: list[StoreError] = []

    def add(*texts: str) -> None:
        made = [fact(text) for text in texts]
        try:
            with store.begin(NAMESPACE) as other:
                other.facts.add(made, rows(made))
        except StoreError as error:
            failed.append(error)

    add("the first fact of all")
    waiting = threading.Thread(target=add, args=("a fact whose writer waits",))
    made = [fact(f"fact {number} that makes an index due") for number in range(3)]
    with (
        psycopg.connect(postgres_address, autocommit=True) as watching,
        store.begin(NAMESPACE) as transaction,
    ):
        transaction.facts.set_setting("held", "the turn is taken")
        waiting.start()
        locked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        for _ in range(600):
            if watching.execute(locked).fetchone() != (0,):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("the other writer never waited")
        transaction.facts.add(made, rows(made))
    waiting.join()
    assert failed == []
    with store.begin(NAMESPACE, write=False) as reader:
        assert len(reader.facts.retrievable()) == 5
    store.close()


def read_all(relay: Relay) -> dict[str, object]:
    """What the public calls read, without ids and moments that differ between two stores."""
    fabric = relay.fabric
    ids = fabric.find(Where())
    vector = HashEmbedder().embed_query(QUESTION)
    answer = relay.ask(QUESTION, model="extractive")
    again = relay.ask(QUESTION, model="extractive", if_match=answer.envelope.etag)
    return {
        "size": fabric.size(),
        "vectors": fabric.vectors(ids).tolist(),
        "nearest": fabric.nearest(vector, 5),
        "words": fabric.search_text(QUESTION, 5),
        "facts": [fact.content for fact in fabric.facts(ids)],
        "briefs": [brief.content for brief in fabric.briefs(ids[:9])],
        "sources": [source.source_id for source in fabric.sources()],
        "communities": len(fabric.communities()),
        "graph": len(fabric.graph().ids),
        "stats": fabric.stats().facts,
        "doctor": fabric.doctor().findings,
        "exported": sum(1 for _ in fabric.export()),
        "state": fabric.state_hash(),
        "preview": relay.preview(QUESTION).facts_available > 50,
        "answer": answer.text,
        "again": type(again).__name__,
        "report": answer.report.risk_level,
        "windows": relay.verify().windows,
    }


def test_every_read_above_the_limit_of_exact_search(tmp_path, postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=50)
    with searched(tmp_path / "kb", {}) as ours, searched(store, {}) as theirs:
        for relay in (ours, theirs):
            relay.fabric.add(TEXTS)
        assert read_all(theirs) == read_all(ours)
    store.close()
