"""A login role for each tenant, which PostgreSQL itself keeps within its own schema.

The operator makes a tenant's schema and role, and owns the tables; the tenant's processes log in as
that role. It reads and writes the rows of its schema, see `rights`, and owns nothing; shared
namespaces it reads by grants.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from crp_integrations.errors import StoreError
from crp_integrations.stores.postgres import rights
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.vocabulary import EventType


def role_of(namespace: str) -> str:
    """The login role of a namespace's tenant; it bears the name of the schema."""
    return schema_of(namespace)


def admit(
    connection: Connection, namespace: str, password: str, *, reads: Sequence[str] = ()
) -> str:
    """Make a tenant's schema and login role, or give the role another password.

    Within the operator's transaction that is open.

    Args:
        reads: namespaces, such as shared ones, that the role may read and not write; those that
            it was let read before and that are not named are closed to it.

    Returns:
        The role's name.

    Raises:
        StoreError: the password is empty, or a namespace to read was never written.
    """
    if not password or "\0" in password:
        raise StoreError("the password of a tenant's role is empty or has a NUL; give one")
    role = role_of(namespace)
    raw = connection.raw
    name = sql.Identifier(role)
    there = connection.one("SELECT 1 FROM pg_roles WHERE rolname = ?", [role])
    verb = "ALTER" if there else "CREATE"
    # The server may log what it is sent, so it is not sent the password.
    verifier = raw.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    raw.execute(
        sql.SQL(
            f"{verb} ROLE {{}} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT PASSWORD {{}}"
        ).format(name, sql.Literal(verifier.decode()))
    )
    # Nobody else makes anything in this database, and no tenant sees another's schema.
    raw.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database = sql.Identifier(raw.info.dbname)
    raw.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
    schemas.make(connection, namespace, role)
    rights.let_write(connection, role, role)
    _stop_reading(connection, role)
    for shared in reads:
        _let_read(connection, shared, role)
    return role


def dismiss(connection: Connection, namespace: str) -> None:
    """Remove a tenant's role with its rights; its schema goes with `PostgresStore.drop`."""
    role = role_of(namespace)
    if connection.one("SELECT 1 FROM pg_roles WHERE rolname = ?", [role]):
        name = sql.Identifier(role)
        connection.raw.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
        connection.raw.execute(sql.SQL("DROP ROLE {}").format(name))


def refuse_artifacts(connection: Connection, namespace: str, schema: str) -> None:
    """Refuse to drop a namespace whose trail names artifacts that would be left behind.

    Raises:
        StoreError: it names some.
    """
    found = connection.one("SELECT to_regclass(?)::text", [f"{schema}.events"])
    if found is None or found[0] is None:
        return
    named = connection.one(
        f'SELECT 1 FROM "{schema}".events WHERE event_type = ? LIMIT 1',  # noqa: S608 - a hash
        [EventType.ARTIFACT_ACCESS],
    )
    if named is not None:
        raise StoreError(
            f"namespace {namespace!r:.80} has artifacts outside of the database; give `artifacts`, "
            "the object stores they are in, or an empty list to leave them"
        )


def _stop_reading(connection: Connection, role: str) -> None:
    """Take a role's rights on every schema but its own away."""
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


def _let_read(connection: Connection, namespace: str, role: str) -> None:
    schema = schema_of(namespace)
    if not schemas.is_there(connection, schema):
        raise StoreError(f"namespace {namespace!r} was never written; ingest into it first")
    rights.let_read(connection, schema, role)
