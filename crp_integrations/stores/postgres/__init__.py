"""A store on PostgreSQL with pgvector: a schema for each namespace, for many machines at once.

Read `schema` (the tables), then `store`. Statements that PostgreSQL and SQLite share stand in
`stores/relational`; here stands what differs: `facts` (whose turn it is to write, COPY), `search`
(BM25 over postings, vectors and when their index is built), `upkeep` (bytes of what was removed),
`tenants` (logins).
"""

from crp_integrations.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
