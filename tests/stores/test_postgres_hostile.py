"""A tenant's login gains nothing from who reads or writes its schema, even one that it owns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from crp_integrations.errors import StoreDamaged
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import fact, rows, seal, source
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


def give_away(database: str, tenant: str) -> str:
    """Make a tenant the owner of its schema, as no version does any more; the schema."""
    schema = schema_of(tenant)
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(f"ALTER SCHEMA {schema} OWNER TO {schema}")
        raw.execute(f"ALTER TABLE {schema}.named OWNER TO {schema}")
    return schema


def login(database: str, tenant: str) -> str:
    return server().address(database, schema_of(tenant), PASSWORD)


def test_a_view_in_a_tenants_schema_runs_nothing_as_who_lists_the_namespaces(operator):
    store, database = operator
    schema = give_away(database, EVIL)
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


def test_a_schema_that_its_tenant_owns_is_not_used(operator):
    _, database = operator
    give_away(database, EVIL)
    fresh = PostgresStore(server().address(database))
    for write in (True, False):
        with pytest.raises(StoreDamaged), fresh.begin(EVIL, write=write):
            raise AssertionError("a transaction was begun")
    with pytest.raises(StoreDamaged):
        fresh.admit(EVIL, PASSWORD)
    fresh.close()


def test_a_schema_without_its_name_keeps_nobody_from_the_others(operator):
    store, database = operator
    schema = give_away(database, EVIL)
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


# Everything that runs a function of the tenant's when somebody else reads or writes the table.
PLANTS = (
    (
        "CREATE FUNCTION {0}.taken_in() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.taken VALUES (current_user, TG_TABLE_NAME); RETURN NEW; END $$"
    ),
    (
        "CREATE FUNCTION {0}.note(whatever text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.taken VALUES (current_user, whatever); RETURN whatever; END $$"
    ),
    # Says that it changes nothing, as a column or an index asks.
    (
        "CREATE FUNCTION {0}.taken_at(whatever text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ "
        "BEGIN RETURN {0}.note(whatever); END $$"
    ),
    # What the statements name without a schema, with a better fit of the arguments.
    (
        "CREATE FUNCTION {0}.strpos(one text, other text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.taken VALUES (current_user, 'strpos'); RETURN 0; END $$"
    ),
    (
        "CREATE FUNCTION {0}.other(one text, other text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.taken VALUES (current_user, 'operator'); RETURN false; END $$"
    ),
    "CREATE OPERATOR {0}.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = {0}.other)",
    "CREATE TYPE {0}.vector AS (x int)",
    "CREATE DOMAIN {0}.halfvec AS text CHECK ({0}.taken_at(VALUE) <> '')",
    (
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {0}.facts FOR EACH ROW "
        "EXECUTE FUNCTION {0}.taken_in()"
    ),
    "CREATE TRIGGER t AFTER INSERT ON {0}.events FOR EACH ROW EXECUTE FUNCTION {0}.taken_in()",
    "CREATE TRIGGER t BEFORE UPDATE ON {0}.own FOR EACH ROW EXECUTE FUNCTION {0}.taken_in()",
    "CREATE RULE r AS ON INSERT TO {0}.edges DO ALSO SELECT {0}.taken_at('rule')",
    "CREATE INDEX i ON {0}.facts ({0}.taken_at(content))",
    "ALTER TABLE {0}.facts ADD COLUMN g text GENERATED ALWAYS AS ({0}.taken_at(content)) STORED",
    "ALTER TABLE {0}.sources ADD COLUMN d text DEFAULT {0}.taken_at('default')",
    "ALTER TABLE {0}.facts ADD CONSTRAINT c CHECK ({0}.taken_at(content) <> '') NOT VALID",
    "ALTER TABLE {0}.facts ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY p ON {0}.facts USING ({0}.taken_at(content) <> '')",
    "ALTER TABLE {0}.events DISABLE TRIGGER ALL",
    (
        "CREATE OR REPLACE FUNCTION {0}.facts_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.taken VALUES (current_user, 'replaced'); RETURN NULL; END $$"
    ),
    "SET session_replication_role = replica",
)


def test_nothing_that_a_tenant_plants_in_its_tables_runs_as_the_operator(operator):
    store, database = operator
    schema = schema_of(EVIL)
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute("CREATE TABLE public.taken (who text, what text)")
        raw.execute("GRANT INSERT ON public.taken TO PUBLIC")
    planted = []
    with psycopg.connect(login(database, EVIL), autocommit=True) as raw:
        for plant in PLANTS:
            # What names a function that could not be made says that there is none.
            with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction):
                raw.execute(plant.format(schema))
                planted.append(plant)
    made = [fact(f"the operator writes number {n}", namespace=EVIL) for n in range(3)]
    with store.begin(EVIL) as transaction:
        transaction.facts.add(made, rows(made))
        transaction.facts.add_source(source("a.md"))
        transaction.facts.set_setting("a", "b")
        transaction.journal.seal(seal("s", 1))
        transaction.facts.remove([made[0].fact_id])
    assert store.scrub(EVIL) is True
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        taken = raw.execute("SELECT * FROM public.taken WHERE who <> %s", [schema]).fetchall()
        assert taken == []
    assert planted == []
    assert store.check(EVIL) == []


def test_a_tenant_opens_its_schema_to_nobody_and_keeps_its_trail(operator):
    store, database = operator
    schema = schema_of(EVIL)
    with store.begin(EVIL) as transaction:
        transaction.journal.seal(seal("s", 1))
    with psycopg.connect(login(database, EVIL), autocommit=True) as raw:
        # A grant without the right to it is refused, or warned of and not made.
        for what in ("SCHEMA {0}", "{0}.facts", "ALL TABLES IN SCHEMA {0}"):
            with suppress(psycopg.errors.InsufficientPrivilege):
                raw.execute(f"GRANT ALL ON {what} TO PUBLIC".format(schema))
        for statement in (
            "DROP TABLE {0}.named",
            "ALTER TABLE {0}.named RENAME TO real_name",
            "UPDATE {0}.named SET namespace = 'other'",
            "UPDATE {0}.seals SET hmac = ''",
            "DELETE FROM {0}.events",
            "TRUNCATE {0}.receipts",
            "DROP SCHEMA {0} CASCADE",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement.format(schema))
    with psycopg.connect(login(database, OTHER), autocommit=True) as raw:
        for statement in ("TABLE {0}.facts", "SELECT {0}.write_anew('facts')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement.format(schema))
    assert store.namespaces() == [EVIL, OTHER]
