"""Login roles: a store's owner, writer and reader, and one for each tenant, confined to its schema.

The operator creates a tenant's schema and role, and owns the tables; the tenant's processes log in
with that role. It reads and writes the rows of its schema and owns nothing; grants let it read
shared namespaces. A tenant that owned tables could add triggers, rules, columns or indexes to them,
and their code runs with the rights of each writer, including the operator.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from psycopg import errors, sql

from crp_integrations.errors import AccessDenied, ConfigError, StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.pool import PostgresPool
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.tables import SEALED
from crp_integrations.vocabulary import EventType

_log = logging.getLogger(__name__)
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


def role_of(namespace: str) -> str:
    """The login role of a namespace's tenant; it has the same name as the schema."""
    return schema_of(namespace)


def admit(
    connection: PostgresConnection, namespace: str, password: str, *, reads: Sequence[str] = ()
) -> str:
    """Make a tenant's schema and login role, or change the role's password.

    Runs in the operator's open transaction.
    """
    role = role_of(namespace)
    raw = connection.raw
    there = connection.one("SELECT 1 FROM pg_roles WHERE rolname = ?", [role])
    # Only a superuser may name these attributes of a role that exists.
    verb = "ALTER" if there else "CREATE"
    least = "" if there else "NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT"
    _set_login(connection, f"{verb} ROLE {{}} LOGIN {least} PASSWORD {{}}", role, password)
    # No other role creates anything in this database, and no tenant sees another's schema.
    raw.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database = sql.Identifier(raw.info.dbname)
    raw.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
    schemas.make(connection, namespace, role)
    schemas.let_write(connection, role, role)
    _stop_reading(connection, role)
    for shared in reads:
        _let_read(connection, shared, role)
    return role


def _set_login(connection: PostgresConnection, statement: str, role: str, password: str) -> None:
    if not password or "\0" in password:
        raise StoreError(f"the password of the role {role} is empty or has a NUL; give one")
    # The server may log statements, so only a password verifier is sent.
    verifier = connection.raw.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    connection.raw.execute(
        sql.SQL(statement).format(sql.Identifier(role), sql.Literal(verifier.decode()))
    )


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
        except (errors.InsufficientPrivilege, errors.DependentObjectsStillExist) as error:
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
        for what in ("ALL TABLES IN SCHEMA {}", "ALL SEQUENCES IN SCHEMA {}", "SCHEMA {}"):
            connection.raw.execute(
                sql.SQL(f"REVOKE ALL ON {what} FROM {{}}").format(
                    sql.Identifier(schema), sql.Identifier(role)
                )
            )


def _let_read(connection: PostgresConnection, namespace: str, role: str) -> None:
    schema = schema_of(namespace)
    if not schemas.is_there(connection, schema):
        raise StoreError(f"namespace {namespace!r} was never written; ingest into it first")
    schemas.let_read(connection, schema, role)


# Role names stand in addresses and password files, so they need no quoting. They are shorter than
# a tenant's, and none is reserved.
_PREFIX: Final = re.compile(r"(?!pg(?:_|$)|(?:public|none)$)[a-z][a-z0-9_]{0,29}")
_MAKE_LOGIN = "CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT PASSWORD {}"
_RIGHTS = (
    # Nobody else makes tables in this database.
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
    "GRANT CONNECT, CREATE, TEMPORARY ON DATABASE {database} TO {owner}",
    "GRANT CONNECT ON DATABASE {database} TO {writer}, {reader}",
    # `schema.let_logins` recognises the two by these and their names, and grants the rest.
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT SELECT ON TABLES TO {reader}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT INSERT ON TABLES TO {writer}",
)
# The name of a namespace's schema and of its tenant's role.
_SCHEMA: Final = f"^{schemas.PREFIX}[0-9a-f]{{{schemas.DIGITS}}}$"
# Whether this login may make roles, owns the database, acts for the owner (None if it is not
# there) and may give itself that right; and whether a role that exists may more than it needs. An
# owner who makes roles is a member of its tenants' and has ADMIN on others that it made.
_OWN_RIGHTS = (
    "SELECT me.rolsuper OR me.rolcreaterole, pg_has_role(datdba, 'USAGE'), "
    "pg_has_role(o.oid, 'USAGE'), pg_has_role(o.oid, 'MEMBER WITH ADMIN OPTION') FROM pg_database "
    "JOIN pg_roles AS me ON me.rolname = current_user LEFT JOIN pg_roles AS o ON o.rolname = ? "
    "WHERE datname = current_database()"
)
_THERE = (
    "SELECT rolname, rolsuper OR rolcreatedb OR rolreplication OR rolbypassrls "
    "OR rolname <> owner AND rolcreaterole OR EXISTS (SELECT FROM pg_auth_members "
    "JOIN pg_roles AS g ON g.oid = roleid WHERE member = r.oid AND NOT (r.rolname = owner AND ("
    f"g.rolname ~ '{_SCHEMA}' OR NOT (inherit_option OR set_option "
    "OR starts_with(g.rolname, 'pg_'))))) FROM pg_roles AS r, (SELECT ?::name AS owner) AS o "
    "WHERE rolname = ANY(?)"
)
# The schemas of namespaces, their owners, and whether this login acts for them.
_REACHED = (
    "SELECT nspname, pg_get_userbyid(nspowner), pg_has_role(nspowner, 'USAGE') FROM pg_namespace "
    f"WHERE nspname ~ '{_SCHEMA}' ORDER BY 1"
)
# All that making logins may change, other than a schema's tables.
_STATE = (
    "SELECT ARRAY(SELECT rolname::text FROM pg_roles ORDER BY 1), "
    "ARRAY(SELECT nspname || coalesce(nspacl::text, '') FROM pg_namespace ORDER BY 1), "
    "ARRAY(SELECT concat(o.oid, acl) FROM (SELECT oid, relnamespace, relacl FROM pg_class "
    "UNION ALL SELECT oid, pronamespace, proacl FROM pg_proc) AS o (oid, place, acl) "
    f"JOIN pg_namespace AS n ON n.oid = place WHERE nspname ~ '{_SCHEMA}' ORDER BY 1), "
    "ARRAY(SELECT concat(defaclrole, defaclobjtype, defaclacl) FROM pg_default_acl ORDER BY 1), "
    "(SELECT datacl::text FROM pg_database WHERE datname = current_database())"
)


def make_logins(
    pool: PostgresPool,
    prefix: str,
    passwords: Callable[[Sequence[str]], Mapping[str, str]],
    namespaces: Sequence[str] = (),
) -> tuple[list[str], bool, list[str]]:
    """Make the logins for all tenants and grant their rights; a second time nothing changes.

    The owner makes the tenants' schemas, the writer writes rows like a gateway, the reader reads.
    The pool's login owns the database, may make roles, and is a superuser if pgvector is missing.

    Args:
        prefix: name of the owner, and the begin of the writer's and the reader's.
        passwords: called with the roles to make, if any; returns a password for each.
        namespaces: namespaces whose schemas are made, so that the writer can use them.

    Returns:
        The roles that were made, whether anything was made or granted, and the schemas of
        namespaces on which this login could not grant the rights.

    Raises:
        AccessDenied: the login lacks a right.
        ConfigError: a name cannot be used, or a role of that name may more than it should.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"prefix is {prefix!r:.60}, wanted up to 30 of a to z, 0 to 9 and _, a letter first, "
            "and no name that PostgreSQL reserves"
        )
    owner, writer, reader = prefix, f"{prefix}_writer", f"{prefix}_reader"
    with pool.connection() as connection, connection.translated():
        names = {"owner": owner, "writer": writer, "reader": reader}
        names["database"] = connection.raw.info.dbname

        def run(statement: str) -> None:
            quoted = {part: sql.Identifier(name) for part, name in names.items()}
            connection.raw.execute(sql.SQL(statement).format(**quoted))

        connection.script("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('crp logins', 0))")
        before = connection.one(_STATE)
        made = _missing_roles(connection, owner, writer, reader)
        for name, password in (passwords(made) if made else {}).items():
            _set_login(connection, _MAKE_LOGIN, name, password)
        joins = connection.one("SELECT pg_has_role(?, 'USAGE')", [owner]) == (False,)
        if joins:
            # An administrator who is no superuser acts for the owner within this transaction.
            run("GRANT {owner} TO CURRENT_USER WITH INHERIT TRUE")
        for statement in _RIGHTS:
            run(statement)
        lacking = {
            schema
            for schema, holder, acts in connection.rows(_REACHED)
            if not (acts and _let(connection, schema, holder, names))
        }
        run("SET LOCAL ROLE {owner}")
        changed = False
        for namespace in namespaces:
            path = f'"{schema_of(namespace)}", "{pool.extension_schema}", pg_temp'
            connection.script(f"SET LOCAL search_path = {path}")
            if schemas.make(connection, namespace, schema_of(namespace)):
                changed = True
                lacking.discard(schema_of(namespace))
        run("SET LOCAL ROLE NONE")
        if joins:
            run("REVOKE {owner} FROM CURRENT_USER")
        changed |= connection.one(_STATE) != before
        connection.script("COMMIT" if changed else "ROLLBACK")
    return made, changed, sorted(lacking)


def _let(
    connection: PostgresConnection, schema: str, holder: str, names: Mapping[str, str]
) -> bool:
    """Grant rights to a schema; return whether this login could, and no table is missing."""
    try:
        with connection.raw.transaction():
            if holder != names["owner"]:
                schemas.let_write(connection, schema, names["owner"])
            schemas.let_write(connection, schema, names["writer"])
            schemas.let_read(connection, schema, names["reader"])
    except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.UndefinedFunction):
        return False
    return True


def _missing_roles(connection: PostgresConnection, owner: str, *others: str) -> list[str]:
    """The roles to make; refuses those that may too much, and a login that may too little."""
    there = dict(connection.rows(_THERE, [owner, [owner, *others]]))
    for name, greedy in there.items():
        if greedy:
            raise ConfigError(
                f"the role {name} exists and may more than this login should, such as being a "
                "superuser or a member of another role; choose another --prefix"
            )
    missing = [name for name in (owner, *others) if name not in there]
    ((makes, owns, acts, joins),) = connection.rows(_OWN_RIGHTS, [owner])
    for right, lacking in (
        (makes or not missing, "make roles; use one with CREATEROLE"),
        (owns, "change the database, which it does not own; use its owner"),
        (acts or joins or owner in missing, f"act for {owner}; use the login that made it"),
    ):
        if not right:
            raise AccessDenied(f"the login of {connection.place} may not {lacking}, or a superuser")
    return missing
