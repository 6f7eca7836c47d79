"""A tenant's login that changes its own schema gains nothing from who looks into it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.records import fact, rows
from tests.postgres import server

EVIL, OTHER = "evil", "other"
PASSWORD = "a-password"
TAKE = (
    "CREATE FUNCTION {0}.take() RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO {0}.taken VALUES (current_user, 'x'); RETURN 'evil'; END $$"
)


@pytest.fixture
def operator() -> Iterator[tuple[PostgresStore, str]]:
    with server().database() as name:
        store = PostgresStore(server().address(name))
        for tenant in (EVIL, OTHER):
            made = fact(f"{tenant}: the walrus sleeps until noon every day", namespace=tenant)
            with store.begin(tenant) as transaction:
                transaction.facts.add([made], rows([made]))
            store.admit(tenant, PASSWORD)
        yield store, name
        for tenant in (EVIL, OTHER):
            store.dismiss(tenant)
        store.close()


def login(database: str, tenant: str) -> str:
    return server().address(database, schema_of(tenant), PASSWORD)


def test_a_view_in_a_tenants_schema_runs_nothing_as_who_lists_the_namespaces(operator):
    store, database = operator
    schema = schema_of(EVIL)
    with psycopg.connect(login(database, EVIL), autocommit=True) as raw:
        for statement in (
            "CREATE TABLE {0}.taken (who text, what text)",
            "GRANT USAGE ON SCHEMA {0} TO PUBLIC",
            "GRANT INSERT ON {0}.taken TO PUBLIC",
            TAKE,
            "ALTER TABLE {0}.named RENAME TO real_name",
            "CREATE VIEW {0}.named AS SELECT {0}.take() AS namespace",
            "GRANT SELECT ON {0}.named TO PUBLIC",
        ):
            raw.execute(statement.format(schema))
        assert store.namespaces() == [OTHER]
        tenant = PostgresStore(login(database, OTHER))
        assert tenant.namespaces() == [OTHER]
        tenant.close()
        assert raw.execute(f"SELECT * FROM {schema}.taken").fetchall() == []


def test_a_schema_without_its_name_keeps_nobody_from_the_others(operator):
    store, database = operator
    schema = schema_of(EVIL)
    with psycopg.connect(login(database, EVIL), autocommit=True) as raw:
        raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC")
        tenant = PostgresStore(login(database, OTHER))
        assert tenant.namespaces() == [OTHER]
        tenant.close()
        raw.execute(f"DROP TABLE {schema}.named")
        assert store.namespaces() == [OTHER]


def test_no_statement_holds_a_password(operator):
    """The server's log may show statements; what is sent is the verifier that the server keeps."""
    _, database = operator
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(f"ALTER DATABASE \"{database}\" SET password_encryption = 'md5'")
        again = PostgresStore(server().address(database))
        role = again.admit(EVIL, "another-password")
        again.close()
        (kept,) = raw.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [role])
        assert kept[0].startswith("SCRAM-SHA-256$")
    psycopg.connect(server().address(database, role, "another-password")).close()
