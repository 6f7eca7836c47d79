"""A store on PostgreSQL with pgvector: a schema for each namespace, for many machines at once.

Read `schema` (the tables), then `store`. Statements that PostgreSQL and SQLite share are in
`stores/relational`; what differs is here: `facts` (write locking, COPY), `search` (BM25 over
postings, vectors and when their index is built), `upkeep` (erasing the bytes of removed rows),
`tenants` (logins).
"""

from crp_integrations.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
