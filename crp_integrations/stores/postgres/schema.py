"""A namespace's schema: its creation, and checks before use; `tables` has its tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from psycopg import sql
from psycopg.errors import FeatureNotSupported, InsufficientPrivilege, UndefinedFile

from crp_integrations.errors import AccessDenied, ConfigError, StoreDamaged, StoreNewer
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.postgres import tables
from crp_integrations.stores.postgres.connection import PostgresConnection, Raw, refused
from crp_integrations.stores.postgres.tables import DEFINED, SEALED
from crp_integrations.stores.rules import checked_name

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

PREFIX = "crp_"
# Minimum versions; earlier pgvector lacks fixes of damaged indexes.
OLDEST_SERVER = 160_000
OLDEST_PGVECTOR = (0, 8, 4)
# Hexadecimal digits of the namespace's hash in a schema name; PostgreSQL allows 63 bytes.
DIGITS = 40
# Number of candidates that a search of the index keeps: the 100 of CRP-SPEC-009 §3.2 and 100 more;
# with 100 it found 89 % of the 50 nearest of a million facts.
EF_SEARCH = 200
# The first query of a read-only transaction.
OWN = "SELECT name, value FROM own"
_MAKING = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
_CREATE_EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector"
# A function that is restored from a dump without its rights may be run by everybody.
_REVOKED = tuple(f"REVOKE ALL ON FUNCTION {{schema}}.{name} FROM PUBLIC" for name in DEFINED)
# Rows of sealed tables can be added but not changed, events only by a function that checks the
# chain's link; only the operator writes `named`.
_GRANTS = (
    *_REVOKED,
    "REVOKE ALL ON SCHEMA {schema} FROM PUBLIC",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    *(f"REVOKE UPDATE, DELETE ON {{schema}}.{table} FROM {{role}}" for table in SEALED),
    "REVOKE INSERT, UPDATE, DELETE ON {schema}.named, {schema}.events FROM {role}",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    *(f"GRANT EXECUTE ON FUNCTION {{schema}}.{function} TO {{role}}" for function in DEFINED),
)
_READING = (
    *_REVOKED,
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    # pg_dump reads these too.
    "GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
)
# The logins of all tenants (`tenants.make_logins`), by their names and by what the owner's new
# tables let them do; a role that has only one of the two may be anybody's.
_LOGINS = (
    "SELECT r.rolname, privilege_type = 'INSERT' FROM pg_namespace "
    "JOIN pg_roles AS owner ON owner.oid = nspowner "
    "JOIN pg_default_acl ON defaclrole = nspowner, aclexplode(defaclacl) AS right_of "
    "JOIN pg_roles AS r ON r.oid = right_of.grantee WHERE nspname = ? AND defaclnamespace = 0 "
    "AND defaclobjtype = 'r' AND (r.rolname, privilege_type) IN "
    "((owner.rolname || '_writer', 'INSERT'), (owner.rolname || '_reader', 'SELECT')) ORDER BY 1"
)


@dataclass(frozen=True, slots=True)
class Server:
    """Properties of the server, as the first connection found them.

    Attributes:
        vector_oid: object id of pgvector's type `vector`.
        extension_schema: schema that contains pgvector.
    """

    vector_oid: int
    extension_schema: str


def look(raw: Raw, place: str) -> Server:
    """Check the server's version; create pgvector if it is missing and the login may create it."""
    if raw.info.server_version < OLDEST_SERVER:
        major = raw.info.server_version // 10_000
        raise ConfigError(f"{place} is PostgreSQL {major}; 16 is the oldest that is supported")
    row = _extension(raw)
    if row is None:
        try:
            with raw.transaction():
                raw.execute("SELECT pg_advisory_xact_lock(hashtextextended('crp vector', 0))")
                raw.execute(_CREATE_EXTENSION.encode())
        except InsufficientPrivilege as error:
            raise AccessDenied(
                f"{place} has no pgvector, and this login may not create it; let a superuser run "
                "CREATE EXTENSION vector in this database"
            ) from error
        except (FeatureNotSupported, UndefinedFile) as error:
            raise ConfigError(
                f"{place} has no pgvector, which is not installed on the server; install it there, "
                "such as Debian's package postgresql-17-pgvector"
            ) from error
        row = _extension(raw)
    assert row is not None
    version, schema, oid = row
    if tuple(map(int, version.split(".")[:3])) < OLDEST_PGVECTOR:
        raise ConfigError(f"{place} has pgvector {version}; 0.8.4 is the oldest that is supported")
    return Server(int(oid), str(schema))


def _extension(raw: Raw) -> tuple[str, str, int] | None:
    row = raw.execute(
        "SELECT extversion, nspname, (SELECT oid FROM pg_type WHERE typname = 'vector' "
        "AND typnamespace = extnamespace)::int8 FROM pg_extension "
        "JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
    ).fetchone()
    return None if row is None else (str(row[0]), str(row[1]), int(row[2]))


def set_up(raw: Raw) -> None:
    """Set the options of a new connection: how its index is searched, and what it may run."""
    # An index search continues until enough of its results meet the conditions.
    raw.execute(
        f"SET hnsw.ef_search = {EF_SEARCH}; SET hnsw.iterative_scan = relaxed_order; "
        # Others never run a view or row policy that a tenant puts where a table was. The setting
        # exists only since 16.4.
        "SET row_security = off; SELECT set_config(name, 'view, foreign-table', false) "
        "FROM pg_settings WHERE name = 'restrict_nonsystem_relation_kind'".encode()
    )


@lru_cache(maxsize=1024)
def schema_of(namespace: str) -> str:
    """The schema of a namespace: a hash of its name, so that no character needs escaping."""
    return f"{PREFIX}{sha256_hex(checked_name(namespace))[:DIGITS]}"


def there(schema: str) -> str:
    """A query that returns a row if the schema exists."""
    return f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'"


def is_there(connection: PostgresConnection, schema: str) -> bool:
    """Whether the schema exists; raises if the login may not use it."""
    row = connection.one(
        "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = ?", [schema]
    )
    if row is not None and not row[0]:
        # Refused here, because the server silently skips such a schema in the search path.
        raise refused(connection.place)
    return row is not None


def make(connection: PostgresConnection, namespace: str, schema: str) -> bool:
    """Create a schema or bring it up to date in the open transaction; return whether it did."""
    if not is_there(connection, schema):
        # One process creates it; the others wait here and then find it.
        connection.execute(_MAKING, [schema])
    if is_there(connection, schema):
        version = _version(connection)
        check(connection, namespace, version)
        if version != len(tables.STEPS):
            _bring_up(connection, namespace, schema)
        return version != len(tables.STEPS)
    connection.script(f'CREATE SCHEMA "{schema}"')
    fill(connection, namespace)
    let_logins(connection, schema)
    return True


def _bring_up(connection: PostgresConnection, namespace: str, schema: str) -> None:
    """Apply the steps that an older version's schema lacks."""
    # One process applies them; the others wait here and then find them applied.
    connection.execute(_MAKING, [schema])
    version = _version(connection) or 0
    owned = connection.one(
        "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = ?", [schema]
    )
    if version < len(tables.STEPS) and owned != (True,):
        raise AccessDenied(
            f"the schema of namespace {namespace!r:.80} has version {version}, wanted "
            f"{len(tables.STEPS)}; its owner must open the namespace once to update it"
        )
    for step in tables.STEPS[version:]:
        connection.script(";\n".join(step))
    let_logins(connection, schema)
    connection.execute(
        "UPDATE own SET value = ? WHERE name = ?", [len(tables.STEPS), tables.VERSION_NAME]
    )


def _version(connection: PostgresConnection) -> int | None:
    row = connection.one("SELECT value FROM own WHERE name = ?", [tables.VERSION_NAME])
    return None if row is None else int(row[0])


def fill(connection: PostgresConnection, namespace: str) -> None:
    """Make the tables of an empty schema."""
    for step in tables.STEPS:
        connection.script(";\n".join(step))
    connection.execute("INSERT INTO named (namespace) VALUES (?)", [namespace])
    connection.execute(
        "INSERT INTO own (name, value) VALUES (?, ?)",
        [tables.VERSION_NAME, len(tables.STEPS)],
    )


def let_logins(connection: PostgresConnection, schema: str) -> None:
    """Grant the logins of all tenants, if there are any, their rights to a schema."""
    for role, writes in connection.rows(_LOGINS, [schema]):
        (let_write if writes else let_read)(connection, schema, role)


def let_write(connection: PostgresConnection, schema: str, role: str) -> None:
    """Grant a tenant's role reading and writing of the rows of its schema."""
    _grant(connection, _GRANTS, schema, role)


def let_read(connection: PostgresConnection, schema: str, role: str) -> None:
    """Grant a role reading of a schema."""
    _grant(connection, _READING, schema, role)


def _grant(
    connection: PostgresConnection, statements: tuple[str, ...], schema: str, role: str
) -> None:
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    for statement in statements:
        connection.raw.execute(sql.SQL(statement).format(**names))


def check(connection: PostgresConnection, namespace: str, version: int | None) -> None:
    """Refuse a schema that cannot be used.

    Raises:
        StoreNewer: a newer version of the package made it.
        StoreDamaged: it has no version, or belongs to another namespace.
    """
    if version is None:
        raise StoreDamaged(f"the schema of namespace {namespace!r} has no version")
    if version > len(tables.STEPS):
        raise StoreNewer(
            f"the schema of namespace {namespace!r} has version {version}; this version of the "
            f"package reads up to {len(tables.STEPS)}"
        )
    row = connection.one(
        "SELECT namespace, pg_get_userbyid(nspowner) = nspname FROM named "
        "JOIN pg_namespace ON nspname = current_schema()"
    )
    if row is not None and row[1]:
        raise StoreDamaged(
            f"the schema of namespace {namespace!r} belongs to its tenant's login, wanted the "
            "operator's: whoever owns a table decides what runs when others write it"
        )
    if row is None or row[0] != namespace:
        raise StoreDamaged(f"the schema of namespace {namespace!r} belongs to another namespace")


def names(connection: PostgresConnection) -> list[str]:
    """Names of the namespaces that this login may read, ascending."""
    # Only plain tables are read, so that reading runs no code of a schema's owner.
    schemas = connection.rows(
        "SELECT nspname FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid "
        "WHERE starts_with(nspname, ?) AND length(nspname) = ? "
        "AND relname = 'named' AND relkind = 'r' AND NOT relrowsecurity "
        "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')",
        [PREFIX, len(PREFIX) + DIGITS],
    )
    pairs = [
        (schema, name)
        for (schema,) in schemas
        for (name,) in connection.rows(f'SELECT namespace FROM "{schema}".named')
    ]
    return sorted(name for schema, name in pairs if schema_of(name) == schema)
