"""The second step of a schema: the rows that one embedder made are a series.

The index is over the series in use alone. A change of embedder puts another vector and another
series into every row, and leaves the index as it is: who began to read before goes on with it, and
nobody who reads waits. It is taken away afterwards, and one of the new series is built.
"""

# ruff: noqa: S608 - only names of ours are put into a statement.

from __future__ import annotations

from typing import Final

from crp_integrations.stores.postgres.rights import AS_OWNER

# Under this name `own` keeps the number of the series in use; none is 0.
SERIES = "series"
STEP: Final = (
    f"ALTER TABLE vectors ADD COLUMN {SERIES} INTEGER NOT NULL DEFAULT 0",
    # It was over every row; the next writer, or maintenance, builds the other one.
    "DROP INDEX IF EXISTS vectors_near",
    "DELETE FROM own WHERE name = 'indexed'",
    f"""CREATE OR REPLACE FUNCTION index_vectors(dimensions integer) {AS_OWNER} AS $$ DECLARE
        used bigint;
    BEGIN
        EXECUTE format('DROP INDEX IF EXISTS %I.vectors_near', current_schema());
        IF dimensions > 0 THEN
            EXECUTE format(
                'SELECT coalesce(max(value), 0) FROM %I.own WHERE name = %L',
                current_schema(), '{SERIES}'
            ) INTO used;
            EXECUTE format(
                'CREATE INDEX vectors_near ON %I.vectors '
                'USING hnsw ((vector::halfvec(%s)) halfvec_ip_ops) WHERE {SERIES} = %s',
                current_schema(), dimensions, used
            );
            -- Else the planner takes a series that it never saw for a few rows.
            EXECUTE format('ANALYZE %I.vectors ({SERIES})', current_schema());
        END IF;
    END $$""",
)
