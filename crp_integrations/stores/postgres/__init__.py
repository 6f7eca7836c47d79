"""A store on PostgreSQL with pgvector: a schema for each namespace, for many machines at once.

Read `tables` and `dialect`, then `store`. Statements that PostgreSQL and SQLite share stand in
`stores/sqlite`; here stands what differs: `facts` (COPY, postings), `words` (BM25 over postings),
`ordering` (whose turn it is to write), `indexing` (when an index is built), `session` (what a
connection keeps prepared), `upkeep` (bytes of what was removed).
"""

from crp_integrations.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
