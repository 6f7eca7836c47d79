"""What a login may do in a schema, and whether that is enough to seal an answer.

A tenant's may do two things in its own beside rows, which only an owner can.

The operator owns schema and tables. A tenant that owned them could hang triggers, rules, columns or
indexes on them, and what these call runs as whoever writes, the operator too.
"""

# ruff: noqa: S608 - only names of ours are put into a statement.

from __future__ import annotations

from typing import Final

from psycopg import sql

from crp_integrations.errors import AccessDenied
from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.tables import SEALED

# Run as the owner of the tables, whoever calls; they take nothing from the caller's search path,
# and name a schema in whatever they carry out.
AS_OWNER = "RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT"
WRITE_ANEW = "write_anew(text)"
INDEX_VECTORS = "index_vectors(integer)"
DEFINED: Final = (
    f"""CREATE FUNCTION write_anew(wanted text) {AS_OWNER} AS $$ DECLARE
        place text := format('%I.%I', current_schema(), wanted);
        key text;
    BEGIN
        SELECT relname INTO STRICT key FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE indrelid = place::regclass AND indisprimary;
        -- Unlike VACUUM FULL it can be called within a function.
        EXECUTE format('CLUSTER (VERBOSE) %s USING %I', place, key);
        EXECUTE format('ANALYZE %s', place);
    END $$""",
    f"""CREATE FUNCTION index_vectors(dimensions integer) {AS_OWNER} AS $$ BEGIN
        EXECUTE format('DROP INDEX IF EXISTS %I.vectors_near', current_schema());
        IF dimensions > 0 THEN
            EXECUTE format(
                'CREATE INDEX vectors_near ON %I.vectors '
                'USING hnsw ((vector::halfvec(%s)) halfvec_ip_ops)', current_schema(), dimensions
            );
        END IF;
    END $$""",
    *(f"REVOKE ALL ON FUNCTION {one} FROM PUBLIC" for one in (WRITE_ANEW, INDEX_VECTORS)),
)
# Tables whose rows a tenant adds and never changes; and the one that only the operator writes.
_GRANTS = (
    "REVOKE ALL ON SCHEMA {schema} FROM PUBLIC",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    *(f"REVOKE UPDATE, DELETE ON {{schema}}.{table} FROM {{role}}" for table in SEALED),
    "REVOKE INSERT, UPDATE, DELETE ON {schema}.named FROM {role}",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    *(
        f"GRANT EXECUTE ON FUNCTION {{schema}}.{one} TO {{role}}"
        for one in (WRITE_ANEW, INDEX_VECTORS)
    ),
)
_READING = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
)
# What sealing an answer takes, by table or sequence.
SEALING: Final = (
    ("own", "UPDATE"),
    ("fact_uses", "UPDATE"),
    *(
        (table, "INSERT")
        for table in (
            *("fact_uses", *SEALED),
            *("sessions", "windows", "window_contents", "window_facts", "window_sources"),
            *("receipt_contents", "receipt_facts"),
        )
    ),
    ("sessions", "UPDATE"),
    ("withdrawn_facts", "DELETE"),
    ("windows_window_seq", "USAGE"),
)
_LACKING = (
    "SELECT 'CREATE', 'a schema', 0 AS place "
    "WHERE NOT has_database_privilege(current_database(), 'CREATE') "
    "AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = ?) "
    "UNION ALL SELECT what, name, place FROM (VALUES "
    + ", ".join(f"({place}, '{name}', '{what}')" for place, (name, what) in enumerate(SEALING, 1))
    + ") AS wanted (place, name, what) JOIN pg_class AS c ON relname = name "
    "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = ? AND NOT CASE "
    # A right to some columns may do.
    "WHEN what IN ('INSERT', 'UPDATE') THEN has_any_column_privilege(c.oid, what) "
    "WHEN relkind = 'S' THEN has_sequence_privilege(c.oid, what) "
    "ELSE has_table_privilege(c.oid, what) END ORDER BY place"
)
# So many of them are named.
_NAMED = 3


def refuse_reader(connection: Connection, namespace: str, schema: str) -> None:
    """Refuse a login that could not seal an answer in a namespace.

    Raises:
        AccessDenied: it lacks a right to that.
    """
    found = connection.rows(_LACKING, [schema, schema])
    lacking = [f"{what} on {name}" for what, name, _ in found]
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


def let_write(connection: Connection, schema: str, role: str) -> None:
    """Let a tenant's role read and write the rows of its schema."""
    _grant(connection, _GRANTS, schema, role)


def let_read(connection: Connection, schema: str, role: str) -> None:
    """Let a role read a schema."""
    _grant(connection, _READING, schema, role)


def _grant(connection: Connection, statements: tuple[str, ...], schema: str, role: str) -> None:
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    for statement in statements:
        connection.raw.execute(sql.SQL(statement).format(**names))
