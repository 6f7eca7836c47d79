"""A change of embedder on PostgreSQL, with an index of the vectors and other processes at work."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import ConfigError, StoreBusy, StoreError
from crp_integrations.fabric import embedder_migration
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.stores.postgres import PostgresStore, postings
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows
from tests.commands import command
from tests.doubles import HashEmbedder
from tests.fabric.embedders import ACME, Letters, fabric, sentence
from tests.postgres import Server, postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import (
    OPTIONS,
    SPAWN,
    Shifted,
    move_and_die_after_the_commit,
    move_and_die_before_the_commit,
    search_until_refused,
)

COUNT = 40
# The store's own index answers from so many facts on.
SETTINGS = FabricSettings(embed_slice=8, embed_workers=1, graph=VectorGraphSettings(exact_up_to=5))


@pytest.fixture
def stores(postgres_address: str) -> Iterator[list[PostgresStore]]:  # noqa: F811
    made = [PostgresStore(postgres_address, index_from=10, busy_seconds=8.0) for _ in range(2)]
    yield made
    for store in made:
        store.close()


def filled(store: PostgresStore) -> tuple[str, ...]:
    return fabric(store).bind(ACME).add([sentence(n) for n in range(COUNT)]).facts


def index_of(address: str) -> str:
    """How the index of the vectors is defined; empty when there is none."""
    with psycopg.connect(address) as raw:
        found = raw.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND indexname = 'vectors_near'",
            [schema_of("acme")],
        ).fetchone()
    return found[0] if found else ""


def near(store: PostgresStore, embedder: Any, number: int) -> list[str]:
    with store.begin("acme", write=False) as transaction:
        searching = vector_search_of(transaction.facts)
        return searching.nearest(embedder.embed_query(sentence(number)), 1)[0]


def embedder_of(store: PostgresStore) -> str | None:
    with store.begin("acme", write=False) as transaction:
        return transaction.facts.setting(EMBEDDER_SETTING)


def killed(work: Callable[[str], None], address: str) -> None:
    """Let another process do something that ends with its death."""
    process = SPAWN.Process(target=work, args=(address,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_the_index_is_built_anew_with_the_new_length(stores, postgres_address):  # noqa: F811
    ids = filled(stores[0])
    assert "halfvec(256)" in index_of(postgres_address)
    fabric(stores[0]).bind(ACME).reembed(Letters())
    assert "halfvec(32)" in index_of(postgres_address)
    assert near(stores[1], Letters(), 17)[0] == ids[17]
    with stores[1].begin("acme", write=False) as transaction:
        assert vector_search_of(transaction.facts).size() == COUNT
    new = fabric(stores[1], Letters(), settings=SETTINGS).bind(ACME)
    added = new.add([sentence(99)]).facts
    assert new.nearest(Letters().embed_query(sentence(99)), 1)[0].fact_id == added[0]
    assert new.doctor().findings == ()


def test_an_embedder_of_the_same_length_is_not_searched_with_the_old_ones_vectors(stores):
    filled(stores[0])
    other = fabric(stores[1], settings=SETTINGS).bind(ACME)
    assert other.nearest(HashEmbedder().embed_query(sentence(3)), 1)
    fabric(stores[0]).bind(ACME).reembed(Shifted())
    with pytest.raises(ConfigError, match="shifted"):
        other.nearest(HashEmbedder().embed_query(sentence(3)), 1)


def test_who_reads_during_the_switch_neither_waits_nor_sees_any_of_it(stores):
    mover, other = stores
    ids = filled(mover)
    with other.begin("acme", write=False) as before:
        searching = vector_search_of(before.facts)
        # What this transaction sees is fixed here; it has looked at no vector yet.
        assert searching.size() == COUNT
        with mover.begin("acme") as transaction:
            facts = transaction.facts
            texts = facts.unprepared("letters/32", 99)
            block = Letters().embed_passages([text for _, text in texts])
            facts.prepare("letters/32", [said for said, _ in texts], block)
            facts.use_prepared("letters/32")
            # The switch is not committed: another transaction has the old index all the same.
            assert near(other, HashEmbedder(), 17)[0] == ids[17]
        assert searching.nearest(HashEmbedder().embed_query(sentence(17)), 1)[0][0] == ids[17]
    assert near(other, Letters(), 17)[0] == ids[17]


@pytest.mark.parametrize("same_length", [True, False])
def test_what_is_added_beside_the_switch_is_refused_and_nobody_is_locked_out(
    stores, same_length, monkeypatch
):
    mover, other = stores
    made = [fact(f"text {number}") for number in range(12)]
    late = [fact("a late one")]
    with mover.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    block = rows(made)[:, ::-1] if same_length else Letters().embed_passages(["x"] * len(made))
    has_rows, switching = threading.Event(), threading.Event()
    failed: list[StoreError] = []

    def waiting(*given: Any) -> list[int]:
        # Its vectors are in the table, and it has not had its turn.
        has_rows.set()
        assert switching.wait(10)
        return noted(*given)

    def add() -> None:
        try:
            with other.begin(NAMESPACE) as transaction:
                transaction.facts.add(late, rows(late))
        except StoreError as error:
            failed.append(error)

    noted = postings.add
    monkeypatch.setattr(postings, "add", waiting)
    adding = threading.Thread(target=add)
    adding.start()
    assert has_rows.wait(10)
    with mover.begin(NAMESPACE) as transaction:
        transaction.facts.prepare("e", [one.content_hash for one in made], block)
        switching.set()
        transaction.facts.use_prepared("e")
    adding.join()
    (refused,) = failed
    assert not isinstance(refused, StoreBusy)
    with mover.begin(NAMESPACE, write=False) as transaction:
        assert len(transaction.facts.retrievable()) == len(made)
        assert transaction.facts.vectors([one.fact_id for one in made]).tolist() == block.tolist()
    assert mover.check(NAMESPACE) == []


def test_a_process_killed_in_the_switch_leaves_the_old_state(stores, postgres_address):  # noqa: F811
    ids = filled(stores[0])
    killed(move_and_die_before_the_commit, postgres_address)
    assert embedder_of(stores[0]) == HashEmbedder.identity
    assert near(stores[0], HashEmbedder(), 17)[0] == ids[17]
    resuming = Letters()
    report = fabric(stores[0], resuming).reembed("acme", resuming)
    # Every vector was there already.
    assert (report.embedded, report.facts, resuming.texts) == (0, COUNT, [])
    assert near(stores[0], Letters(), 17)[0] == ids[17]


def test_a_server_killed_in_the_switch_leaves_the_old_state():
    server = Server("shared_buffers=32MB", "max_connections=20")
    try:
        store = PostgresStore(server.address(), index_from=10, busy_seconds=20.0)
        ids = filled(store)
        advance = embedder_migration.advance_epoch
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                embedder_migration, "advance_epoch", lambda facts: (server.kill(), advance(facts))
            )
            with pytest.raises(StoreError):
                fabric(store).bind(ACME).reembed(Letters())
        server.start()
        assert embedder_of(store) == HashEmbedder.identity
        assert near(store, HashEmbedder(), 17)[0] == ids[17]
        assert fabric(store).bind(ACME).reembed(Letters()).embedded == 0
        assert near(store, Letters(), 17)[0] == ids[17]
        store.close()
    finally:
        server.close()


def test_maintenance_builds_the_index_that_a_killed_process_left(stores, postgres_address):  # noqa: F811
    filled(stores[0])
    killed(move_and_die_after_the_commit, postgres_address)
    assert embedder_of(stores[0]) == Letters.identity
    new = fabric(stores[0], Letters(), settings=SETTINGS).bind(ACME)
    # Without an index every row is compared.
    assert len(new.nearest(Letters().embed_query(sentence(5)), 3)) == 3
    assert new.maintain().graph_rebuilt
    assert "halfvec(32)" in index_of(postgres_address)
    assert not new.maintain().graph_rebuilt


@pytest.mark.requirement("009-3.4-3")
def test_another_process_finds_by_the_old_embedder_until_it_is_refused(stores, postgres_address):  # noqa: F811
    filled(stores[0])
    ours, theirs = SPAWN.Pipe()
    reader = SPAWN.Process(target=search_until_refused, args=(postgres_address, COUNT, theirs))
    reader.start()
    assert ours.recv() == "searching"
    fabric(stores[0]).bind(ACME).reembed(Shifted())
    found, wrong, last = ours.recv()
    reader.join()
    assert found > 0 and wrong == []
    assert "shifted" in last


def test_the_command_moves_a_database(stores, postgres_address, tmp_path):  # noqa: F811
    with Relay.open(postgres_address, **OPTIONS) as opened:
        opened.add([sentence(n) for n in range(12)])
    with Relay.open(postgres_address, subject=ACME, **OPTIONS) as opened:
        opened.add([sentence(1)])
    place = ("--store", postgres_address)

    def crp(*arguments: str, key: str = OPTIONS["key"]) -> subprocess.CompletedProcess[str]:
        return command(*arguments, cwd=tmp_path, **({"CRP_KEY": key} if key else {}))

    assert HashEmbedder.identity in crp("fabric", "stats", *place).stderr
    wrong = crp("fabric", "maintain", "--reembed", *place, key="cd" * 32)
    assert wrong.returncode == 1 and "another key" in wrong.stderr
    none = crp("fabric", "maintain", "--reembed", *place, key="")
    assert none.returncode == 1 and "CRP_KEY" in none.stderr
    moved = crp("fabric", "maintain", "--reembed", *place)
    assert moved.stdout.startswith(f"12 facts moved from {HashEmbedder.identity} to "), moved.stderr
    again = json.loads(crp("fabric", "maintain", "--reembed", *place, "--json").stdout)
    assert (again["facts"], again["before"]) == (0, again["embedder"])
    assert crp("fabric", "doctor", *place).returncode == 0
    assert crp("audit", "verify", *place).returncode == 0
    # Each tenant is moved by its name.
    told = json.loads(
        crp("fabric", "maintain", "--reembed", *place, "--tenant", "acme", "--json").stdout
    )
    assert (told["facts"], told["before"]) == (1, HashEmbedder.identity)
    nobody = crp("fabric", "maintain", "--reembed", *place, "--tenant", "acne")
    assert nobody.returncode == 1 and "'acne'" in nobody.stderr
