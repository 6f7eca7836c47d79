"""A login role for each tenant, which PostgreSQL itself keeps within its own schema.

The operator, who owns the database, makes a tenant's schema and role; the tenant's processes log in
as that role. It owns its schema and nothing else; shared namespaces it reads by grants.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from crp_integrations.errors import StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.schema import schema_of


def role_of(namespace: str) -> str:
    """The login role of a namespace's tenant; it bears the name of the schema."""
    return schema_of(namespace)


def admit(
    connection: Connection, namespace: str, password: str, *, reads: Sequence[str] = ()
) -> str:
    """Make a tenant's schema and login role, or give the role another password.

    Within the operator's transaction that is open.

    Args:
        reads: namespaces, such as shared ones, that the role may read and not write.

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
    if not schemas.is_there(connection, role):
        schemas.make(connection, namespace, role)
    raw.execute(sql.SQL("REVOKE ALL ON SCHEMA {} FROM PUBLIC").format(name))
    _own(connection, role)
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


def _own(connection: Connection, role: str) -> None:
    """Give a role its schema and everything in it."""
    raw = connection.raw
    name = sql.Identifier(role)
    raw.execute(sql.SQL("ALTER SCHEMA {} OWNER TO {}").format(name, name))
    things = connection.rows(
        "SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relname FROM pg_class "
        "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = ? "
        # A sequence that belongs to a column goes with its table.
        "AND (relkind = 'r' OR (relkind = 'S' AND NOT EXISTS (SELECT 1 FROM pg_depend "
        "WHERE objid = pg_class.oid AND deptype IN ('a', 'i')))) "
        "UNION ALL SELECT 'FUNCTION', proname FROM pg_proc "
        "JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = ?",
        [role, role],
    )
    for kind, thing in things:
        raw.execute(
            sql.SQL(f"ALTER {kind} {{}}.{{}} OWNER TO {{}}").format(
                name, sql.Identifier(thing), name
            )
        )


def _let_read(connection: Connection, namespace: str, role: str) -> None:
    schema = schema_of(namespace)
    if not schemas.is_there(connection, schema):
        raise StoreError(f"namespace {namespace!r} was never written; ingest into it first")
    for what in ("USAGE ON SCHEMA {}", "SELECT ON ALL TABLES IN SCHEMA {}"):
        connection.raw.execute(
            sql.SQL(f"GRANT {what} TO {{}}").format(sql.Identifier(schema), sql.Identifier(role))
        )
