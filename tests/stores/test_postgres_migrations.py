"""A schema that an older version made is brought up, with what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from crp_integrations.errors import AccessDenied
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.migrations import VERSION, VERSION_NAME
from crp_integrations.stores.postgres.rights import DEFINED
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import NAMESPACE, fact, fill, rows
from tests.postgres import server

PASSWORD = "a-password"
TEXTS = ("the sea", "the sky", "the moon", "the tide")
SCHEMA = schema_of(NAMESPACE)
# What later steps added, taken away, and the index as the first one made it.
FIRST = (
    "DROP TABLE {0}.fact_uses",
    "DROP INDEX {0}.vectors_near",
    "ALTER TABLE {0}.vectors DROP COLUMN series",
    "SET search_path = {0}, public, pg_temp",
    next(one for one in DEFINED if one.startswith("CREATE FUNCTION index_vectors")).replace(
        "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1
    ),
    "SELECT index_vectors(8)",
    f"UPDATE own SET value = 1 WHERE name = '{VERSION_NAME}'",
)


@pytest.fixture
def first_version() -> Iterator[str]:
    """The name of a database whose one namespace is of the first version."""
    with server().database() as name:
        with closing(PostgresStore(server().address(name), index_from=3)) as store:
            fill(store, *TEXTS)
        with psycopg.connect(server().address(name), autocommit=True) as raw:
            for statement in FIRST:
                raw.execute(statement.replace("{0}", SCHEMA))
        yield name


def opened(name: str) -> PostgresStore:
    return PostgresStore(server().address(name), index_from=3)


def state(store: PostgresStore) -> tuple[int, int, list[str]]:
    """The version of the tables, how many facts their index answers for, and the texts."""
    with store.begin(NAMESPACE, write=False) as transaction:
        facts = transaction.facts
        (found,) = facts.statements.rows("SELECT value FROM own WHERE name = ?", [VERSION_NAME])
        ids = [id_ for id_, _ in facts.retrievable()]
        texts = sorted(one.content for one in facts.get(ids))
        return found[0], vector_search_of(facts).size(), texts


@pytest.mark.parametrize("how", ["read", "write", "check", "scrub", "settle"])
def test_whoever_opens_it_first_brings_it_up(first_version: str, how: str) -> None:
    store, other = opened(first_version), opened(first_version)
    if how == "write":
        fill(store, "one more")
    elif how == "check":
        assert store.check(NAMESPACE) == []
    elif how == "scrub":
        assert store.scrub(NAMESPACE)
    elif how == "settle":
        assert store.settle(NAMESPACE)
    version, size, texts = state(store)
    assert version == VERSION > 1
    assert {*TEXTS} <= {*texts}
    # Who only reads leaves the index to the next writer, and to maintenance.
    assert size == (len(texts) if how in {"write", "settle"} else 0)
    fill(other, "the last of them")
    assert state(store)[1] == len(texts) + 1
    with store.begin(NAMESPACE, write=False) as transaction:
        near = vector_search_of(transaction.facts).nearest(rows([fact("the moon")])[0], 1)[0]
        assert transaction.facts.get(near[:1])[0].content == "the moon"
    store.close()
    other.close()


def test_a_tenants_login_asks_for_its_operator(first_version: str) -> None:
    with closing(opened(first_version)) as operator:
        role = operator.admit(NAMESPACE, PASSWORD)
        with psycopg.connect(server().address(first_version), autocommit=True) as raw:
            raw.execute(f"UPDATE {SCHEMA}.own SET value = 1 WHERE name = '{VERSION_NAME}'")
        tenant = PostgresStore(server().address(first_version, role, PASSWORD), index_from=3)
        with closing(tenant):
            for write in (True, False):
                with (
                    pytest.raises(
                        AccessDenied, match=rf"version 1, wanted {VERSION}.*whoever made it"
                    ),
                    tenant.begin(NAMESPACE, write=write),
                ):
                    raise AssertionError("a transaction was begun")
            with psycopg.connect(server().address(first_version), autocommit=True) as raw:
                raw.execute(
                    f"UPDATE {SCHEMA}.own SET value = {VERSION} WHERE name = '{VERSION_NAME}'"
                )
            assert state(tenant)[2] == sorted(TEXTS)
            # It may still do what only the owner of a table can.
            assert tenant.settle(NAMESPACE) and state(tenant)[1] == len(TEXTS)
        operator.dismiss(NAMESPACE)
