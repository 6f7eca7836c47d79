"""The tables, triggers and functions of a namespace's schema, as numbered steps.

A released step is never changed; a new one is added after it.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from typing import Final

from crp_integrations.stores.postgres.connection import TOUCHED_SQL
from crp_integrations.stores.rules import ASIDE_SQL, RETRIEVABLE_SQL

# Texts sort by code point, as in Python and SQLite, whatever the database's locale.
_T = 'TEXT COLLATE "C"'
_TOKEN = "replace(gen_random_uuid()::text, '-', '')"
# Name in `own` of the number of the vector series in use; without an entry it is 0.
SERIES = "series"
# Name in `own` of the number of steps that were applied.
VERSION_NAME = "schema_version"
# Runs under the generation lock, so that numbers are in the order of commits.
_LOG = f"""INSERT INTO changes
            SELECT coalesce((SELECT max(sequence) FROM changes), 0)
                + row_number() OVER (ORDER BY fact_id), fact_id, {_TOKEN} FROM"""
_LIVE_MOVED = """UPDATE own
            SET value = value + CASE name WHEN 'live_facts' THEN facts ELSE words END FROM"""
_LIVE_NAMES = "WHERE name IN ('live_facts', 'live_words') AND (facts <> 0 OR words <> 0);"


def _live(row: str) -> str:
    return f"({row}.status IN ('ACTIVE', 'STALE') AND {row}.archived_at IS NULL)"


def _trigger(table: str, event: str, rows: str, body: str) -> tuple[str, str]:
    name = f"{table}_{event.lower()}"
    return (
        f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
        AS $$ BEGIN
            PERFORM 1 FROM own WHERE name = 'generation' FOR UPDATE;
            {body}
            RETURN NULL;
        END $$""",
        f"""CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {rows}
        FOR EACH STATEMENT EXECUTE FUNCTION {name}()""",
    )


_FACTS: Final = (
    # Values of the namespace as a whole: `generation`, whose row is the writers' lock,
    # `dimensions`, and the numbers of retrievable facts and of their words.
    f"CREATE TABLE own (name {_T} PRIMARY KEY, value BIGINT)",
    "INSERT INTO own VALUES ('generation', 0), ('live_facts', 0), ('live_words', 0)",
    f"CREATE TABLE named (namespace {_T} NOT NULL)",
    f"CREATE TABLE settings (name {_T} PRIMARY KEY, value {_T} NOT NULL)",
    f"""CREATE TABLE sources (
        source_id {_T} PRIMARY KEY, schema {_T} NOT NULL, title {_T} NOT NULL, uri {_T} NOT NULL,
        document_hash {_T} NOT NULL, kind {_T} NOT NULL, ingested_at {_T} NOT NULL,
        fact_count BIGINT NOT NULL, status {_T} NOT NULL, labels {_T} NOT NULL,
        metadata {_T} NOT NULL
    )""",
    *(f"CREATE SEQUENCE {name}" for name in ("numbers", "segments")),
    # `words` is the text's length in stems.
    f"""CREATE TABLE facts (
        fact BIGINT PRIMARY KEY, fact_id {_T} NOT NULL UNIQUE, schema {_T} NOT NULL,
        content {_T} NOT NULL, content_hash {_T} NOT NULL, namespace {_T} NOT NULL,
        source_id {_T} NOT NULL, source_location {_T} NOT NULL, kind {_T} NOT NULL,
        importance_weight DOUBLE PRECISION NOT NULL, community_label {_T}, ingested_at {_T},
        modified_at {_T}, access_count BIGINT NOT NULL, last_accessed_at {_T}, ttl {_T},
        status {_T} NOT NULL, labels {_T} NOT NULL, valid_from {_T}, valid_to {_T},
        supersedes {_T}, metadata {_T} NOT NULL, archived_at {_T}, expires_at {_T},
        words INTEGER NOT NULL
    )""",
    "CREATE INDEX facts_by_source ON facts (source_id, fact_id)",
    f"""CREATE INDEX facts_retrievable ON facts (fact_id)
        INCLUDE (status, content_hash, labels) WHERE {RETRIEVABLE_SQL}""",
    f"CREATE INDEX facts_weighed ON facts (fact) INCLUDE (fact_id, words) WHERE {RETRIEVABLE_SQL}",
    f"CREATE INDEX facts_by_labels ON facts (labels) WHERE {RETRIEVABLE_SQL}",
    f"CREATE INDEX facts_aside ON facts (status, archived_at, modified_at) WHERE {ASIDE_SQL}",
    "CREATE INDEX facts_expiring ON facts (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX facts_by_hash ON facts (content_hash)",
    """CREATE INDEX facts_by_community ON facts (community_label)
        WHERE community_label IS NOT NULL""",
    f"CREATE INDEX facts_unused ON facts (({TOUCHED_SQL})) WHERE {RETRIEVABLE_SQL}",
    # Vectors may be added before their facts: the slow index work is then done before the lock.
    """CREATE TABLE vectors (
        fact BIGINT PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE
            DEFERRABLE INITIALLY DEFERRED,
        vector vector NOT NULL, series INTEGER NOT NULL DEFAULT 0
    )""",
    # `reach` bounds a row's impacts at the mean length `mean`. Unpacking costs more than reading.
    f"""CREATE TABLE postings (
        stem {_T} NOT NULL, segment BIGINT NOT NULL, rank INTEGER NOT NULL, level INTEGER NOT NULL,
        size INTEGER NOT NULL, reach DOUBLE PRECISION NOT NULL, mean DOUBLE PRECISION NOT NULL,
        entries BYTEA STORAGE EXTERNAL NOT NULL, PRIMARY KEY (stem, segment, rank)
    )""",
    # Hashes of a retrievable fact's stems in order, eight bytes each.
    "CREATE TABLE stem_sequences (fact BIGINT PRIMARY KEY, stems BYTEA STORAGE EXTERNAL NOT NULL)",
    f"""CREATE TABLE token_counts (
        fact BIGINT NOT NULL REFERENCES facts (fact) ON DELETE CASCADE, tokenizer {_T} NOT NULL,
        tokens BIGINT NOT NULL, PRIMARY KEY (fact, tokenizer)
    )""",
    f"""CREATE TABLE edges (
        source_fact {_T} NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
        kind {_T} NOT NULL,
        target_fact {_T} NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
        weight DOUBLE PRECISION NOT NULL, PRIMARY KEY (source_fact, kind, target_fact)
    )""",
    "CREATE INDEX edges_by_target ON edges (target_fact)",
    f"""CREATE TABLE prepared_vectors (
        embedder {_T} NOT NULL, content_hash {_T} NOT NULL, vector vector NOT NULL,
        PRIMARY KEY (embedder, content_hash)
    )""",
    "CREATE INDEX prepared_by_hash ON prepared_vectors (content_hash)",
    """CREATE TABLE fact_findings (
        fact BIGINT PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        findings BIGINT NOT NULL, uses_before BIGINT NOT NULL
    )""",
    # Separate from `facts`: updating a fact's row would write into each of its indexes and run the
    # triggers of `facts`.
    f"""CREATE TABLE fact_uses (
        fact BIGINT PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        uses BIGINT NOT NULL, last_used_at {_T} NOT NULL
    )""",
    f"""CREATE TABLE changes (
        sequence BIGINT PRIMARY KEY, fact_id {_T} NOT NULL, token {_T} NOT NULL
    )""",
    *_trigger(
        "facts",
        "INSERT",
        "NEW TABLE AS fresh",
        f"""{_LOG} fresh;
            {_LIVE_MOVED} (
                SELECT count(*) AS facts, coalesce(sum(words), 0) AS words FROM fresh AS n
                WHERE {_live("n")}
            ) AS moved {_LIVE_NAMES}""",
    ),
    *_trigger(
        "facts",
        "UPDATE",
        "OLD TABLE AS stale NEW TABLE AS fresh",
        f"""{_LOG} (
                SELECT n.fact_id FROM stale AS o JOIN fresh AS n USING (fact)
                WHERE o.content <> n.content OR o.status <> n.status OR o.labels <> n.labels
                    OR o.archived_at IS DISTINCT FROM n.archived_at
                    OR o.community_label IS DISTINCT FROM n.community_label
            ) AS changed;
            {_LIVE_MOVED} (
                SELECT coalesce(sum(one), 0) AS facts, coalesce(sum(words), 0) AS words FROM (
                    SELECT 1 AS one, words FROM fresh AS n WHERE {_live("n")}
                    UNION ALL SELECT -1, -words FROM stale AS o WHERE {_live("o")}
                ) AS each
            ) AS moved {_LIVE_NAMES}""",
    ),
    *_trigger(
        "facts",
        "DELETE",
        "OLD TABLE AS stale",
        f"""{_LOG} stale;
            {_LIVE_MOVED} (
                SELECT -count(*) AS facts, -coalesce(sum(words), 0) AS words FROM stale AS o
                WHERE {_live("o")}
            ) AS moved {_LIVE_NAMES}""",
    ),
    *_trigger(
        "vectors",
        "UPDATE",
        "OLD TABLE AS stale NEW TABLE AS fresh",
        f"""{_LOG} (
                SELECT fact_id FROM stale AS o JOIN fresh AS n USING (fact) JOIN facts USING (fact)
                WHERE o.vector <> n.vector
            ) AS changed;""",
    ),
)

# Tables whose rows are never changed or removed, by anyone.
SEALED = ("events", "seals", "receipts", "receipt_log")
_JOURNAL: Final = (
    f"""CREATE TABLE events (
        seq BIGINT PRIMARY KEY, schema {_T} NOT NULL, event_type {_T} NOT NULL,
        timestamp {_T} NOT NULL, session_id {_T} NOT NULL, window_id {_T} NOT NULL,
        data {_T} NOT NULL, hmac {_T} NOT NULL
    )""",
    f"""CREATE TABLE seals (
        session_id {_T} NOT NULL, window_number BIGINT NOT NULL, schema {_T} NOT NULL,
        window_id {_T} NOT NULL, timestamp {_T} NOT NULL, response_hash {_T} NOT NULL,
        report_hash {_T} NOT NULL, parent_hmac {_T} NOT NULL, hmac {_T} NOT NULL,
        outcome {_T} NOT NULL, etag {_T} NOT NULL, risk_level {_T} NOT NULL,
        PRIMARY KEY (session_id, window_number, window_id)
    )""",
)
# Work that processes share; a job id is a hash, a result contains only ids and numbers.
_JOBS: Final = (
    f"""CREATE TABLE jobs (
        batch {_T} NOT NULL, job_id {_T} NOT NULL,
        place BIGINT GENERATED ALWAYS AS IDENTITY, result {_T}, PRIMARY KEY (batch, job_id)
    )""",
    "CREATE INDEX jobs_waiting ON jobs (batch, place) WHERE result IS NULL",
)
_SESSIONS: Final = (
    f"""CREATE TABLE sessions (
        session_id {_T} PRIMARY KEY, parent_session {_T} NOT NULL, modified_at {_T} NOT NULL,
        record {_T} NOT NULL
    )""",
    "CREATE INDEX sessions_by_parent ON sessions (parent_session) WHERE parent_session <> ''",
    "CREATE INDEX sessions_idle ON sessions (modified_at, session_id)",
    f"""CREATE TABLE windows (
        "window" BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        window_id {_T} NOT NULL UNIQUE,
        session_id {_T} NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
        window_number BIGINT NOT NULL, continuation_id {_T} NOT NULL, closed_at {_T} NOT NULL,
        emptied INTEGER NOT NULL DEFAULT 0, record {_T} NOT NULL
    )""",
    "CREATE UNIQUE INDEX windows_by_session ON windows (session_id, window_number, window_id)",
    """CREATE UNIQUE INDEX windows_continued ON windows (continuation_id)
        WHERE continuation_id <> ''""",
    f"""CREATE TABLE window_contents (
        "window" BIGINT PRIMARY KEY REFERENCES windows ("window") ON DELETE CASCADE,
        padding BYTEA NOT NULL, prior {_T}, report {_T}
    )""",
    """CREATE TABLE window_facts (
        "window" BIGINT PRIMARY KEY REFERENCES window_contents ("window") ON DELETE CASCADE,
        keys BYTEA NOT NULL
    )""",
    f"CREATE TABLE withdrawn_facts (fact_id {_T} PRIMARY KEY, withdrawn_at {_T} NOT NULL)",
    "CREATE INDEX withdrawn_by_moment ON withdrawn_facts (withdrawn_at)",
    f"""CREATE TABLE judge_spending (
        session_id {_T} NOT NULL, judge {_T} NOT NULL, period {_T} NOT NULL,
        calls BIGINT NOT NULL, tokens BIGINT NOT NULL, usd DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (session_id, judge)
    )""",
)
_RECEIPTS: Final = (
    f"""CREATE TABLE receipts (
        place BIGINT PRIMARY KEY, receipt_id {_T} NOT NULL UNIQUE, session_id {_T} NOT NULL,
        window_id {_T} NOT NULL, payload BYTEA NOT NULL, signature BYTEA NOT NULL,
        key BYTEA NOT NULL
    )""",
    "CREATE INDEX receipts_by_session ON receipts (session_id, place)",
    "CREATE INDEX receipts_by_window ON receipts (window_id)",
    "CREATE TABLE receipt_log (position BIGINT PRIMARY KEY, hash BYTEA NOT NULL)",
    f"""CREATE TABLE receipt_contents (
        place BIGINT PRIMARY KEY REFERENCES receipts (place), padding BYTEA NOT NULL,
        texts {_T} NOT NULL
    )""",
    """CREATE TABLE receipt_facts (
        place BIGINT PRIMARY KEY REFERENCES receipt_contents (place) ON DELETE CASCADE,
        keys BYTEA NOT NULL
    )""",
    """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION '% are never changed or removed', TG_TABLE_NAME;
    END $$""",
    *(
        f"""CREATE TRIGGER {table}_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION refuse()"""
        for table in SEALED
    ),
)
# Columns of content without statistics of the planner, which would repeat the content. Two others
# need them, else long lists of stems or hashes would be looked up by reading the whole table.
_UNNOTED: Final = (
    "facts content, facts source_location, facts metadata, facts community_label, sources title, "
    "sources uri, sources metadata, vectors vector, postings entries, stem_sequences stems, "
    "prepared_vectors vector, window_contents prior, window_contents report, receipt_contents texts"
)
# These functions run as the owner of the tables, whoever calls; they ignore the caller's search
# path and name a schema in every statement.
AS_OWNER = "RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT"
APPEND_EVENTS = f"append_events(text, bigint[]{', text[]' * 7})"
WRITE_ANEW = "write_anew(text)"
INDEX_VECTORS = "index_vectors(integer)"
ANALYZE_TABLES = "analyze_tables()"
DEFINED = (APPEND_EVENTS, WRITE_ANEW, INDEX_VECTORS, ANALYZE_TABLES)
_DEFINED: Final = (
    *(
        "ALTER TABLE {} ALTER {} SET STATISTICS 0".format(*column.split())
        for column in _UNNOTED.split(", ")
    ),
    f"""CREATE FUNCTION write_anew(wanted text) {AS_OWNER} AS $$ DECLARE
        place text := format('%I.%I', current_schema(), wanted);
        key text;
    BEGIN
        SELECT relname INTO STRICT key FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE indrelid = place::regclass AND indisprimary;
        -- Unlike VACUUM FULL it can be called within a function.
        EXECUTE format('CLUSTER (VERBOSE) %s USING %I', place, key);
        EXECUTE format('ANALYZE %s', place);
        -- ANALYZE of an empty table leaves the old statistics; a change of type drops them.
        FOR key IN SELECT attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE
            pg_class.oid = place::regclass AND reltuples = 0 AND attname IN ('stem', 'content_hash')
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER %I TYPE {_T}', place, key);
        END LOOP;
    END $$""",
    # Only this adds to the trail for a tenant's login: an event names the seal that it follows. It
    # cannot check the seal itself, since the key is outside of the database.
    f"""CREATE FUNCTION append_events(
        previous text, numbers bigint[], schemas text[], types text[], times text[],
        sessions text[], windows text[], contents text[], seals text[]
    ) {AS_OWNER} AS $$ DECLARE
        tip record;
    BEGIN
        PERFORM 1 FROM own WHERE name = 'generation' FOR UPDATE;
        SELECT seq, hmac INTO tip FROM events ORDER BY seq DESC LIMIT 1;
        IF previous IS DISTINCT FROM coalesce(tip.hmac, '') OR EXISTS (
            SELECT FROM unnest(numbers) WITH ORDINALITY AS added (seq, place)
            WHERE seq IS DISTINCT FROM coalesce(tip.seq, 0) + place
        ) THEN
            RAISE EXCEPTION 'the events do not continue the trail after event %', tip.seq;
        END IF;
        INSERT INTO events
            (seq, schema, event_type, timestamp, session_id, window_id, data, hmac)
            SELECT * FROM
            unnest(numbers, schemas, types, times, sessions, windows, contents, seals);
    END $$""",
    # The rows of one embedder form a series, and the index covers only the series in use. A change
    # of embedder writes a new vector and series into every row and leaves the index as it is: a
    # transaction that is already reading keeps using it, and no reader waits. Afterwards that index
    # is dropped and one of the new series is built.
    f"""CREATE FUNCTION index_vectors(dimensions integer) {AS_OWNER} AS $$ DECLARE
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
                'USING hnsw ((vector::halfvec(%s)) halfvec_ip_ops) '
                'WITH (m = 16, ef_construction = 200) WHERE {SERIES} = %s',
                current_schema(), dimensions, used
            );
            EXECUTE 'ALTER INDEX ' || current_schema() || '.vectors_near ALTER 1 SET STATISTICS 0';
            -- Else the planner takes a series that it never saw for a few rows.
            EXECUTE format('ANALYZE %I.vectors ({SERIES})', current_schema());
        END IF;
    END $$""",
    f"""CREATE FUNCTION analyze_tables() {AS_OWNER} AS $$ DECLARE
        wanted regclass;
    BEGIN
        FOR wanted IN SELECT oid FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY oid
        LOOP
            EXECUTE format('ANALYZE %s', wanted);
        END LOOP;
    END $$""",
    *(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC" for function in DEFINED),
)
STEPS: tuple[tuple[str, ...], ...] = (
    (*_FACTS, *_JOURNAL, *_JOBS, *_SESSIONS, *_RECEIPTS, *_DEFINED),
)
