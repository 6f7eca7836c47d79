"""A store on PostgreSQL with pgvector: a schema for each namespace, for many machines at once.

Read `tables`, `schema` (their creation and checks), then `store`. Statements that PostgreSQL and
SQLite share are in `stores/relational`; what differs is here: `facts` (write locking, COPY),
`postings` and `word_search`, `vector_search`, `upkeep` (building the vectors' index, erasing the
bytes of removed rows), `tenants` (logins).
"""

from crp_integrations.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
