"""The store in a folder: one SQLite file for each namespace, write-ahead logged.

Read `migrations.py` (the tables), `facts.py` with its parts `edits.py`, `prepared.py`, `finding.py`
and `changes.py`, `journal.py`, `connection.py` (one open file, its errors translated), `pool.py`
(which connection serves which transaction), `cache.py` (derived files with their manifests),
`upkeep.py` (bytes of what was removed, damage), then `store.py`. A namespace's folder is named by
the hash of its name and only its owner can enter it. Nothing is made on disk before the first
write.
"""

from crp_integrations.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
