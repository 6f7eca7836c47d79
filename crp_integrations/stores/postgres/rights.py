"""What a tenant's login may do in its own schema: rows, and two things that only an owner can.

The operator owns schema and tables. A tenant that owned them could hang triggers, rules, columns or
indexes on them, and what these call runs as whoever writes, the operator too.
"""

# ruff: noqa: S608 - only names of ours are put into a statement.

from __future__ import annotations

from typing import Final

from psycopg import sql

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
