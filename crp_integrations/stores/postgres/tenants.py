"""A login role for each tenant, which PostgreSQL itself confines to the tenant's schema.

The operator creates a tenant's schema and role, and owns the tables; the tenant's processes log in
with that role. It reads and writes the rows of its schema and owns nothing; grants let it read
shared namespaces. A tenant that owned tables could add triggers, rules, columns or indexes to them,
and their code runs with the rights of each writer, including the operator.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from psycopg import sql
from psycopg.errors import DependentObjectsStillExist, InsufficientPrivilege

from crp_integrations.errors import AccessDenied, StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.tables import DEFINED, SEALED
from crp_integrations.vocabulary import EventType

_log = logging.getLogger(__name__)
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
)
# The rights that sealing an answer needs, by table, sequence or function.
SEALING: Final = (
    ("own", "UPDATE"),
    ("fact_uses", "UPDATE"),
    *(
        (table, "INSERT")
        for table in (
            *("fact_uses", *(table for table in SEALED if table != "events")),
            *("sessions", "windows", "window_contents", "window_facts"),
            *("receipt_contents", "receipt_facts"),
        )
    ),
    ("sessions", "UPDATE"),
    ("withdrawn_facts", "DELETE"),
    ("windows_window_seq", "USAGE"),
    ("append_events", "EXECUTE"),
)
_LACKING = (
    "SELECT 'CREATE', 'a schema', 0 AS place "
    "WHERE NOT has_database_privilege(current_database(), 'CREATE') "
    "AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = ?) "
    "UNION ALL SELECT what, name, place FROM (VALUES "
    + ", ".join(f"({place}, '{name}', '{what}')" for place, (name, what) in enumerate(SEALING, 1))
    + ") AS wanted (place, name, what) JOIN ("
    "SELECT oid, relname, relnamespace, relkind FROM pg_class "
    "UNION ALL SELECT oid, proname, pronamespace, 'F' FROM pg_proc) AS c ON relname = name "
    "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = ? AND NOT CASE "
    "WHEN relkind = 'F' THEN has_function_privilege(c.oid, what) "
    # A right to only some columns may be enough.
    "WHEN what IN ('INSERT', 'UPDATE') THEN has_any_column_privilege(c.oid, what) "
    "WHEN relkind = 'S' THEN has_sequence_privilege(c.oid, what) "
    "ELSE has_table_privilege(c.oid, what) END ORDER BY place"
)
# Maximum number of missing rights that a message names.
_NAMED = 3


def refuse_reader(connection: PostgresConnection, namespace: str, schema: str) -> None:
    """Refuse a login that could not seal an answer in a namespace."""
    rows = connection.rows(_LACKING, [schema, schema])
    lacking = [f"{what} on {name}" for what, name, _ in rows]
    if lacking == ["CREATE on a schema"]:
        raise AccessDenied(
            f"namespace {namespace!r:.80} was never written, and the login of {connection.place} "
            "may not make its schema, so no answer in it could be sealed; let the operator admit "
            "it (`PostgresStore.admit`), or ask with a login that may"
        )
    if lacking:
        more = f" and {len(lacking) - _NAMED} more" * (len(lacking) > _NAMED)
        raise AccessDenied(
            f"the login of {connection.place} may not write namespace {namespace!r:.80}, so no "
            f"answer in it could be sealed: it lacks {', '.join(lacking[:_NAMED])}{more}; GRANT "
            "its role these (`PostgresStore.admit` does for a tenant's), or ask with a login "
            "that has them"
        )


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


def role_of(namespace: str) -> str:
    """The login role of a namespace's tenant; it has the same name as the schema."""
    return schema_of(namespace)


def admit(
    connection: PostgresConnection, namespace: str, password: str, *, reads: Sequence[str] = ()
) -> str:
    """Make a tenant's schema and login role, or change the role's password.

    Runs in the operator's open transaction.
    """
    if not password or "\0" in password:
        raise StoreError("the password of a tenant's role is empty or has a NUL; give one")
    role = role_of(namespace)
    raw = connection.raw
    name = sql.Identifier(role)
    there = connection.one("SELECT 1 FROM pg_roles WHERE rolname = ?", [role])
    # Only a superuser may name these attributes of a role that exists.
    verb = "ALTER" if there else "CREATE"
    least = "" if there else "NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT"
    # The server may log statements, so only a password verifier is sent.
    verifier = raw.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    raw.execute(
        sql.SQL(f"{verb} ROLE {{}} LOGIN {least} PASSWORD {{}}").format(
            name, sql.Literal(verifier.decode())
        )
    )
    # No other role creates anything in this database, and no tenant sees another's schema.
    raw.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database = sql.Identifier(raw.info.dbname)
    raw.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
    schemas.make(connection, namespace, role)
    let_write(connection, role, role)
    _stop_reading(connection, role)
    for shared in reads:
        _let_read(connection, shared, role)
    return role


def dismiss(connection: PostgresConnection, namespace: str) -> None:
    """Remove a tenant's role with its rights in the transaction that removes its schema.

    A role that this login cannot remove is left with a warning.
    """
    role = role_of(namespace)
    if not connection.one("SELECT 1 FROM pg_roles WHERE rolname = ?", [role]):
        return
    # An operator who is no superuser may drop only what a role owns of which it is a member.
    for statement in (
        "GRANT {} TO CURRENT_USER WITH INHERIT TRUE",
        "DROP OWNED BY {} CASCADE",
        "DROP ROLE {}",
    ):
        try:
            with connection.raw.transaction():
                connection.raw.execute(sql.SQL(statement).format(sql.Identifier(role)))
        except (InsufficientPrivilege, DependentObjectsStillExist) as error:
            _log.warning(
                "the login %s is left (%s): its rights in other databases, or this login's lack "
                "of CREATEROLE, keep it; run DROP OWNED BY in each database, then DROP ROLE",
                role,
                type(error).__name__,
            )
            return


def refuse_artifacts(connection: PostgresConnection, namespace: str, schema: str) -> None:
    """Refuse to drop a namespace whose trail names artifacts, which would be left behind."""
    row = connection.one("SELECT to_regclass(?)::text", [f"{schema}.events"])
    if row is None or row[0] is None:
        return
    named = connection.one(
        f'SELECT 1 FROM "{schema}".events WHERE event_type = ? LIMIT 1',
        [EventType.ARTIFACT_ACCESS],
    )
    if named is not None:
        raise StoreError(
            f"namespace {namespace!r:.80} has artifacts outside of the database; give `artifacts`, "
            "the object stores they are in, or an empty list to leave them"
        )


def _stop_reading(connection: PostgresConnection, role: str) -> None:
    """Revoke a role's rights on every schema except its own."""
    others = connection.rows(
        "SELECT DISTINCT nspname FROM pg_namespace, aclexplode(nspacl) AS right_of "
        "JOIN pg_roles ON pg_roles.oid = right_of.grantee "
        "WHERE rolname = ? AND nspname <> ? ORDER BY nspname",
        [role, role],
    )
    for (schema,) in others:
        for what in ("ALL ON ALL TABLES IN SCHEMA {}", "ALL ON SCHEMA {}"):
            connection.raw.execute(
                sql.SQL(f"REVOKE {what} FROM {{}}").format(
                    sql.Identifier(schema), sql.Identifier(role)
                )
            )


def _let_read(connection: PostgresConnection, namespace: str, role: str) -> None:
    schema = schema_of(namespace)
    if not schemas.is_there(connection, schema):
        raise StoreError(f"namespace {namespace!r} was never written; ingest into it first")
    let_read(connection, schema, role)
