"""`crp fabric init --postgres`: three logins on a real server, and what each may do."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner, Result

from crp_integrations import Relay
from crp_integrations.cli.app import app
from crp_integrations.errors import AccessDenied, ConfigError, CRPError
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore, tables
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.pool import PostgresPool
from crp_integrations.stores.postgres.schema import schema_of
from tests.doubles import HashEmbedder
from tests.gateway.application import FACTS, QUESTION, application, key_for
from tests.postgres import server
from tests.servers import openai_double

Init = Callable[..., Result]
EMPTY, EMPTIES = "{}", ", '{}'"
ROLES = {"crp": "owner", "crp_writer": "writer", "crp_reader": "reader"}


@pytest.fixture
def database() -> Iterator[str]:
    with server().database() as name:
        try:
            yield name
        finally:
            with psycopg.connect(server().address(name), autocommit=True) as raw:
                made = raw.execute(
                    "SELECT rolname FROM pg_roles WHERE rolname ~ '^(crp|kb|admin)' ORDER BY 1 DESC"
                ).fetchall()
                for (role,) in made:
                    raw.execute(f"REASSIGN OWNED BY {role} TO postgres")
                    raw.execute(f"DROP OWNED BY {role} CASCADE")
                for (role,) in made:
                    raw.execute(f"DROP ROLE {role}")


@pytest.fixture
def init(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Init:
    monkeypatch.setenv("CRP_KEY", "ab" * 32)
    monkeypatch.chdir(tmp_path)
    for part in ROLES.values():
        monkeypatch.setenv(f"CRP_{part.upper()}_PASSWORD", part * 2)

    def run(*arguments: str, address: str = "") -> Result:
        given = ["fabric", "init", "--postgres", address or server().address(database)]
        return CliRunner().invoke(app, [*given, *arguments])

    return run


def login(database: str, role: str) -> str:
    return server().address(database, role, ROLES[role] * 2)


def relay(database: str, role: str, tenant: str = "acme") -> Relay:
    return Relay.open(
        login(database, role), subject=Subject(tenant=tenant), embedder=HashEmbedder()
    )


def denied(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as raw:
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)


def test_the_gateway_answers_with_the_writers_login_and_a_second_run_changes_nothing(
    init: Init, database: str
) -> None:
    first = init("--tenant", "acme")
    assert first.exit_code == 0 and "made: crp, crp_writer, crp_reader;" in first.output
    assert "next: crp serve 'postgresql://crp_writer@/" in first.output
    assert "nothing to change" in init("--tenant", "acme").output
    again = json.loads(init("--json").output)
    assert (again["made"], again["changed"]) == ([], False) and "crp_writer@" in again["store"]
    # A tenant that the owner makes by writing is the writer's too.
    with relay(database, "crp", "globex") as owner:
        owner.add(FACTS[:2])
    assert "nothing to change" in init().output
    secret, key = key_for("acme")
    _, others = key_for("globex")
    with openai_double(text="Plant 7 was built in 1957.") as model:
        from starlette.testclient import TestClient

        with TestClient(application(login(database, "crp_writer"), model, key, others)) as client:  # type: ignore[arg-type]
            client.headers["Authorization"] = f"Bearer {secret}"
            facts = {"facts": [{"content": fact} for fact in FACTS]}
            assert client.post("/v1/facts", json=facts).status_code == 200
            asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": QUESTION}]}
            answered = client.post("/v1/chat/completions", json=asked)
            assert answered.status_code == 200 and "1957" in answered.text
    for tenant, count in (("acme", len(FACTS)), ("globex", 2)):
        with relay(database, "crp_writer", tenant) as writer:
            assert writer.fabric.size() == count
            added = writer.add(["The east gate opens at seven in the morning."])
            (fact,) = writer.fabric.facts(added.facts)
            assert writer.fabric.erase(fact.source_id).scrubbed
            writer.fabric.maintain()
            assert writer.verify().state == "VALID" and not writer.fabric.doctor().findings
    with (
        relay(database, "crp_writer", "another") as writer,
        pytest.raises(AccessDenied, match="crp fabric init --tenant"),
    ):
        writer.add(FACTS)


def test_tables_of_a_newer_version_are_granted_too(
    init: Init, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init("--tenant", "acme")
    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, ("CREATE TABLE more (x int)",)))
    with relay(database, "crp") as owner:
        owner.add(FACTS)
    more = f"{schema_of('acme')}.more"
    with psycopg.connect(login(database, "crp_writer")) as writer:
        writer.execute(f"INSERT INTO {more} VALUES (1)")
        writer.execute(f"UPDATE {more} SET x = 2")
    with psycopg.connect(login(database, "crp_reader")) as reader:
        assert reader.execute(f"SELECT x FROM {more}").fetchall() == [(2,)]
    denied(login(database, "crp_reader"), f"INSERT INTO {more} VALUES (1)")


def test_a_tenant_of_an_older_version_is_brought_up(
    init: Init, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init("--tenant", "acme")
    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, ("CREATE SEQUENCE own_seq",)))
    assert "made: no login" in init("--tenant", "acme").output
    assert "nothing to change" in init("--tenant", "acme").output
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)


def test_roles_of_other_default_rights_get_none_to_a_schema(init: Init, database: str) -> None:
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        for role in ("kb_analyst", "kb_loader"):
            raw.execute(f"CREATE ROLE {role} LOGIN")
        grant = "ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT {} ON TABLES TO {}"
        raw.execute(grant.format("postgres", "SELECT", "kb_analyst"))
        raw.execute(grant.format("postgres", "INSERT", "kb_loader"))
        store = Relay.open(
            server().address(database), subject=Subject(tenant="before"), embedder=HashEmbedder()
        )
        with store as before:
            before.add(FACTS[:1])
        init()
        raw.execute(grant.format("crp", "INSERT", "kb_loader"))
        raw.execute(grant.format("crp", "INSERT", "crp_reader"))
        init("--tenant", "acme")
    for schema in (schema_of("before"), schema_of("acme")):
        for role in ("kb_analyst", "kb_loader"):
            denied(server().address(database, role), f"SELECT FROM {schema}.facts")
    acme = schema_of("acme")
    denied(login(database, "crp_reader"), f"DELETE FROM {acme}.facts")


def test_rights_that_were_changed_are_granted_again(init: Init, database: str) -> None:
    init("--tenant", "acme")
    acme = schema_of("acme")
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(f"REVOKE SELECT ON {acme}.facts FROM crp_reader")
        raw.execute(f"REVOKE EXECUTE ON FUNCTION {acme}.{tables.APPEND_EVENTS} FROM crp_writer")
        raw.execute(f"GRANT INSERT ON {acme}.events TO crp_writer")
    assert "made: no login" in init().output
    assert "nothing to change" in init().output
    denied(login(database, "crp_writer"), f"INSERT INTO {acme}.events DEFAULT VALUES")
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)
    with relay(database, "crp_reader") as reader:
        assert reader.fabric.size() == len(FACTS)


def test_the_writer_owns_nothing_and_changes_no_trail(init: Init, database: str) -> None:
    init("--tenant", "acme")
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)
        writer.ask(QUESTION, model="extractive")
    schema = schema_of("acme")
    denied(
        login(database, "crp_writer"),
        *("CREATE ROLE x", "ALTER ROLE crp_reader CREATEROLE", "DROP ROLE crp_reader"),
        *("CREATE DATABASE x", "CREATE SCHEMA x", "CREATE TABLE public.x (y int)"),
        *(f"DROP SCHEMA {schema} CASCADE", f"ALTER TABLE {schema}.facts ADD x int"),
        *(f"DROP TABLE {schema}.facts", f"TRUNCATE {schema}.facts", "SET ROLE crp"),
        *(f"CREATE TABLE {schema}.x (y int)", "COPY (SELECT 1) TO PROGRAM 'true'"),
        *(f"DELETE FROM {schema}.events", f"UPDATE {schema}.events SET data = ''"),
        *(f"DELETE FROM {schema}.seals", f"INSERT INTO {schema}.events DEFAULT VALUES"),
    )
    denied(login(database, "crp"), "CREATE ROLE x", "CREATE DATABASE x")


def test_the_reader_reads_and_dumps_everything_and_writes_nothing(
    init: Init, database: str
) -> None:
    # One tenant of before the logins, one of after.
    with Relay.open(
        server().address(database), subject=Subject(tenant="old"), embedder=HashEmbedder()
    ) as before:
        before.add(FACTS)
    assert init("--tenant", "acme", "--tenant", "old").exit_code == 0
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)
    for tenant in ("old", "acme"):
        with relay(database, "crp_reader", tenant) as reader:
            assert reader.fabric.size() == len(FACTS)
            assert FACTS[7] in str(reader.preview(QUESTION))
            assert reader.verify().state == "VALID" and not reader.fabric.doctor().findings
            with pytest.raises(AccessDenied):
                reader.add(["The east gate opens at seven in the morning."])
            with pytest.raises(AccessDenied):
                reader.ask(QUESTION, model="extractive")
        schema = schema_of(tenant)
        denied(
            login(database, "crp_reader"),
            *(f"DELETE FROM {schema}.facts", f"UPDATE {schema}.own SET value = 0"),
            *(f"INSERT INTO {schema}.own VALUES ('x', 1)", f"SELECT nextval('{schema}.numbers')"),
            f"SELECT {schema}.append_events('', '{EMPTY}'{EMPTIES * 7})",
            *(f"SELECT {schema}.write_anew('facts')", f"TRUNCATE {schema}.facts"),
        )
    dumped = server().run("pg_dump", "-d", login(database, "crp_reader"))
    assert dumped.count(FACTS[7]) == 2


def test_a_restored_dump_is_the_logins_after_another_run(init: Init, database: str) -> None:
    init("--tenant", "acme")
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)
    folder = server().folder / database
    server().give(folder)
    dump = str(folder / "kb.dump")
    server().run("pg_dump", "-Fc", "-f", dump, "-d", login(database, "crp_reader"))
    with server().database() as copy:
        assert "made: no login" in init(address=server().address(copy)).output
        bare = ("--no-owner", "--no-acl", "--no-comments", "-d", login(copy, "crp"))
        server().run("pg_restore", *bare, dump)
        with pytest.raises(AccessDenied), relay(copy, "crp_writer") as writer:
            writer.add(FACTS)
        assert "made: no login" in init(address=server().address(copy)).output
        with relay(copy, "crp_writer") as writer:
            writer.ask(QUESTION, model="extractive")
        with relay(copy, "crp_reader") as reader:
            assert reader.fabric.size() == len(FACTS) and reader.verify().windows == 1
        denied(
            login(copy, "crp_reader"),
            f"SELECT {schema_of('acme')}.append_events('', '{EMPTY}'{EMPTIES * 7})",
        )


def test_the_owner_gives_tenants_their_own_logins_once_it_may_make_roles(
    init: Init, database: str
) -> None:
    init()
    with closing(PostgresStore(login(database, "crp"))) as owner:
        with pytest.raises(AccessDenied):
            owner.admit("acme", "a-password")
        with psycopg.connect(server().address(database), autocommit=True) as raw:
            raw.execute("ALTER ROLE crp CREATEROLE")
        for password in ("first-password", "second-password"):
            role = owner.admit("acme", password)
            psycopg.connect(server().address(database, role, password)).close()
        with psycopg.connect(server().address(database), autocommit=True) as raw:
            raw.execute(f"GRANT {role} TO crp")
        assert "nothing to change" in init().output
        assert owner.dismiss("acme") and owner.namespaces() == []


def test_passwords_are_generated_into_a_file_of_the_owner_alone(
    init: Init, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRP_OWNER_PASSWORD")
    monkeypatch.delenv("CRP_READER_PASSWORD")
    printed = init("--prefix", "kb").output
    file = tmp_path / "crp.pgpass"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = dict(line.split(":")[3:] for line in file.read_text().splitlines())
    assert {*made} == {"kb", "kb_reader"}
    for role, password in {**made, "kb_writer": "writer" * 2}.items():
        assert password not in printed
        psycopg.connect(server().address(database, role, password)).close()
    # A file that is there may hold passwords that nothing else does.
    refused = init("--prefix", "kb2")
    assert isinstance(refused.exception, ConfigError)
    assert "give another --passwords" in str(refused.exception)
    assert "kb_reader" in file.read_text() and list(tmp_path.iterdir()) == [file]
    with psycopg.connect(server().address(database)) as raw:
        assert raw.execute("SELECT FROM pg_roles WHERE rolname ~ '^kb2'").fetchone() is None


def test_the_server_gets_no_password_in_plain_text(init: Init, database: str) -> None:
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(
            sql.Identifier(database)))  # fmt: skip
    assert init().exit_code == 0
    log = (server().data / "log").read_text(errors="replace")
    assert "CREATE ROLE" in log and "SCRAM-SHA-256$" in log
    assert not any(part * 2 in log for part in ROLES.values())


def test_an_administrator_who_is_no_superuser_makes_them(init: Init, database: str) -> None:
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute("CREATE ROLE admin LOGIN CREATEROLE PASSWORD 'a-password'")
        raw.execute(f"ALTER DATABASE {database} OWNER TO admin")
        raw.execute("CREATE EXTENSION vector")
    address = server().address(database, "admin", "a-password")
    done = init("--tenant", "acme", address=address)
    assert done.exit_code == 0 and "a-password" not in done.output
    again = init("--tenant", "acme", address=address).output
    assert "nothing to change" in again and "not granted" not in again
    with relay(database, "crp_writer") as writer:
        writer.add(FACTS)
    # The administrator is no member of the owner afterwards, and reads nobody's facts.
    denied(address, f"SELECT FROM {schema_of('acme')}.facts", "SET ROLE crp")


def test_schemas_of_another_owner_are_named_and_a_rollback_leaves_no_file(
    init: Init, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Relay.open(
        server().address(database), subject=Subject(tenant="old"), embedder=HashEmbedder()
    ) as before:
        before.add(FACTS[:1])
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute("CREATE ROLE admin LOGIN CREATEROLE PASSWORD 'a-password'")
        raw.execute(f"ALTER DATABASE {database} OWNER TO admin")
    monkeypatch.delenv("CRP_WRITER_PASSWORD")
    address = server().address(database, "admin", "a-password")
    assert isinstance(init("--tenant", "old", address=address).exception, AccessDenied)
    assert list(tmp_path.iterdir()) == []
    done = init("--tenant", "acme", address=address).output
    assert f"not granted: {schema_of('old')};" in done
    assert list(tmp_path.iterdir()) == [tmp_path / "crp.pgpass"]
    # A schema that lacks tables, such as one of an older version, is none that can be granted.
    empty = f"{schemas.PREFIX}{'0' * schemas.DIGITS}"
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(f"CREATE SCHEMA {empty}")
    assert json.loads(init("--json").output)["not_granted"] == [empty]
    with relay(database, "crp_reader", "old") as reader:
        assert reader.fabric.size() == 1


def test_passwords_of_roles_that_were_made_are_never_lost(
    init: Init, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRP_READER_PASSWORD")

    def taken(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr("os.link", taken)
    printed = json.loads(init("--json").output)
    (file,) = tmp_path.iterdir()
    assert printed["passwords"] == str(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text().strip().split(":")[4]
    psycopg.connect(server().address(database, "crp_reader", password)).close()


@pytest.mark.parametrize("extra", ["", "&sslmode=prefer&application_name=a%20b%26%27c"])
def test_the_writers_address_keeps_all_but_user_and_password(database: str, extra: str) -> None:
    sockets, port = server().sockets, server().port
    hosts = f"%3A%3A1,{sockets}" if extra else sockets
    given = f"postgresql://postgres:a-password@/?host={hosts}&port={port}&sslpassword=secret{extra}"
    with closing(PostgresPool(given, 10.0, 1)) as pool:
        address = pool.address_of("postgres_writer")
    wanted = conninfo_to_dict(given) | {"user": "postgres_writer", "dbname": "postgres"}
    del wanted["password"], wanted["sslpassword"]
    assert conninfo_to_dict(address) == wanted and "'" not in address


NAMES = [
    *('x"; DROP ROLE postgres; --', "x'; DROP ROLE postgres; --", "pg", "pg_x", "public", "none"),
    *("Crp", "1crp", "crp-x", "crp x", "crp\n", "crp\0", "ö", "x" * 31, "{owner}", "%s"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_would_need_quoting_is_refused(init: Init, database: str, name: str) -> None:
    refused = init("--prefix", name)
    assert isinstance(refused.exception, ConfigError) and "prefix is" in str(refused.exception)
    with psycopg.connect(server().address(database)) as raw:
        rows = raw.execute("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_'").fetchall()
    assert rows == [("postgres",)]


def test_names_of_a_database_and_a_tenant_are_no_sql(init: Init) -> None:
    hostile = "k\"b'; DROP ROLE postgres; --{owner}%s"
    with psycopg.connect(server().address(), autocommit=True) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(hostile)))
    try:
        quoted = "k%22b%27%3B%20DROP%20ROLE%20postgres%3B%20--%7Bowner%7D%25s"
        done = init("--tenant", hostile, address=server().address(quoted))
        assert done.exit_code == 0 and quoted in done.output
        store = PostgresStore(server().address(quoted, "crp_reader", "reader" * 2))
        assert store.namespaces() == [hostile]
        store.close()
    finally:
        with psycopg.connect(server().address(), autocommit=True) as raw:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            raw.execute(drop.format(sql.Identifier(hostile)))


@pytest.mark.parametrize(
    ("setting_up", "cause"),
    [
        ("CREATE ROLE crp_reader SUPERUSER", "role crp_reader exists and may more"),
        ("CREATE ROLE crp_writer CREATEROLE", "role crp_writer exists and may more"),
        (
            "CREATE ROLE crp_reader; GRANT pg_write_all_data TO crp_reader",
            "role crp_reader exists and may more",
        ),
        ("CREATE ROLE crp BYPASSRLS", "role crp exists and may more"),
        (
            "CREATE ROLE crp; GRANT pg_write_all_data TO crp",
            "role crp exists and may more",
        ),
        (
            "CREATE ROLE crp; GRANT pg_monitor TO crp WITH ADMIN TRUE, INHERIT FALSE, SET FALSE",
            "role crp exists and may more",
        ),
    ],
)
def test_a_role_that_may_more_is_not_taken(
    init: Init, database: str, setting_up: str, cause: str
) -> None:
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute(setting_up)
    assert cause in str(init().exception)


def test_what_a_login_lacks_is_named(init: Init, database: str) -> None:
    with psycopg.connect(server().address(database), autocommit=True) as raw:
        raw.execute("CREATE ROLE admin LOGIN PASSWORD 'a-password'")
        address = server().address(database, "admin", "a-password")

        def refusal() -> str:
            refused = init(address=address).exception
            assert isinstance(refused, CRPError) and "a-password" not in str(refused)
            return str(refused)

        assert "let a superuser run CREATE EXTENSION vector" in refusal()
        raw.execute("CREATE EXTENSION vector")
        assert "may not make roles; use one with CREATEROLE, or a superuser" in refusal()
        raw.execute("ALTER ROLE admin CREATEROLE")
        assert "may not change the database, which it does not own" in refusal()
        assert raw.execute("SELECT FROM pg_roles WHERE rolname ~ '^crp'").fetchone() is None
        raw.execute(f"ALTER DATABASE {database} OWNER TO admin")
        raw.execute("CREATE ROLE crp LOGIN")
        assert "may not act for crp; use the login that made it" in refusal()


def test_a_server_without_pgvector_or_of_an_old_version_is_refused(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_CREATE_EXTENSION", "CREATE EXTENSION not_installed")
    assert "pgvector, which is not installed on the server" in str(init().exception)
    monkeypatch.setattr(schemas, "OLDEST_SERVER", 170_000)
    assert "is PostgreSQL 16; " in str(init().exception)
    assert "mysql:// is not supported" in str(init(address="mysql://host/kb").exception)
