"""The store in a folder: one SQLite file for each namespace, write-ahead logged.

Read `schema.py` (the tables), `connection.py` (open files and error translation), `cache.py`
(derived files with their manifests), then `store.py`. The facets are those of `stores/relational`.
A namespace's folder is named by the hash of its name and only its owner can enter it. Nothing is
created on disk before the first write.
"""

from crp_integrations.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
