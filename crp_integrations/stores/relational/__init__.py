"""The facets of a transaction as statements that SQLite and PostgreSQL share.

Read `transaction.py` (one connection, one state), `facts.py` with its parts
`fact_queries.py` and `fact_references.py`, `sessions.py` with `window_contents.py`,
`receipts.py`, and `rows.py` (records to rows and back). What a statement asks of the database
under it is in `stores/rules.py`.
"""
