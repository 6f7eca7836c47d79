"""A store on PostgreSQL with pgvector: a schema for each namespace, for many machines at once.

Read `tables` and `dialect`, then `store`. Statements that PostgreSQL and SQLite share stand in
`stores/relational`; here stands what differs: `facts` (whose turn it is to write, COPY),
`word_search` (BM25 over postings), `vector_search` and `vector_index` (when it is built), `upkeep`
(bytes of what was removed), `tenants` (logins).
"""

from crp_integrations.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
