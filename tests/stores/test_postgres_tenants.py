"""What a tenant's login can do over TCP: everything in its own namespace, nothing in another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, StoreError
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.tables import (
    ANALYZE_TABLES,
    APPEND_EVENTS,
    DEFINED,
    INDEX_VECTORS,
    WRITE_ANEW,
)
from crp_integrations.testing.fixtures import NOON, fact, rows
from tests.doubles import HashEmbedder
from tests.postgres import server

OURS, THEIRS, SHARED = "ours", "theirs", "shared:law"
PASSWORDS = {OURS: "our-password", THEIRS: "their-password"}
SECRET = "the walrus sleeps on the northern ice until noon every day"


@dataclass
class Setup:
    operator: PostgresStore
    database: str

    def login(self, tenant: str, password: str = "") -> str:
        role = schema_of(tenant)
        return server().address(self.database, role, password or PASSWORDS[tenant])

    def store(self, tenant: str) -> PostgresStore:
        return PostgresStore(self.login(tenant), busy_seconds=2.0)

    def raw(self, tenant: str) -> psycopg.Connection:
        return psycopg.connect(self.login(tenant), autocommit=True)


@pytest.fixture
def setup() -> Iterator[Setup]:
    with server().database() as name:
        operator = PostgresStore(server().address(name))
        for tenant in (OURS, THEIRS, SHARED):
            made = fact(f"{tenant}: {SECRET}", namespace=tenant)
            with operator.begin(tenant) as transaction:
                transaction.facts.add([made], rows([made]))
        for tenant, password in PASSWORDS.items():
            operator.admit(tenant, password, reads=[SHARED])
        yield Setup(operator, name)
        for tenant in PASSWORDS:
            operator.dismiss(tenant)
        operator.close()


@pytest.mark.requirement("009-9.1-6")
def test_who_is_admitted_again_reads_what_is_named_now_and_nothing_else(setup):
    def readable(tenant: str) -> list[str]:
        store = setup.store(tenant)
        try:
            found = store.namespaces()
            for name in {SHARED, "shared:more"} & {*found}:
                with store.begin(name, write=False) as transaction:
                    assert len(transaction.facts.retrievable()) == 1
            return found
        finally:
            store.close()

    made = fact(f"more: {SECRET}", namespace="shared:more")
    with setup.operator.begin("shared:more") as transaction:
        transaction.facts.add([made], rows([made]))
    setup.operator.admit(OURS, PASSWORDS[OURS], reads=[SHARED, "shared:more"])
    assert readable(OURS) == sorted([OURS, SHARED, "shared:more"])
    setup.operator.admit(OURS, PASSWORDS[OURS], reads=["shared:more"])
    assert readable(OURS) == sorted([OURS, "shared:more"])
    store = setup.store(OURS)
    with pytest.raises(AccessDenied), store.begin(SHARED, write=False) as transaction:
        raise AssertionError(transaction.facts.retrievable())
    store.close()
    with setup.raw(OURS) as seen, pytest.raises(psycopg.errors.InsufficientPrivilege):
        seen.execute(f"SELECT content FROM {schema_of(SHARED)}.facts")
    setup.operator.admit(OURS, PASSWORDS[OURS])
    assert readable(OURS) == [OURS]
    # Nobody else lost anything.
    assert readable(THEIRS) == sorted([SHARED, THEIRS])
    setup.operator.drop("shared:more")


@pytest.mark.requirement("009-9.1-6")
@pytest.mark.parametrize("write", [False, True])
def test_no_transaction_of_a_tenant_opens_anothers_namespace(setup, write):
    store = setup.store(THEIRS)
    with pytest.raises(AccessDenied), store.begin(OURS, write=write) as transaction:
        raise AssertionError(transaction.facts.retrievable())
    with pytest.raises(AccessDenied):
        store.scrub(OURS)
    with pytest.raises(AccessDenied):
        store.compact(OURS)
    with pytest.raises(AccessDenied):
        store.drop(OURS)
    with pytest.raises(AccessDenied):
        store.admit(OURS, "mine-now")
    assert store.namespaces() == sorted([SHARED, THEIRS])
    with pytest.raises(AccessDenied), store.begin("a new one") as transaction:
        raise AssertionError("a namespace was made")
    store.close()


@pytest.mark.requirement("009-9.1-6")
def test_no_statement_of_a_tenants_login_reaches_another_schema(setup):
    schema, role = schema_of(OURS), schema_of(OURS)
    with psycopg.connect(server().address(setup.database)) as seen:
        tables = [
            name
            for (name,) in seen.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", [schema]
            )
        ]
    assert len(tables) > 20
    attacks = [
        f"{verb} {schema}.{table}"
        for table in tables
        for verb in (
            "TABLE",
            "DELETE FROM",
            "TRUNCATE",
            "DROP TABLE",
            "ANALYZE VERBOSE",
        )
    ]
    attacks += [f"COPY {schema}.{table} TO STDOUT" for table in tables]
    attacks += [f"DO $$ BEGIN LOCK TABLE {schema}.{table}; END $$" for table in tables]
    attacks += [
        f"INSERT INTO {schema}.own VALUES ('x', 1)",
        f"UPDATE {schema}.own SET value = 0",
        f"SELECT nextval('{schema}.numbers')",
        f"SELECT {schema}.refuse()",
        f"CREATE TABLE {schema}.mine (x int)",
        f"CREATE VIEW {schema_of(THEIRS)}.look AS SELECT * FROM {schema}.facts",
        f"CREATE FUNCTION {schema}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        f"CREATE INDEX ON {schema}.facts (content)",
        f"CREATE TRIGGER t BEFORE INSERT ON {schema}.facts EXECUTE FUNCTION {schema}.refuse()",
        f"ALTER TABLE {schema}.facts OWNER TO {schema_of(THEIRS)}",
        f"ALTER SCHEMA {schema} OWNER TO {schema_of(THEIRS)}",
        f"DROP SCHEMA {schema} CASCADE",
        f"GRANT ALL ON SCHEMA {schema} TO {schema_of(THEIRS)}",
        f"GRANT {role} TO {schema_of(THEIRS)}",
        f"SET ROLE {role}",
        f"SET SESSION AUTHORIZATION {role}",
        "SET ROLE postgres",
        f"ALTER ROLE {role} PASSWORD 'mine-now'",
        f"ALTER ROLE {schema_of(THEIRS)} SUPERUSER",
        f"ALTER ROLE {schema_of(THEIRS)} CREATEROLE",
        "CREATE ROLE another LOGIN",
        "CREATE SCHEMA another",
        "CREATE TABLE public.mine (x int)",
        "CREATE TEMPORARY TABLE mine (x int)",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_import('/etc/hostname')",
        "ALTER SYSTEM SET fsync = off",
        "SELECT rolpassword FROM pg_authid",
        f"INSERT INTO {schema_of(SHARED)}.own VALUES ('x', 1)",
        f"DELETE FROM {schema_of(SHARED)}.facts",
        f"UPDATE {schema_of(SHARED)}.facts SET content = 'x'",
        f"TRUNCATE {schema_of(SHARED)}.events",
        f"DROP SCHEMA {schema_of(SHARED)} CASCADE",
    ]
    let_through = []
    with setup.raw(THEIRS) as raw:
        for attack in attacks:
            try:
                raw.execute(attack)
                let_through.append(attack)
            except (
                psycopg.errors.InsufficientPrivilege,
                psycopg.errors.ObjectNotInPrerequisiteState,
            ):
                pass
        # ANALYZE of a table that is not one's own warns and does nothing.
        assert {one for one in let_through if not one.startswith("ANALYZE")} == set()
        # What the planner notes of other tenants' columns is not shown either.
        assert raw.execute(
            "SELECT count(*) FROM pg_stats WHERE schemaname = %s", [schema]
        ).fetchone() == (0,)
        found = raw.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%walrus%' AND usename <> current_user"
        ).fetchone()
        assert found == (0,)
    assert setup.operator.check(OURS) == []


@pytest.mark.requirement("009-9.1-6")
def test_a_login_needs_its_own_password(setup):
    for password in ("", "wrong", PASSWORDS[THEIRS]):
        address = setup.login(OURS, password or "x")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(address)
        store = PostgresStore(address, busy_seconds=0.5)
        with pytest.raises(StoreError, match="refused the login"), store.begin(OURS, write=False):
            raise AssertionError("a login without its password")
        store.close()


def test_a_relay_of_a_tenant_reads_shared_facts_and_its_own(setup):
    options = {"embedder": HashEmbedder(), "key": "ab" * 32, "clock": NOON}
    shared = {"fabric": {"shared": ["law"]}}
    with Relay.open(server().address(setup.database), shared="law", **options, **shared) as law:
        assert law.fabric.size() == 1
    with Relay.open(
        setup.login(THEIRS), subject=Subject(tenant=THEIRS), **options, **shared
    ) as relay:
        assert relay.fabric.size() == 2
        with pytest.raises((AccessDenied, StoreError)):
            Relay.open(setup.login(THEIRS), subject=Subject(tenant=OURS), **options)


def test_a_tenant_is_erased_with_its_schema_and_its_role(setup):
    assert setup.operator.dismiss(THEIRS) is True
    assert setup.operator.namespaces() == sorted([OURS, SHARED])
    with pytest.raises(psycopg.OperationalError):
        setup.raw(THEIRS)
    assert setup.operator.dismiss(THEIRS) is False


def events_of(schema: str, number: int, hmac: str = "") -> str:
    """The arguments of one event after the seal that is given as a parameter."""
    texts = ("event/1", "FACT_INGESTED", "2026-05-25T10:00:00Z", "", "", "{}", hmac)
    arrays = "".join(f", ARRAY['{text}']" for text in texts)
    return f"SELECT {schema}.append_events(%s, ARRAY[{number}]::bigint[]{arrays})"


def test_a_tenants_login_only_continues_its_trail(setup):
    options = {"embedder": HashEmbedder(), "key": "ab" * 32, "clock": NOON}
    tenant, password = "a tenant that asks", "asking-password"
    schema = setup.operator.admit(tenant, password)
    address = setup.login(tenant, password)

    def asked(number: int) -> None:
        with Relay.open(address, subject=Subject(tenant=tenant), **options) as relay:
            relay.add([f"The walrus number {number} swims to the ice in the summer of each year."])
            relay.ask("Where does the walrus swim?", model="extractive")
            assert relay.verify().state == "VALID"

    asked(1)
    with psycopg.connect(address, autocommit=True) as raw:
        (tip, last), (_, before) = raw.execute(
            f"SELECT seq, hmac FROM {schema}.events ORDER BY seq DESC LIMIT 2"
        ).fetchall()
        for statement in (
            f"INSERT INTO {schema}.events SELECT * FROM {schema}.events",
            f"INSERT INTO {schema}.events (seq) VALUES (9000)",
            f"UPDATE {schema}.events SET data = data",
            f"UPDATE {schema}.events SET hmac = ''",
            f"DELETE FROM {schema}.events",
            f"TRUNCATE {schema}.events",
            f"ALTER FUNCTION {schema}.append_events SET search_path TO public",
            f"COPY {schema}.events FROM STDIN",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)
        for previous, number in (
            (before, tip + 1), ("", tip + 1), (None, tip + 1),
            (last, tip), (last, tip + 2), (last, 1), (last, "NULL"),
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.RaiseException, match="do not continue"):
                raw.execute(events_of(schema, number), [previous])
        # The caller's path does not choose the table.
        raw.execute(f"SET search_path = {schema_of(SHARED)}, public")
        with pytest.raises(psycopg.errors.RaiseException):
            raw.execute(events_of(schema, 1), [""])
    asked(2)
    # Another tenant reaches neither the table nor its function.
    with setup.raw(THEIRS) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute(events_of(schema, tip + 1), [last])
    with psycopg.connect(address) as raw:
        paths = raw.execute(
            "SELECT proconfig FROM pg_proc WHERE prosecdef AND pronamespace = %s::regnamespace",
            [schema],
        ).fetchall()
    assert len(paths) == len(DEFINED)
    assert all(path[0][0].startswith(f"search_path={schema}, ") for path in paths)
    setup.operator.dismiss(tenant)


@pytest.mark.requirement("009-9.1-6")
def test_functions_that_a_restore_gave_to_everybody_are_taken_back(setup):
    schema = schema_of(SHARED)
    calls = {
        APPEND_EVENTS: (events_of(schema, 1), [""]),
        WRITE_ANEW: (f"SELECT {schema}.write_anew('facts')", None),
        INDEX_VECTORS: (f"SELECT {schema}.index_vectors(0)", None),
        ANALYZE_TABLES: (f"SELECT {schema}.analyze_tables()", None),
    }
    assert set(calls) == set(DEFINED)
    with psycopg.connect(server().address(setup.database), autocommit=True) as raw:
        for name in (schema, schema_of(THEIRS)):
            for function in DEFINED:
                raw.execute(f"GRANT EXECUTE ON FUNCTION {name}.{function} TO PUBLIC")
    setup.operator.admit(THEIRS, PASSWORDS[THEIRS], reads=[SHARED])
    with setup.raw(THEIRS) as raw:
        for statement, parameters in calls.values():
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement, parameters)
    with psycopg.connect(server().address(setup.database), autocommit=True) as raw:
        for function in DEFINED:
            assert raw.execute(
                "SELECT has_function_privilege(%s, %s, 'EXECUTE')",
                [schema_of(OURS), f"{schema_of(THEIRS)}.{function}"],
            ).fetchone() == (False,)


@pytest.mark.parametrize("why", ["rights in another database", "no CREATEROLE"])
def test_a_role_that_cannot_be_dropped_is_left_with_a_warning(setup, caplog, why):
    role = schema_of(THEIRS)
    with server().database() as other:
        address = server().address(setup.database)
        with psycopg.connect(server().address(other), autocommit=True) as raw:
            if why == "no CREATEROLE":
                raw.execute("CREATE ROLE mere_owner LOGIN PASSWORD 'a-password'")
                with psycopg.connect(address, autocommit=True) as here:
                    here.execute(f"ALTER SCHEMA {role} OWNER TO mere_owner")
                address = server().address(setup.database, "mere_owner", "a-password")
            else:
                raw.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
        operator = PostgresStore(address)
        try:
            assert operator.dismiss(THEIRS, artifacts=[]) is True
            assert THEIRS not in operator.namespaces()
        finally:
            operator.close()
            with psycopg.connect(server().address(other), autocommit=True) as raw:
                raw.execute(f"DROP OWNED BY {role}")
                raw.execute("DROP ROLE IF EXISTS mere_owner")
    warned = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    (left,) = (text for text in warned if "DROP ROLE" in text)
    assert role in left
    others = [text for text in warned if text != left]
    assert len(others) == (why == "no CREATEROLE")
    assert all("VACUUM FULL pg_statistic as the database's owner" in text for text in others)
